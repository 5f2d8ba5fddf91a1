"""Where a run's randomness comes from: 32 bytes, of the operating system or of a seed.

Every random choice of a run is derived from them by H, so that a run that was cut off repeats its last rounds to the
bit when it is resumed: no round is ever played with two noises, and no noise ever hides two sums.
"""

import random  # noqa: TID251 - to be bound, for those who draw from it
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from precad.mpc.prg import Context, Digest, Purpose, Stream, digest, vector_digest
from precad.mpc.secret import Redacted, Secret
from precad.protocol.round import ServerSecrets, nonces_of
from precad.protocol.states import Role
from precad.protocol.submission import ClientSecrets
from precad.settings import NOT_PRIVATE, PRIVATE


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

    @property
    def name(self) -> str:
        """A digest that tells which randomness it is, and nothing about it."""
        return self._derive("name", 0, "run").hex()

    def generator(self, what: str) -> np.random.Generator:
        """For choices that need not be secret: the split of a data set, the first weights."""
        return np.random.default_rng(np.frombuffer(self._derive(what, 0, "run"), np.uint64))

    def torch_seed(self, what: str) -> int:
        """For torch's own generator."""
        return _torch_seed(self._derive(what, 0, "torch"))

    def bind_generators(self, what: str, round_: int, party: str) -> None:
        """Seed Python's, numpy's and torch's own generators, from which data sets, models and attacks draw.

        Augmentation and dropout are then as secret as the noise, and the same in a round that is played again. Only
        inside :func:`kept_generators`.
        """
        seed = self._derive(what, round_, party)
        (torch.manual_seed if _on_devices() else torch.default_generator.manual_seed)(_torch_seed(seed))
        random.seed(seed)
        np.random.seed(np.frombuffer(seed, np.uint32))  # noqa: NPY002, TID251

    def fingerprint(self, round_: int) -> "Fingerprint":
        """Of the updates of a round."""
        return Fingerprint(self._derive("fingerprint", round_, "run"))

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

    def nonces(self, round_: int) -> Digest:
        """What binds a round to the nonces of both servers."""
        return nonces_of(*(self.server(round_, role.value) for role in Role))

    def _derive(self, what: str, round_: int, party: str) -> Digest:
        return digest(b"precad run", self.root.value, what.encode(), round_.to_bytes(8, "little"), party.encode())


class Fingerprint(Redacted):
    """A digest of updates in the clear. Who does not know the run's root cannot test a guess with it."""

    def __init__(self, key: Digest) -> None:
        self._state = key

    def add(self, client: str, update: NDArray[np.int64]) -> None:
        """Take in what a client sends."""
        self._state = digest(b"precad update", self._state, client.encode(), vector_digest(update.view(np.uint64)))

    def __str__(self) -> str:
        return self._state.hex()


@contextmanager
def kept_generators() -> Iterator[None]:
    """Whatever is drawn or seeded in between, Python's, numpy's and torch's own generators are the caller's again."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002


@cache
def _on_devices() -> bool:
    """Whether torch has generators elsewhere too; to look for them takes as long as a hundred seeds."""
    return any(module.is_available() for module in (torch.cuda, torch.backends.mps, torch.xpu))


def _torch_seed(digested: Digest) -> int:
    return int.from_bytes(digested[:7], "little")
