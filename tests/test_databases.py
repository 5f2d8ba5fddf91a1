"""Files of SQLite that somebody else made: nothing in them runs, nothing of them changes, nothing hangs."""

import hashlib
import os
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from precad import databases, files

SCHEMA = ("CREATE TABLE IF NOT EXISTS words (number INTEGER PRIMARY KEY, word TEXT NOT NULL)",)


def words(connection: sqlite3.Connection) -> list[str]:
    return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY number")]


def new(path: Path) -> sqlite3.Connection:
    connection = databases.connect(path, SCHEMA, durable=True)
    connection.execute(SCHEMA[0])
    return connection


def add(connection: sqlite3.Connection, *added: str) -> None:
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO words (word) VALUES (?)", [(word,) for word in added])
    connection.execute("COMMIT")


def state(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file with its time and its digest."""
    return {
        path.name: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in folder.iterdir()
    }


def test_a_look_changes_no_byte_no_time_and_no_neighbour(tmp_path: Path) -> None:
    with closing(new(tmp_path / "at rest")) as connection:
        add(connection, "a")
    before = state(tmp_path)
    assert databases.look(tmp_path / "at rest", SCHEMA, words) == ["a"]
    assert state(tmp_path) == before


@pytest.mark.parametrize("name", ["a?mode=memory", "a#b", "a%41b", " a b ", "a\nb", "file:a?x", ":memory:", "ä\udcffb"])
def test_every_path_is_a_path(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    connection = new(Path(name))
    add(connection, "a")
    assert databases.look(Path(name), SCHEMA, words) == ["a"]
    connection.close()
    assert databases.look(Path(name), SCHEMA, words) == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A file as a process that was killed left it, with what it wrote in the write-ahead log alone."""
    (tmp_path / "live").mkdir()
    with closing(new(tmp_path / "live" / "db")) as connection:
        add(connection, *(f"word {number}" * 30 for number in range(100)))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        for number in range(100, 160):
            add(connection, f"word {number}" * 30)
        connection.execute("DELETE FROM words WHERE number > 155")
        (tmp_path / "killed").mkdir()
        for name in ("db", "db-wal"):
            shutil.copy(tmp_path / "live" / name, tmp_path / "killed")
    return tmp_path / "killed" / "db"


def as_sqlite_reads(path: Path, to: Path) -> list[str]:
    to.mkdir()
    for each in path.parent.iterdir():
        shutil.copy(each, to)
    with closing(sqlite3.connect(to / path.name)) as connection:
        return words(connection)


def test_a_write_ahead_log_is_read_as_sqlite_reads_it_and_stays(killed: Path, tmp_path: Path) -> None:
    before = state(killed.parent)
    found = databases.look(killed, SCHEMA, words)
    assert len(found) == 155
    assert found == as_sqlite_reads(killed, tmp_path / "copy")
    assert state(killed.parent) == before


def test_a_log_that_was_cut_off_or_changed_anywhere_is_read_as_sqlite_reads_it(killed: Path, tmp_path: Path) -> None:
    whole = killed.with_name("db-wal").read_bytes()
    lengths = set()
    for number, at in enumerate([0, 10, 31, 32, 40, 60, 5000, len(whole) // 2, len(whole) - 5]):
        for changed in (whole[:at], whole[:at] + bytes([255 - byte for byte in whole[at : at + 1]]) + whole[at + 1 :]):
            killed.with_name("db-wal").write_bytes(changed)
            found = databases.look(killed, SCHEMA, words)
            assert found == as_sqlite_reads(killed, tmp_path / f"copy-{number}-{changed == whole[:at]}")
            lengths.add(len(found))
    assert len(lengths) > 3


def test_a_look_sees_whole_transactions_while_another_process_writes(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from tests.test_databases import add, new
connection = new(Path({str(tmp_path / "db")!r}))
connection.execute("PRAGMA wal_autocheckpoint = 5")
print("ready", flush=True)
for number in range(3000):
    add(connection, *[str(number) * 50] * 7)
"""
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    writer.stdout.readline()
    looks = 0
    while writer.poll() is None:
        found = databases.look(tmp_path / "db", SCHEMA, words)
        assert len(found) % 7 == 0
        assert found == [str(number // 7) * 50 for number in range(len(found))]
        looks += 1
    writer.stdout.close()
    assert writer.returncode == 0
    assert looks > 3
    assert len(databases.look(tmp_path / "db", SCHEMA, words)) == 21_000


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_cannot_be_written(killed: Path) -> None:
    killed.parent.chmod(0o500)
    try:
        assert len(databases.look(killed, SCHEMA, words)) == 155
    finally:
        killed.parent.chmod(0o700)


FORGED = {
    "an endless view": "CREATE VIEW words AS WITH RECURSIVE w(word, number) AS (SELECT 'a', 1 UNION ALL SELECT 'a', "
    "number + 1 FROM w) SELECT number, word FROM w",
    "another table": "CREATE TABLE words (number INTEGER PRIMARY KEY, word TEXT AS (printf('%.*c', 100, 'x')))",
    "a trigger": f"{SCHEMA[0]}; CREATE TRIGGER t AFTER INSERT ON words BEGIN DELETE FROM words; END",  # noqa: S608 - it is
    "an index": f"{SCHEMA[0]}; CREATE INDEX i ON words (word || word)",
    "an empty file": "",
}


@pytest.mark.parametrize("how", FORGED)
def test_what_another_program_made_is_refused_at_once(tmp_path: Path, how: str) -> None:
    path = tmp_path / "db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FORGED[how])
    path.touch()
    before = state(tmp_path)
    with pytest.raises(sqlite3.DatabaseError, match=r"words|trigger|index|a table"):
        databases.look(path, SCHEMA, words)
    if how != "an empty file":
        with pytest.raises(sqlite3.DatabaseError, match=r"words|trigger|index"):
            databases.connect(path, SCHEMA, durable=True)
    assert state(tmp_path) == before


def test_a_look_comes_to_an_end(tmp_path: Path) -> None:
    """A tree of pages can be forged that branches into itself, and has more rows than anybody can read."""
    with closing(new(tmp_path / "db")) as connection:
        add(connection, "a")
    endless = "WITH RECURSIVE w(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM w) SELECT count(*) FROM w"
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        databases.look(tmp_path / "db", SCHEMA, lambda connection: connection.execute(endless).fetchall())


def test_a_change_that_was_cut_off_is_not_guessed(tmp_path: Path) -> None:
    with closing(new(tmp_path / "db")) as connection:
        add(connection, "a")
    (tmp_path / "db-journal").write_bytes(b"half")
    with pytest.raises(sqlite3.DatabaseError, match="cut off"):
        databases.look(tmp_path / "db", SCHEMA, words)
    assert (tmp_path / "db-journal").read_bytes() == b"half"


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_a_planted_link_beside_it_is_not_written_through(tmp_path: Path, ending: str) -> None:
    yours = tmp_path / "yours"
    yours.write_bytes(b"")
    (tmp_path / f"db{ending}").symlink_to(yours)
    with pytest.raises(files.FileError, match=f"db{ending}.*link"):
        databases.connect(tmp_path / "db", SCHEMA, durable=True)
    assert yours.read_bytes() == b""


def test_a_private_file_is_its_owners(tmp_path: Path) -> None:
    databases.connect(tmp_path / "db", SCHEMA, durable=True, private=True).close()
    assert stat.S_IMODE((tmp_path / "db").stat().st_mode) == 0o600


def hot_journal(path: Path, names: Path) -> None:
    """Beside a file, the journal of a transaction over several files that was cut off (sqlite.org/fileformat2.html)."""
    magic, page = bytes.fromhex("d9d505f920a163d7"), 4096
    header = magic + struct.pack(">5I", 0, 1, path.stat().st_size // page, 512, page)
    name = str(names).encode()
    end = struct.pack(">I", (1 << 30) // page + 1) + name + struct.pack(">2I", len(name), sum(name)) + magic
    path.with_name(f"{path.name}-journal").write_bytes(header.ljust(512, b"\0") + end)


def test_a_planted_journal_deletes_no_file(tmp_path: Path) -> None:
    """SQLite deletes the file that the journal of several files names, wherever that is."""
    yours = tmp_path / "yours"
    yours.write_text("yours")
    new(tmp_path / "db").close()
    hot_journal(tmp_path / "db", yours)
    before = state(tmp_path)
    with pytest.raises(databases.DatabaseError, match="db-journal names other files"):
        new(tmp_path / "db")
    assert state(tmp_path) == before
    sqlite3.connect(tmp_path / "db").execute("SELECT * FROM words")
    assert not yours.exists(), "SQLite no longer does it: the check can go"


def test_a_table_in_capitals_is_no_table_of_ours(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        connection.execute("CREATE TABLE Words (number INTEGER, word TEXT AS ('always'))")
    with pytest.raises(databases.DatabaseError, match="'Words'"):
        databases.connect(tmp_path / "db", SCHEMA, durable=True)


@pytest.mark.parametrize("planted", ["nothing", "a pipe", "a hard link", "garbage"])
def test_a_look_at_a_long_file_with_a_log_changes_nothing(
    killed: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    """SQLite itself reads it, by an index in a third file, which it would make or write."""
    expected = databases.look(killed, SCHEMA, words)
    index = killed.with_name("db-shm")
    yours = killed.parent.parent / "yours"
    yours.write_bytes(b"yours" * 10_000)
    if planted == "a pipe":
        os.mkfifo(index)
    elif planted == "a hard link":
        index.hardlink_to(yours)
    elif planted == "garbage":
        index.write_bytes(bytes(range(256)) * 200)
    names, before = set(killed.parent.iterdir()), (killed.read_bytes(), yours.read_bytes())
    monkeypatch.setattr(databases, "MOST_IN_MEMORY", 0)
    if planted in ("nothing", "a pipe"):
        with pytest.raises(databases.DatabaseError, match="too long"):
            databases.look(killed, SCHEMA, words)
    else:
        assert databases.look(killed, SCHEMA, words) == expected
    assert (set(killed.parent.iterdir()), (killed.read_bytes(), yours.read_bytes())) == (names, before)


def test_the_whole_bytes_are_those_after_a_checkpoint(killed: Path) -> None:
    with databases.open_whole(killed) as stream:
        before = stream.read()
    with closing(sqlite3.connect(killed)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with databases.open_whole(killed) as stream:
        assert stream.read() == before == killed.read_bytes()


def test_a_table_beside_ours_must_be_known(tmp_path: Path) -> None:
    more = "CREATE TABLE more (a)"
    with closing(new(tmp_path / "db")) as connection:
        add(connection, "a")
        connection.execute(more)
    with pytest.raises(databases.DatabaseError, match="table 'more'"):
        databases.look(tmp_path / "db", SCHEMA, words)
    assert databases.look(tmp_path / "db", SCHEMA, words, [more]) == ["a"]


@pytest.mark.parametrize("meanwhile", ["a second connection", "a look", "the bytes"])
def test_another_process_does_not_delete_the_log_under_this_one(tmp_path: Path, meanwhile: str) -> None:
    """POSIX drops a process's locks on a file with any descriptor of it that is closed: here none is, but SQLite's."""
    path = tmp_path / "db"
    with closing(new(path)) as connection:
        add(connection, "before")
        if meanwhile == "a second connection":
            new(path).close()
        elif meanwhile == "a look":
            assert databases.look(path, SCHEMA, words) == ["before"]
        else:
            databases.open_whole(path).close()
        program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM words'); c.close()"
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
        add(connection, "after")
        shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name} after a kill"))
        assert words(connection) == ["before", "after"]
    with closing(sqlite3.connect(tmp_path.with_name(f"{tmp_path.name} after a kill") / "db")) as kept:
        assert words(kept) == ["before", "after"]


def test_a_file_that_is_open_here_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with closing(new(path)) as connection:
        add(connection, "a")
        with databases.open_whole(path) as stream:
            image = stream.read()
        assert databases.look(path, SCHEMA, words) == ["a"]
    (tmp_path / "copy").write_bytes(image)
    assert databases.look(tmp_path / "copy", SCHEMA, words) == ["a"]
    assert image == path.read_bytes()
