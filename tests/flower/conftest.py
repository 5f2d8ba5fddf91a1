"""Without the extra ``flower`` nothing here is collected; without torch, nothing by record."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("flwr") else ["*.py"]
if not find_spec("torch"):
    collect_ignore_glob += ["test_bad_records.py", "test_records.py", "test_reply_time.py", "test_silence.py"]


@pytest.fixture(autouse=True)
def _inside_a_server_app(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages can be made where Flower runs an app; here is no Flower, so its own identity stands in."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
