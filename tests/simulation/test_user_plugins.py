import re
import sys
from pathlib import Path

import pytest

from precad.simulation.user_code import load_plugin, module_file
from tests.messages import says
from tests.simulation.tiny import config, trainer


def test_a_function_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_attacks.py").write_text("def still(context):\n    return 0 * context.update\nnumber = 3\n")
    monkeypatch.chdir(tmp_path)
    run = trainer(config(malicious={"clients": 1, "attack": "my_attacks:still"}))
    assert run.play().rejected == {}
    with pytest.raises(ValueError, match=says("attack", "'my_attacks:number'", "int")):
        load_plugin("attack", "my_attacks:number")
    with pytest.raises(ValueError, match=says("attack", "'my_attacks:other'")):
        load_plugin("attack", "my_attacks:other")


@pytest.mark.parametrize("name", ["no_such_module:f", ":f"])
def test_what_is_not_there_is_one_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=says("task", f"'{name}'")):
        load_plugin("task", name)


def test_a_file_of_the_working_folder_takes_the_place_of_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_loss.py").write_text("import colorsys\nplace = colorsys.__file__\ndef f(): return place\n")
    (tmp_path / "colorsys.py").write_text("raise SystemExit('the working folder runs')\n")
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("colorsys", None)
    assert Path(load_plugin("task", "my_loss:f")()) != tmp_path / "colorsys.py"
    with pytest.raises(ValueError, match=says("colorsys:f", tmp_path / "colorsys.py", "name")):
        load_plugin("task", "colorsys:f")
    assert sys.path[0] not in ("", str(tmp_path))


def test_the_log_says_what_is_run_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "my_mine.py").write_text("raise ValueError('it runs')\n")
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO", "precad")
    with pytest.raises(ValueError, match="it runs"):
        load_plugin("defence", "my_mine:f")
    assert re.search(says("defence", "'my_mine:f'", "code", tmp_path / "my_mine.py"), caplog.text)


def test_where_a_module_is_is_found_without_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("raise SystemExit('it runs')\n")
    monkeypatch.chdir(tmp_path)
    assert module_file("my_package.inner") == tmp_path / "my_package" / "__init__.py"
    assert module_file("sys") is None
