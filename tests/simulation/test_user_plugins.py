from pathlib import Path

import pytest

from precad.simulation.user_code import load_plugin
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
