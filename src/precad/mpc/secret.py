"""Secret bytes: where they come from, and why they do not print."""

import dataclasses
import hmac
import secrets
from typing import NoReturn

import numpy as np

SECRET_BYTES = 32


class Redacted:
    """A dataclass base whose ``repr`` shows names and shapes, never values: tracebacks and logs stay clean."""

    def __repr__(self) -> str:
        fields = (f"{f.name}={_shape(getattr(self, f.name))}" for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(fields)})"


class Secret:
    """32 secret bytes: the seed of a stream, or the salt of a commitment. It does not print or pickle."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        if not isinstance(value, bytes) or len(value) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes, got {_shape(value)}")
        self.value = value

    @classmethod
    def fresh(cls) -> "Secret":
        """New bytes from the operating system's generator."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Secret(<{SECRET_BYTES} bytes>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled or copied")


def _shape(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.dtype}{list(value.shape)}>"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, Redacted | Secret):
        return repr(value)
    return f"<{type(value).__name__}>"
