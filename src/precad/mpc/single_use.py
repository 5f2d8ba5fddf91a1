"""What may not happen twice: a value that is used once, and answers that may not vary."""

import secrets
from typing import Generic, NoReturn, TypeVar

from precad.errors import ProtocolError

T = TypeVar("T")


class SingleUse(Generic[T]):
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

    def __reduce__(self) -> NoReturn:
        raise TypeError("what may be used once is not copied or pickled")

    def __repr__(self) -> str:
        return f"SingleUse({self._name}, {'unused' if self._held else 'used'})"


class Pins:
    """What a server has answered to in a round. The first value of each kind stands; any other is refused.

    A step that is repeated with the same message gives the same answer; with another message it would give away what
    the protocol hides, so it gives nothing.
    """

    def __init__(self) -> None:
        self._pinned: dict[str, bytes] = {}

    def pin(self, what: str, value: bytes) -> None:
        """Fix ``what`` to this value, or find it fixed to the same; anything else is a ``ProtocolError``."""
        if self._pinned.setdefault(what, value) != value:
            raise ProtocolError(f"{what} was another before, and there is no second one in a round")

    def claim(self, what: str) -> None:
        """Do ``what`` for the first time; a second time is a ``ProtocolError``."""
        self.pin(what, secrets.token_bytes(16))

    def __reduce__(self) -> NoReturn:
        raise TypeError("what a server has answered to is not copied or pickled")
