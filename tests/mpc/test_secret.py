"""Secrets come from the operating system and do not print."""

import copy
from dataclasses import asdict, dataclass

import numpy as np
import pytest

from precad.mpc.secret import Redacted, Secret


@dataclass(frozen=True, repr=False)
class Holder(Redacted):
    secret: Secret
    vector: np.ndarray[tuple[int], np.dtype[np.uint64]]
    raw: bytes
    count: int


def test_nothing_of_a_secret_prints() -> None:
    secret = Secret(b"0123456789abcdef0123456789abcdef")
    holder = Holder(secret, np.array([123456789], np.uint64), b"raw-secret", 987654321)
    for text in (repr(secret), str(secret), f"{secret}", repr(holder), str([holder])):
        for leak in ("0123", "123456789", "raw-secret", "987654321"):
            assert leak not in text
    assert repr(holder) == "Holder(secret=Secret(<32 bytes>), vector=<uint64[1]>, raw=<10 bytes>, count=<int>)"


def test_a_secret_is_not_copied_into_other_forms() -> None:
    holder = Holder(Secret.fresh(), np.zeros(1, np.uint64), b"", 0)
    for convert in (lambda: asdict(holder), lambda: copy.copy(holder.secret), lambda: copy.deepcopy(holder)):
        with pytest.raises(TypeError, match="pickle"):
            convert()


def subclasses(cls: type[Redacted]) -> list[type[Redacted]]:
    return [found for child in cls.__subclasses__() for found in (child, *subclasses(child))]


def test_every_holder_of_secrets_is_redacted() -> None:
    """A dataclass that forgets ``repr=False`` would print its fields."""
    for found in subclasses(Redacted):
        assert vars(found).get("__repr__") is None, found


def test_fresh_secrets_differ_and_equality_is_by_value() -> None:
    secret = Secret.fresh()
    assert secret != Secret.fresh()
    assert secret == Secret(secret.value)
    assert secret != secret.value


@pytest.mark.parametrize("bad", [b"", bytes(16), bytes(31), bytes(33), "x" * 32, bytearray(32)])
def test_a_secret_has_32_bytes(bad: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Secret(bad)
