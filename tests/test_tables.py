"""The reader of settings: all that is written is read back; all that is mutated is refused or means what it says."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precad import tables
from precad.tables import build, parse_json, to_table, to_toml
from tests.messages import says


class Colour(Enum):
    RED = "red"
    BLUE = "blue"
    ONE = 1


@dataclass(frozen=True, kw_only=True)
class Inner:
    name: str
    size: int = 3


@dataclass(frozen=True, kw_only=True)
class Outer:
    text: str
    whole: int
    number: float
    flag: bool
    colour: Colour
    kind: Literal["a", "b"]
    place: Path
    inner: Inner
    maybe: float | None = None
    inners: tuple[Inner, ...] = ()
    numbers: list[int] | None = None
    counts: Mapping[str, int] | None = None


GOOD: dict[str, Any] = {
    "text": "t",
    "whole": 1,
    "number": 0.5,
    "flag": True,
    "colour": "red",
    "kind": "a",
    "place": "x/y",
    "inner": {"name": "i"},
    "inners": [{"name": "j", "size": 4}],
    "numbers": [1, 2],
    "counts": {"a": 1},
}
wholes = st.integers(-(2**63), 2**63 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
inners = st.builds(Inner, name=texts, size=wholes)
outers = st.builds(
    Outer,
    text=texts,
    whole=wholes,
    number=finite | st.integers(-100, 100),
    flag=st.booleans(),
    colour=st.sampled_from(Colour),
    kind=st.sampled_from(["a", "b"]),
    place=st.sampled_from([Path("x"), Path("/x/y"), Path("x y.toml")]),
    inner=inners,
    maybe=st.none() | finite,
    inners=st.lists(inners, max_size=3).map(tuple),
    numbers=st.none() | st.lists(wholes, max_size=3),
    counts=st.none() | st.dictionaries(texts, wholes, max_size=3),
)


@given(value=outers)
def test_all_that_is_written_to_json_is_read_back(value: Outer) -> None:
    assert build(Outer, parse_json(json.dumps(to_table(value))), "it", complete=True) == value


@given(value=outers)
def test_all_that_is_written_to_toml_is_read_back(value: Outer) -> None:
    table = to_table(value) | {"counts": None, "inners": []}  # TOML needs quotes for such keys, and precad has none
    again = build(Outer, tomllib.loads(to_toml(table)), "it")
    assert to_table(again) == table


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


@given(value=outers, data=st.data())
def test_all_that_is_mutated_is_refused_or_stands_for_what_it_says(value: Outer, data: st.DataObject) -> None:
    """Nothing is guessed: what is accepted would be written as it was read."""
    holder = {"top": to_table(value)}
    path = ("top", *data.draw(st.sampled_from(places(holder["top"]))))
    place: Any = holder
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = data.draw(ANY)
    try:
        read = build(Outer, parse_json(json.dumps(holder["top"])), "it", complete=True)
    except ValueError:
        return
    assert to_table(read) == {**holder["top"], "place": str(Path(holder["top"]["place"]))}


BAD: dict[str, dict[str, Any]] = {
    "it: unknown key 'more'; known are text, whole": {"more": 1},
    "text must be text, got 3": {"text": 3},
    "whole must be a whole number, got True": {"whole": True},
    "whole must be a whole number, got 1.0": {"whole": 1.0},
    "number must be a finite number, got 'x'": {"number": "x"},
    "number must be a finite number, got inf": {"number": float("inf")},
    "number must be a finite number, got 1000": {"number": 10**400},
    "number must be a finite number, got True": {"number": True},
    "flag must be true or false, got 1": {"flag": 1},
    "colour must be one of red, blue, 1; got 'green'": {"colour": "green"},
    "colour must be one of red, blue, 1; got True": {"colour": True},
    "kind must be one of a, b; got 'c'": {"kind": "c"},
    "place must be text, got 3": {"place": 3},
    r"place must be a path of printable characters, got 'a\x1b[31m\u202e'": {"place": "a\x1b[31m\u202e"},
    "[inner] must be a table, got 3": {"inner": 3},
    "[inner]: unknown key 'x'; known are name, size": {"inner": {"name": "i", "x": 1}},
    "[inner] lacks name": {"inner": {}},
    "maybe must be a finite number, got '1'": {"maybe": "1"},
    "inners must be a list, got 'ab'": {"inners": "ab"},
    "inners[0] lacks name": {"inners": [{}]},
    "size must be a whole number, got None": {"inners": [{"name": "n", "size": None}]},
    "numbers[1] must be a whole number, got 'x'": {"numbers": [1, "x"]},
    "counts must be a table, got [1]": {"counts": [1]},
    "counts.b must be a whole number, got 0.5": {"counts": {"b": 0.5}},
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_wrong_is_named_with_its_value_and_what_is_allowed(message: str) -> None:
    build(Outer, GOOD, "it")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        build(Outer, GOOD | BAD[message], "it")
    assert message in str(caught.value)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="it lacks text, whole"):
        build(Outer, {}, "it")
    with pytest.raises(ValueError, match="it lacks maybe"):
        build(Outer, GOOD, "it", complete=True)
    with pytest.raises(ValueError, match=r"\[inner\] lacks size"):
        build(Outer, GOOD | {"maybe": None}, "it", complete=True)
    with pytest.raises(ValueError, match=says("table", 3)):
        build(Outer, 3, "it")


def test_what_is_given_is_no_key() -> None:
    assert build(Inner, {"size": 1}, "it", given={"name": "n"}) == Inner(name="n", size=1)
    with pytest.raises(ValueError, match=says("'name'", "size")):
        build(Inner, {"name": "m"}, "it", given={"name": "n"})


def test_paths_are_relative_to_the_folder() -> None:
    assert build(Outer, GOOD, "it", folder=Path("/etc")).place == Path("/etc/x/y")
    assert build(Outer, GOOD | {"place": "/z"}, "it", folder=Path("/etc")).place == Path("/z")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": {"b": 1, "b": 1}}', "'b' stands twice"),
        ('{"a": NaN}', "a must be a finite number, got nan"),
        ('{"a": 1e999}', "a must be a finite number, got inf"),
        ("[" * 200_000, "nested too deeply"),
        ("[" * 40 + "]" * 40, "nested too deeply: at most 32"),
        ('{"a":' * 40 + "1" + "}" * 40, "nested too deeply: at most 32"),
        ('{"a": [1, NaN]}', "a must be a finite number, got nan"),
        ("9" * 5000, "digits"),
        ("{", "Expecting"),
    ],
)
def test_json_that_is_ambiguous_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)


def test_tables_inside_tables_have_dotted_names() -> None:
    table = {"a": 1, "b": {"c": [1.5, "x"], "d": {"e": True, "f": None}}}
    text = to_toml(table)
    assert text == 'a = 1\n\n[b]\nc = [1.5, "x"]\n\n[b.d]\ne = true\n'
    assert tomllib.loads(text) == {"a": 1, "b": {"c": [1.5, "x"], "d": {"e": True}}}


def test_a_field_that_no_file_can_hold_is_the_programs_mistake() -> None:
    @dataclass(frozen=True)
    class Strange:
        value: set[int]

    with pytest.raises(TypeError, match="value"):
        build(Strange, {"value": []}, "it")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says(tmp_path / "none.toml")):
        tables.read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"a = = 3\xff")
    with pytest.raises(ValueError, match=says(tmp_path / "bad.toml", "TOML")):
        tables.read_toml(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 200_000, "nested too deeply"),
        (".".join("a" * 100) + " = 1", "nested too deeply: at most 32"),
        ("a = 1\na = 1", "TOML"),
        ("a = " + "9" * 5000, "digits"),
    ],
)
def test_toml_that_is_none_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ValueError, match=f"a.toml.*{message}"):
        tables.read_toml(tmp_path / "a.toml")


def test_a_whole_number_has_64_bits_and_a_message_is_short() -> None:
    for value in (1 << 63, 10**400, 10**5000):
        with pytest.raises(ValueError, match=says("whole", 64)) as caught:
            build(Outer, GOOD | {"whole": value}, "it")
        assert len(str(caught.value)) < 400


def test_a_table_does_not_silently_replace_a_value() -> None:
    assert tables.merged({"a": {"b": 1, "c": 2}, "d": 1}, {"a": {"b": 3}, "d": 2}) == {"a": {"b": 3, "c": 2}, "d": 2}
    with pytest.raises(ValueError, match=says("[a]", "table", 5)):
        tables.merged({"a": 5}, {"a": {"b": 3}})
