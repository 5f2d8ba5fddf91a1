"""The weights in a run's folder, read from archives that somebody else may have made."""

import io
import time
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from precad.report.run import ReportError
from precad.report.weights import holds, read_checkpoint
from precad.simulation.session import _alone
from tests.messages import says

WHOLE: dict[str, Any] = {
    "theta": np.arange(3.0),
    "first": np.zeros(0),
    "second": np.zeros(0),
    "steps": 2,
    "round": 2,
    "participations": np.array([1, 2]),
}


def save(model: nn.Module, path: Path) -> np.ndarray[Any, np.dtype[np.float64]]:
    torch.save({name: _alone(value) for name, value in model.state_dict().items()}, path)
    trained = [part.detach().double().reshape(-1).numpy() for part in model.parameters() if part.requires_grad]
    return np.concatenate(trained)


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    return model


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    return model


def channels_last() -> nn.Module:
    model = nn.Conv2d(3, 4, 3)
    model.weight.data = model.weight.data.contiguous(memory_format=torch.channels_last)
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(5, 3),
    "double": lambda: nn.Linear(5, 3).double(),
    "half": lambda: nn.Linear(5, 3).half(),
    "bfloat16": lambda: nn.Linear(50, 30).bfloat16(),
    "tied": tied,
    "frozen parts and buffers": frozen,
    "channels last": channels_last,
    "more than ten tensors": lambda: nn.LSTM(3, 4, num_layers=3),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_s_file_is_compared_with_the_parameters(kind: str, tmp_path: Path) -> None:
    theta = save(MODELS[kind](), tmp_path / "model.pt")
    assert holds(tmp_path / "model.pt", theta)
    for place in (0, theta.size // 2, theta.size - 1):
        other = theta.copy()
        other[place] += 0.5
        assert not holds(tmp_path / "model.pt", other)
    assert not holds(tmp_path / "model.pt", np.append(theta, 1.0))


def test_a_checkpoint_is_read_back(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", **WHOLE)
    read = read_checkpoint(tmp_path / "c.npz")
    assert (read.theta.tolist(), read.steps, read.round, read.participations.tolist()) == ([0, 1, 2], 2, 2, [1, 2])
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "none.npz")


def with_header(shape: str) -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(24)


def packed(path: Path) -> None:
    np.savez_compressed(path, **WHOLE)


def twice(path: Path) -> None:
    np.savez(path, **WHOLE)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("theta.npy", with_header("(3,)"))


def overlapping(path: Path) -> None:
    """Names for the same bytes: an archive of megabytes would be read as terabytes."""
    np.savez(path, **WHOLE)
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(50):
            again = copy(archive.infolist()[0])
            again.filename = f"{number}.npy"
            archive.filelist.append(again)
        archive._didModify = True  # type: ignore[attr-defined]


def header(shape: str, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in WHOLE.items():
            content = io.BytesIO()
            np.save(content, value)
            archive.writestr(f"{name}.npy", with_header(shape) if name == "theta" else content.getvalue())


DAMAGE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "garbage": (lambda path: path.write_bytes(b"PK\x03\x04garbage"), ()),
    "empty": (lambda path: path.write_bytes(b""), ()),
    "packed": (packed, ("theta.npy", "packed")),
    "a member twice": (twice, ("theta.npy", "2 times")),
    "members for the same bytes": (overlapping, ("longer",)),
    "8 TB": (lambda path: header("(1000000000000,)", path), ("1000000000000", "24 bytes")),
    "a negative length": (lambda path: header("(-3, -1)", path), ("-3",)),
    "two dimensions": (lambda path: header("(3, 1)", path), ("theta", "2 dimensions")),
    "objects": (lambda path: np.savez(path, **WHOLE | {"theta": np.array([{}])}), ("Object arrays",)),
    "a count that is none": (lambda path: np.savez(path, **WHOLE | {"round": 2.5}), ("count", "float64")),
    "a part is missing": (lambda path: np.savez(path, theta=np.zeros(3)), ("first.npy",)),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_one_sentence(what: str, tmp_path: Path) -> None:
    damage, words = DAMAGE[what]
    damage(tmp_path / "c.npz")
    with pytest.raises(ReportError, match=says("c.npz", "damaged", *words)) as raised:
        read_checkpoint(tmp_path / "c.npz")
    assert "\n" not in str(raised.value)


def test_a_model_s_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"garbage")
    with pytest.raises(ReportError, match=says("model.pt", "damaged")):
        holds(tmp_path / "model.pt", np.zeros(3))


@pytest.mark.parametrize(("members", "content"), [(20_000, b"1234"), (1_000, bytes(8))])
def test_a_model_s_file_of_many_tensors_comes_to_an_end(tmp_path: Path, members: int, content: bytes) -> None:
    """The second can be a θ of zeros in a number of ways that nobody can go through."""
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        for number in range(members):
            archive.writestr(f"model/data/{number}", content)
    begun = time.monotonic()
    with nullcontext() if any(content) else pytest.raises(ReportError, match="too many ways"):
        assert not holds(tmp_path / "model.pt", np.zeros(20_001))
    assert time.monotonic() - begun < 20
