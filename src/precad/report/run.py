"""A run's folder as frozen values: everything that its page shows comes from here. Nothing is written or locked.

The files of a run are written from the same dataclasses, by :mod:`precad.simulation.session`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precad.errors import PrecadError
from precad.files import read_text, words_of
from precad.privacy.ledger import Contents, read_verified
from precad.settings import RunConfig, from_table
from precad.tables import Table, build, parse_json, read_json, read_toml

FORMAT = 2
"""Of ``about.json``. Runs of format 1 have no ``manifest.json``, and lines without links; older ones have no format."""
MOST_LINES = 1 << 30
"""Bytes of ``metrics.jsonl``."""


class ReportError(PrecadError):
    """A folder that is no run, or is damaged, or was made by a version that writes otherwise."""


@dataclass(frozen=True, kw_only=True)
class RoundFigures:
    """One line of ``metrics.jsonl``, without the keys whose value is None."""

    round: int
    """Counted from 1."""
    selected: int
    rejected: Mapping[str, str]
    """Client → reason."""
    update_norm: float | None = None
    noises: int | None = None
    """How many clients added noise of their own, where that is the protocol."""
    fingerprint: str | None = None
    """Of the clients' updates, for a run that is cut off: only its own root can make the same."""
    seconds: Mapping[str, float]
    private: bool | None = None
    """Whether nobody can take the noise away: not with a seed."""
    model: str | None = None
    """The digest of the model after this round."""
    link: str | None = None
    """Of the ledger in this round. A ledger that is written anew has another."""
    test_accuracy: float | None = None
    test_loss: float | None = None
    epsilon_server: float | None = None
    epsilon_clients: float | None = None

    @property
    def evaluated(self) -> bool:
        """Whether figures were taken after this round. An ε that is None then does not exist."""
        figures = self.test_accuracy, self.test_loss, self.epsilon_server, self.epsilon_clients
        return any(value is not None for value in figures)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """``summary.json``, which makes a run finished."""

    run: str
    version: str
    protocol: str
    validation: str
    rounds: int
    parameters: int
    clients: int
    test_accuracy: float | None
    test_loss: float | None
    backdoor_accuracy: float | None = None
    epsilon_server: float | None
    """None if nothing protects against it."""
    epsilon_clients: float | None
    delta: float
    participations: int
    """Of the client that took part most often."""
    rejected: Mapping[str, Mapping[str, int]]
    """Of every client that ever was: how often it was ``rejected``, and how many updates it had ``sent``."""
    seconds: Mapping[str, float]
    plain_seconds: float | None = None
    """Of one round of plain training on the same machine, model and data; None if it was not measured."""
    seed: int | None
    randomness: str


@dataclass(frozen=True, kw_only=True)
class About:
    """``about.json``: what the run knew of itself when it began. Older runs did not write it."""

    format: int = FORMAT
    version: str | None = None
    versions: Mapping[str, str]
    """Of Python, torch and the like."""
    parameters: int | None
    """d."""
    clients: tuple[str, ...] | None = None
    records: tuple[int, ...] | None = None
    """How many each client has, in the same order."""


@dataclass(frozen=True)
class Run:
    """All that a run's page rests on."""

    name: str
    config: RunConfig
    entries: Mapping[str, Mapping[str, str]]
    """Every table of the configuration, as text."""
    clients: int | None
    """n, as far as it is known."""
    rounds: tuple[RoundFigures, ...]
    summary: Summary | None
    about: About
    ledger: Contents | None
    config_digest: str | None
    randomness: str | None = None
    """Which randomness made it: that of its copies is the same."""
    hidden: bool = False
    """Whether participants must not become known (PROTOCOL §7a)."""
    simulated: bool = True
    """Whether one machine played all parties; else this is what one server of a task knows."""

    @property
    def done(self) -> int:
        """How many rounds were played."""
        return self.rounds[-1].round if self.rounds else 0

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.summary is not None if self.simulated else self.done >= self.config.training.rounds

    @property
    def evaluated(self) -> tuple[RoundFigures, ...]:
        """The rounds after which the test set was looked at."""
        return tuple(line for line in self.rounds if line.evaluated)


@dataclass(frozen=True)
class Source:
    """Where a run is."""

    folder: Path
    files: tuple[Path, ...]
    """Whatever changes when the run goes on is among them."""
    read: Callable[[], Run]
    """What they hold now, or an error of one sentence."""


def run_source(folder: Path) -> Source:
    """The run of a folder of ``precad train``."""
    files = tuple(folder / name for name in ("config.toml", "about.json", "metrics.jsonl", "summary.json"))
    return Source(folder, files, lambda: read_run(folder))


def read_run(path: Path) -> Run:
    """The run in a folder, at this moment; a :class:`ReportError` that names the file and the fault."""
    if not (path / "config.toml").is_file():
        raise ReportError(f"there is no run in {path}: config.toml is missing")
    summary, machine = (read_object(path / name) for name in ("summary.json", "machine.json"))
    about = read_about(path / "about.json")
    ledger = read_verified(path / "ledger.sqlite") if (path / "ledger.sqlite").is_file() else None
    try:
        table = read_toml(path / "config.toml")
        config = from_table({"task": {"dataset": ""}, **table})  # precad.train writes none: only its caller knows
    except ValueError as error:
        raise ReportError(f"{path / 'config.toml'} is not the configuration of a run: {error}") from None
    try:
        ended = None if summary is None else build(Summary, summary, "summary.json")
    except ValueError as error:
        raise ReportError(f"{path} is damaged: {error}") from None
    begun = about or _about(ended, ledger)
    return Run(
        name=path.resolve().name,
        config=config,
        entries=as_text(table),
        clients=len(begun.clients) if begun.clients is not None else config.task.clients if "task" in table else None,
        rounds=read_rounds(path / "metrics.jsonl"),
        summary=ended,
        about=begun,
        ledger=ledger,
        config_digest=None if machine is None else machine.get("config"),
        randomness=None if machine is None else machine.get("randomness"),
    )


def read_rounds(path: Path) -> tuple[RoundFigures, ...]:
    """All whole lines of ``metrics.jsonl``; the last one may be being written."""
    try:
        text = read_text(path, MOST_LINES)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {words_of(error)}") from None
    rounds = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            rounds.append(build(RoundFigures, parse_json(line), "the line"))
        except ValueError as error:
            raise ReportError(f"{path} is damaged in line {number}: {error}") from None
        if rounds[-1].round != number:
            raise ReportError(f"{path} is damaged: line {number} is of round {rounds[-1].round}")
    return tuple(rounds)


def unfinished(counted: int, finished: int) -> str | None:
    """What is to be said of a ledger that counts more rounds than were finished: it counts before a round is opened."""
    if counted <= finished:
        return None
    named = f"round {counted:,} is" if counted == finished + 1 else f"rounds {finished + 1:,} to {counted:,} are"
    return f"{named} counted, and {'was' if counted == finished + 1 else 'were'} not finished"


def as_text(table: Table) -> dict[str, dict[str, str]]:
    """The tables in a table, with their values as text; values outside of them are of the table ``run``."""
    tables: dict[str, dict[str, str]] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            tables[name] = {key: str(item) for key, item in value.items()}
        else:
            tables.setdefault("run", {})[name] = str(value)
    return tables


def read_about(path: Path) -> About | None:
    """``about.json``; None if there is none."""
    table = read_object(path)
    if table is None:
        return None
    if table.get("format") not in (1, FORMAT):
        made = table.get("version", "another version")
        raise ReportError(f"{path.parent} was made by precad {made}, whose runs this version cannot read")
    try:
        return build(About, table, "about.json")
    except ValueError as error:
        raise ReportError(f"{path.parent} is damaged: {error}") from None


def read_object(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is none."""
    try:
        value = read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} is damaged: {words_of(error)}") from None
    if not isinstance(value, dict):
        raise ReportError(f"{path} is damaged: it must hold an object, got {type(value).__name__}")
    return value


def _about(summary: Summary | None, ledger: Contents | None) -> About:
    """Of an older run: what its summary and its ledger know."""
    if summary is not None:
        return About(version=summary.version, versions={}, parameters=summary.parameters)
    return About(versions={}, parameters=None if ledger is None else ledger.terms.dim)
