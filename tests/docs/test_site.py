"""The site builds without a warning, and its pages fetch nothing from elsewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("zensical")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


def test_every_page_is_there(site: Path) -> None:
    made = {path.stem for path in site.glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= made


def test_the_api_has_its_docstrings(site: Path) -> None:
    text = (site / "api.html").read_text()
    assert "over simulated clients and two servers" in text
    assert "the bound on the norm of one record" in text


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text()
        assert not re.findall(r"<(?:script|img|iframe|source)[^>]+src=[\"']?(?:https?:)?//", text), page
        assert not re.findall(r"<link(?![^>]*canonical)[^>]+href=[\"']?(?:https?:)?//", text), page


def test_links_of_the_pages_stay_on_the_site(site: Path) -> None:
    """A link to a file of the repository that is not a page would be dead here."""
    for page in set(site.glob("*.html")) - {site / "404.html"}:
        for target in re.findall(r"<a[^>]+href=\"([^\"#?]+)", page.read_text()):
            assert target.startswith(("http:", "https:", "mailto:")) or (page.parent / target).exists(), (page, target)
