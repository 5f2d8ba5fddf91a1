"""CONTRIBUTING.md lists every test with the marker ``long``, and no other."""

import ast
import re
from pathlib import Path

from tests.docs.pages import ROOT

MARK = "pytest.mark.long"


def marked(path: Path) -> set[str]:
    """The tests of a file that have the marker, or one of whose parameters has it."""
    tree = ast.parse(path.read_text())
    if any(
        isinstance(node, ast.Assign) and ast.unparse(node).startswith("pytestmark") and MARK in ast.unparse(node)
        for node in tree.body
    ):
        return {"all"}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {each.name for each in functions if any(MARK in ast.unparse(decorator) for decorator in each.decorator_list)}


def test_the_list_is_complete() -> None:
    found = {str(path.relative_to(ROOT)): marked(path) for path in (ROOT / "tests").rglob("test_*.py")}
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Tests\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(tests/\S+)` \| (.+?) \|", section, re.MULTILINE)
    listed = {file: {name.strip("` ") for name in names.split(",")} for file, names in rows}
    assert listed == {file: names for file, names in found.items() if names}
