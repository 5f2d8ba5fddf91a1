"""Values that may be used once: a nonce, a dealer's correlation."""

from typing import Generic, TypeVar

from precad.errors import ProtocolError

T = TypeVar("T")


class Once(Generic[T]):
    """Holds a value that :meth:`take` gives out a single time; it does not print."""

    def __init__(self, name: str, value: T) -> None:
        self._name = name
        self._held: list[T] = [value]

    def take(self) -> T:
        """The value; a second call is a ``ProtocolError``."""
        try:
            return self._held.pop()  # one interpreter step: two threads cannot both have it
        except IndexError:
            raise ProtocolError(f"{self._name} was used before, and is never used twice") from None

    def __repr__(self) -> str:
        return f"Once({self._name}, {'unused' if self._held else 'used'})"
