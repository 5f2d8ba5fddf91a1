"""Every command, path, name, link and anchor that the documentation mentions exists."""

import ast
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.main import get_command

import precad
from precad.cli.app import app
from tests.docs.pages import (
    PAGES,
    ROOT,
    anchors,
    blocks,
    inline_code,
    is_file,
    is_symbol,
    links,
    name,
    prose,
    shell_lines,
)

USERS_FILES = {"mytask.py", "mine.py", "mymodule.py"}
"""Files that a page tells its reader to write."""
each_page = pytest.mark.parametrize("page", PAGES, ids=name)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that some words name, and the words that are left for it."""
    command: Any = get_command(app)
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"precad has no command {rest[0]!r}: {words}"
        command = command.commands[rest.pop(0)]
    return command, rest


def check_options(words: list[str]) -> None:
    """Options exist, and their values have their type; one letter stands for a number, arguments may be left out."""
    command, rest = command_of(words)
    if not rest:
        return
    try:
        command.make_context("precad", ["1" if len(word) == 1 else word for word in rest])
    except Exception as error:
        if type(error).__name__ not in ("MissingParameter", "Exit"):  # of click, or of typer's own copy of it
            raise


@each_page
def test_commands_in_blocks_can_be_given_as_they_are(page: Path) -> None:
    for words in shell_lines(page):
        if words[0] == "precad":
            command, rest = command_of(words[1:])
            command.make_context("precad", rest)


@each_page
def test_commands_in_the_text_have_these_options(page: Path) -> None:
    for code in inline_code(page):
        if code.startswith("precad ") and "…" not in code:
            check_options(shlex.split(code)[1:])


def test_a_wrong_command_is_noticed() -> None:
    with pytest.raises(AssertionError, match="no command 'trian'"):
        check_options(["trian"])
    for wrong in (["train", "--sigmas", "1"], ["train", "--sigma", "much"], ["privacy", "--unit", "person"]):
        with pytest.raises(Exception, match=r"(?i)no such option|is not|valid number"):
            check_options(wrong)


@each_page
def test_targets_of_make_exist(page: Path) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    mentioned = [words[1:] for words in shell_lines(page) if words[0] == "make"]
    mentioned += [code.split()[1:] for code in inline_code(page) if code.startswith("make ")]
    for words in mentioned:
        assert set(words) <= set(targets)


@each_page
def test_files_exist(page: Path) -> None:
    words = [word for line in shell_lines(page) for word in line if word.endswith(".py")]
    words += [code for code in inline_code(page) if re.fullmatch(r"[\w./-]+\.py", code)]
    words += [code for code in inline_code(page) if re.match(r"(src|tests|docs|examples|scripts)/[\w./-]+$", code)]
    titles = [block.title for block in blocks(page) if block.title]
    for word in (*words, *titles):
        assert word in USERS_FILES or is_file(word.rstrip("/")), word


@each_page
def test_names_exist(page: Path) -> None:
    mentioned = [code for code in inline_code(page) if re.fullmatch(r"precad(\.\w+)+", code)]
    mentioned += re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("precad"):
                mentioned += [f"{node.module}.{alias.name}" for alias in node.names]
    public = {f"precad.{public}" for public in precad.__all__}
    for dotted in mentioned:
        assert dotted in public or is_symbol(dotted), dotted


def test_a_missing_name_is_noticed() -> None:
    assert is_symbol("precad.simulation.api.train")
    assert is_symbol("precad.simulation.problem.Problem.of_datasets")
    assert not is_symbol("precad.simulation.api.trian")
    assert not is_symbol("precad.no_such_module")
    assert not is_file("protocol/no_such_file.py")


@each_page
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    for link in links(page):
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


@each_page
def test_extras_exist(page: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for asked in re.findall(r"(?:precad|\.)\[([\w,]+)\]", page.read_text()):
        assert set(asked.split(",")) <= set(extras)


def test_every_page_is_on_the_site() -> None:
    config = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f"- {page.name}\n" in config, page.name


@pytest.mark.parametrize("picture", sorted((ROOT / "docs/images").glob("*.svg")), ids=lambda path: path.name)
def test_drawings_have_words_for_who_cannot_see_them(picture: Path) -> None:
    tree = ElementTree.parse(picture).getroot()  # noqa: S314 - our own file
    space = "{http://www.w3.org/2000/svg}"
    assert tree.findtext(f"{space}title")
    assert tree.findtext(f"{space}desc")
    assert "href" not in picture.read_text()


def test_the_versions_are_this_one() -> None:
    assert f"**precad** {precad.__version__}" in prose(ROOT / "README.md")
    assert f"\nversion: {precad.__version__}\n" in (ROOT / "CITATION.cff").read_text()
