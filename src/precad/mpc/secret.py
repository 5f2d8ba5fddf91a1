"""Secret bytes: where they come from, and why they do not print."""

import dataclasses
import hmac
import secrets

import numpy as np

SECRET_BYTES = 32


class Redacted:
    """A dataclass base whose ``repr`` shows names and shapes, never values: tracebacks and logs stay clean."""

    def __repr__(self) -> str:
        fields = (f"{f.name}={_shape(getattr(self, f.name))}" for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(fields)})"


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Secret(Redacted):
    """32 secret bytes: the seed of a stream, or the salt of a commitment."""

    value: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.value, bytes) or len(self.value) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes, got {_shape(self.value)}")

    @classmethod
    def fresh(cls) -> "Secret":
        """New bytes from the operating system's generator."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self.value, other.value)

    def __hash__(self) -> int:
        return hash((Secret, self.value))


def _shape(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.dtype}{list(value.shape)}>"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, Redacted):
        return repr(value)
    return f"<{type(value).__name__}>"
