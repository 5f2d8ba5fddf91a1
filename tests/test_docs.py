"""What the documentation shows works as it is written."""

import re
import tomllib
from pathlib import Path

import pytest

from precad.learning.config import from_table

ROOT = Path(__file__).parent.parent


def blocks(path: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("README.md", "python")
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    assert "accuracy" in capsys.readouterr().out


def test_the_file_of_the_training_page_is_a_configuration() -> None:
    (text,) = blocks("docs/training.md", "toml")
    config = from_table(tomllib.loads(text))
    assert config.task.clients == 200
    assert config.training.budget == 3.0


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "docs" / page).read_text()):
        assert target.startswith("http") or (ROOT / "docs" / target).exists(), target
