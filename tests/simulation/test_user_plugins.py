from pathlib import Path

import pytest

from precad.simulation.user_code import load_plugin
from tests.simulation.tiny import config, trainer


def test_a_function_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_attacks.py").write_text("def still(context):\n    return 0 * context.update\nnumber = 3\n")
    monkeypatch.chdir(tmp_path)
    run = trainer(config(malicious={"clients": 1, "attack": "my_attacks:still"}))
    assert run.play().rejected == {}
    with pytest.raises(ValueError, match="the attack 'my_attacks:number' must be a function, got int"):
        load_plugin("attack", "my_attacks:number")
    with pytest.raises(ValueError, match="the attack 'my_attacks:other' cannot be loaded"):
        load_plugin("attack", "my_attacks:other")


@pytest.mark.parametrize("name", ["no_such_module:f", ":f"])
def test_what_is_not_there_is_one_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=f"the task '{name}' cannot be loaded"):
        load_plugin("task", name)
