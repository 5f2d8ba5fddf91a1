"""The traces of a round in CONTRIBUTING.md: functions that exist, named in their caller's file, never up a layer."""

import re

import pytest

from tests.docs.pages import ROOT, defines
from tests.test_layers import MAY_IMPORT

SOURCE = ROOT / "src/precad"
BLOCKS = re.findall(r"^```text trace\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL | re.MULTILINE)
LINE = re.compile(r"( *)([\w/]+\.py):([\w.]+)( {2,}\S.*)?$")


def calls() -> list[tuple[str, str, str, str]]:
    """(caller's file, file, name, caller's name) of every line that is indented under another."""
    found, above = list[tuple[str, str, str, str]](), list[tuple[int, str, str]]()
    for line in (line for block in BLOCKS for line in block.splitlines()):
        match = LINE.match(line)
        assert match is not None, line
        depth, file, name = len(match[1]), match[2], match[3]
        above = [caller for caller in above if caller[0] < depth]
        assert bool(above) == bool(depth), f"nothing calls {line}"
        if above:
            found.append((above[-1][1], file, name, above[-1][2]))
        above.append((depth, file, name))
    return found


def test_there_are_traces_of_both_kinds() -> None:
    assert len(BLOCKS) == 4
    assert len(calls()) > 40


@pytest.mark.parametrize(("file", "name"), re.findall(r"([\w/]+\.py):([\w.]+)", "".join(BLOCKS)))
def test_every_function_exists(file: str, name: str) -> None:
    assert defines(SOURCE / file, name)


@pytest.mark.parametrize(("caller", "file", "name", "calling"), calls())
def test_a_call_is_in_its_callers_file_and_never_goes_up(caller: str, file: str, name: str, calling: str) -> None:
    upper, lower = caller.split("/")[0], file.split("/")[0]
    assert lower == upper or lower in MAY_IMPORT[upper], (calling, name)
    assert re.search(rf"\b{name.split('.')[-1]}\b", (SOURCE / caller).read_text()), (calling, name)
