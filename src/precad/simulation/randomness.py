"""Where a run's randomness comes from: 32 bytes, of the operating system or of a seed.

Every random choice of a run is derived from them by H, so that a run that was cut off repeats its last rounds to the
bit when it is resumed: no round is ever played with two noises.
"""

from dataclasses import dataclass

import numpy as np

from precad.mpc.prg import Context, Digest, Purpose, Stream, digest
from precad.mpc.secret import Redacted, Secret
from precad.protocol.round import ServerSecrets
from precad.protocol.submission import ClientSecrets
from precad.settings import NOT_PRIVATE

PRIVATE = "private: from the operating system"


@dataclass(frozen=True, repr=False)
class Randomness(Redacted):
    """All of a run's random choices."""

    root: Secret
    seed: int | None
    """The seed that ``root`` was made of; anyone who knows it can take the noise away."""

    @classmethod
    def private(cls) -> "Randomness":
        """From the operating system's generator."""
        return cls(Secret.fresh(), None)

    @classmethod
    def repeatable(cls, seed: int) -> "Randomness":
        """From a seed: two runs are equal to the bit, and nothing about them is secret."""
        if type(seed) is not int or not 0 <= seed < 1 << 64:
            raise ValueError(f"seed must be a whole number in [0, 2^64), got {seed}")
        return cls(Secret(digest(b"precad seed", seed.to_bytes(8, "little"))), seed)

    @property
    def said(self) -> str:
        """Whether the noise is private, for every output."""
        return PRIVATE if self.seed is None else NOT_PRIVATE

    def generator(self, what: str) -> np.random.Generator:
        """For choices that need not be secret: the split of a data set, the first weights."""
        return np.random.default_rng(np.frombuffer(self._derive(what, 0, "run"), np.uint64))

    def torch_seed(self, what: str, round_: int = 0) -> int:
        """For torch's own generator."""
        return int.from_bytes(self._derive(what, round_, "torch")[:7], "little")

    def stream(self, purpose: Purpose, context: Context) -> Stream:
        """For samples and noise."""
        return Stream(Secret(self._derive("stream", context.round, context.party)), purpose, context)

    def client(self, round_: int, name: str, attempt: int = 0) -> ClientSecrets:
        """A submission's seeds and salts."""
        parts = ("seed A", "seed B", "salt A", "salt B")
        return ClientSecrets(*(Secret(self._derive(f"{what} {attempt}", round_, name)) for what in parts))

    def server(self, round_: int, name: str) -> ServerSecrets:
        """A server's randomness for one round."""
        return ServerSecrets(*(Secret(self._derive(what, round_, name)) for what in ("nonce", "noise", "deal")))

    def _derive(self, what: str, round_: int, party: str) -> Digest:
        return digest(b"precad run", self.root.value, what.encode(), round_.to_bytes(8, "little"), party.encode())
