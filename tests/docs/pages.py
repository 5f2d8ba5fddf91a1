"""What the documentation says, taken apart: code blocks, inline code, commands, links; and the names in the source."""

import ast
import re
import shlex
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "examples/flower-mnist/README.md",
        *(ROOT / "docs").glob("*.md"),
    ]
)

_FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SHELL = ("sh", "")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    title: str | None
    text: str


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    for kind, info, text in _FENCE.findall(page.read_text()):
        title = re.search(r'title="([^"]+)"', info)
        found.append(Block(kind, title and title[1], text))
    return [block for block in found if language is None or block.language == language]


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", page.read_text())


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def shell_lines(page: Path) -> list[list[str]]:
    """The commands of a page's blocks, each as its words."""
    lines = []
    for block in blocks(page):
        if block.language in _SHELL:
            text = block.text.replace("\\\n", " ")
            lines += [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]
    return lines


def links(page: Path) -> list[str]:
    """The targets of a page's links and pictures that are not on the web."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [target for target in targets if not target.startswith(("http:", "https:"))]


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings have both on the site and where GitHub shows the file."""
    headings = [line.lstrip("#").strip() for line in prose(page).splitlines() if line.startswith("#")]
    site = {_ascii_slug(heading) for heading in headings}
    return site & {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _ascii_slug(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


@lru_cache
def repository_files() -> frozenset[str]:
    """Every file, from the root; what is built or downloaded is left out."""
    folders = ("src", "tests", "docs", "examples", "scripts")
    inside = (path for folder in folders for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts)
    return frozenset(str(path.relative_to(ROOT)) for path in (*inside, *ROOT.glob("*")))


def is_file(path: str) -> bool:
    """Whether a path, from the root or shortened from the left, is one of the repository's."""
    return any(file == path or file.endswith(f"/{path}") for file in repository_files())


def defines(file: Path, dotted: str) -> bool:
    """Whether ``file`` defines a name, or Class.name, at its top; nothing is imported."""
    scope: ast.AST = ast.parse(file.read_text())
    for part in dotted.split("."):
        found = [node for names, node in _defined(scope) if part in names]
        if not found:
            return False
        scope = found[0]
    return True


def is_symbol(dotted: str) -> bool:
    """Whether ``precad.a.b.Name`` exists: as a module, or as a name in one."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        folder = ROOT / "src" / Path(*parts[:cut])
        rest = ".".join(parts[cut:])
        for file in (folder.with_suffix(".py"), folder / "__init__.py"):
            if file.is_file():
                return not rest or defines(file, rest)
    return False


def _defined(scope: ast.AST) -> Iterator[tuple[set[str], ast.AST]]:
    for node in getattr(scope, "body", []):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                yield {node.name}, node
            case ast.Assign():
                yield {target.id for target in node.targets if isinstance(target, ast.Name)}, node
            case ast.AnnAssign(target=ast.Name(id=identifier)):
                yield {identifier}, node
            case ast.Import() | ast.ImportFrom():
                yield {alias.asname or alias.name for alias in node.names}, node
            case ast.If():
                yield from _defined(node)
            case _:
                pass
