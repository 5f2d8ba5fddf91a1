"""The command line as a whole: panels, sentences, examples, and each option defined once."""

import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from precad.cli.app import PANELS, app


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(get_command(app)))
each_command = pytest.mark.parametrize("words", COMMANDS, ids=" ".join)


def test_the_help_has_a_panel_for_each_thing_that_a_person_wants_to_do() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).output
    places = [shown.index(f"─ {panel} ─") for panel in PANELS]
    assert places == sorted(places)
    assert "─ Commands ─" not in shown
    listed = re.findall(r"^│ ([a-z]+) ", shown, re.MULTILINE)
    assert listed == get_command(app).list_commands(None)  # type: ignore[attr-defined]
    assert sorted(listed) == sorted({words[0] for words in COMMANDS})


@each_command
def test_a_command_says_what_it_does_in_a_sentence(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    first = command.help.split("\n\n")[0]
    assert first.endswith(".")
    for option in command.params:
        if option.param_type_name == "option":
            assert option.help, option.name
            assert option.help[-1] in ".…", option.name


@each_command
def test_the_example_of_a_command_can_be_given_as_it_is(words: tuple[str, ...]) -> None:
    found = re.search(r"Example: precad (.*)", COMMANDS[words].help, re.DOTALL)
    if found:
        given = shlex.split(found[1])
        assert tuple(given[: len(words)]) == words
        COMMANDS[words].make_context("precad", given[len(words) :])


def test_an_option_means_the_same_in_every_command() -> None:
    """Of the options that commands share, only files, ports, records, and ``precad reproduce``'s lists, differ."""
    said = defaultdict(set)
    for words, command in COMMANDS.items():
        for option in command.params if words != ("reproduce",) else ():
            if option.param_type_name == "option":
                said[option.opts[0]].add(option.help)
    assert {name for name, sentences in said.items() if len(sentences) > 1} == {
        "--config",
        "--out",
        "--port",
        "--records",
    }


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from precad.cli.app import app; app(['train', '--help'], standalone_mode=False); "
        "assert not {'numpy', 'numba', 'scipy', 'torch', 'cryptography', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
