"""What decides the price of a participation: noise, sampling, δ and the model's size (PROTOCOL §7, §7a).

:class:`Terms` say all that an accountant needs, apart from who looks and how often a client took part;
:func:`precad.privacy.epsilon.epsilon` turns the three into ε. No accountant is loaded here.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

SAMPLER_DISTANCE = 2.0**-74
"""η, :data:`precad.privacy.noise.DISTANCE`; not imported, since loading compiled code would double the start-up."""
MIN_SIGMA = 0.05
"""With less noise ε is in the hundreds after one round: there is nothing to account for."""
MAX_SIGMA = 1e9
MIN_RATE = 1e-18
"""With smaller rates, or more noise, floats underflow; nobody runs either."""
MAX_STEPS = 1 << 22
"""With more rounds the accountant would take minutes, and later for ever; nobody runs so many."""
MAX_SHIFT = 40.0
"""Runs that are this many standard deviations apart have ε above 700, which is given as infinity."""


class Adversary(Enum):
    """Who looks; and so also whom the noise is for, which is the setting ``noise`` of a run or a task.

    Both are one enum because a run chooses its noise by naming the adversary that shall see σ.
    """

    SERVER = "server"
    """One server and all other clients: it knows its own noise and when the client took part."""
    CLIENTS = "clients"
    """All other clients: they see the models, under the noise of both servers."""

    def noise_of_each(self, seen: float) -> float:
        """What each of two servers adds so that this adversary sees ``seen`` (paper, Table 1): that, or 1/√2 of it."""
        return seen if self is Adversary.SERVER else seen / math.sqrt(2)


@dataclass(frozen=True)
class Mechanism:
    """A Gaussian mechanism on a Poisson sample, repeated."""

    noise_multiplier: float
    """σ as this adversary sees it: standard deviation over sensitivity."""
    rate: float
    """The probability that the record (or client) is in a sample."""
    steps: int
    """How often the mechanism runs."""

    def __post_init__(self) -> None:
        if not MIN_SIGMA <= self.noise_multiplier <= MAX_SIGMA:
            raise ValueError(
                f"sigma must be a finite number of at least {MIN_SIGMA}, got {self.noise_multiplier}; "
                f"at most {MAX_SIGMA:g}"
            )
        if not MIN_RATE <= self.rate <= 1:
            raise ValueError(f"a sampling rate must be in (0, 1], got {self.rate}; at least {MIN_RATE:g}")
        if type(self.steps) is not int or self.steps < 0:
            raise ValueError(f"the number of rounds must be a whole number of at least 0, got {self.steps}")

    def hopeless(self, group: int = 1) -> bool:
        """Whether no accountant is asked, and no ε is given.

        K·rate·√T/σ is above :data:`MAX_SHIFT`, T above :data:`MAX_STEPS`, or σ/K too small at rate 1.
        """
        too_far = group * self.shift > MAX_SHIFT or self.steps > MAX_STEPS
        return too_far or (self.rate == 1 and self.noise_multiplier / group < MIN_SIGMA)

    @property
    def shift(self) -> float:
        """rate·√T/σ: about how many standard deviations the runs with and without the record are apart."""
        return self.rate * math.sqrt(self.steps) / self.noise_multiplier

    @property
    def parts(self) -> "tuple[Mechanism, ...]":
        """Itself: the only part that it has, seen as a :class:`Composition`."""
        return (self,)


@dataclass(frozen=True)
class Composition:
    """Several mechanisms on the same data; :meth:`of` makes it the same value in whatever order they are given."""

    parts: tuple[Mechanism, ...]

    @classmethod
    def of(cls, mechanisms: Iterable[Mechanism]) -> "Composition":
        """Mechanisms of one σ and one rate are one mechanism, which runs as often as all of them."""
        steps = Counter[tuple[float, float]]()
        for mechanism in mechanisms:
            steps[mechanism.noise_multiplier, mechanism.rate] += mechanism.steps
        return cls(tuple(Mechanism(*law, count) for law, count in sorted(steps.items()) if count))

    @property
    def steps(self) -> int:
        """How often anything runs."""
        return sum(part.steps for part in self.parts)

    def hopeless(self, group: int = 1) -> bool:
        """Whether no accountant need be asked, for a part or for all of them together."""
        together = math.hypot(*(part.shift for part in self.parts))
        return group * together > MAX_SHIFT or any(part.hopeless(group) for part in self.parts)


Mechanisms = Mechanism | Composition
"""What an accountant takes."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The same for all rounds of a task: a change is a new task. A number out of range is a ``ValueError``."""

    sigma: float
    """The standard deviation of each noise over the sensitivity: what one server adds. 0 where there is none."""
    record_rate: float
    """p, the probability that a record is in its client's sample; 1 where all of a client is protected."""
    delta: float
    dim: int
    """d, the number of the model's parameters, and of the numbers that each noise draws."""
    unknown_to_server: int = 1
    """Of the noises in what it sees, those that a corrupted server does not know (paper, Table 1)."""
    unknown_to_clients: int = 2
    group: int = 1
    """K, how many records or clients are protected together."""
    client_rate: float = 1.0
    """q; it counts only with ``hidden_rounds``."""
    hidden_rounds: int | None = None
    """T where a client is protected and the others cannot see when it took part; None where they can."""

    def __post_init__(self) -> None:
        numbers = (self.sigma, self.record_rate, self.delta)
        if not all(isinstance(number, int | float) for number in numbers) or type(self.dim) is not int:
            raise ValueError(f"the terms of a participation are numbers, got {self}")
        if not 0 <= self.sigma < math.inf:
            raise ValueError(f"sigma must be a finite number of at least 0, got {self.sigma}")
        if not 0 < self.record_rate <= 1:
            raise ValueError(f"record_rate must be in (0, 1], got {self.record_rate}")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must be in (0, 1), got {self.delta}")
        if self.dim < 1:
            raise ValueError(f"dim must be at least 1, got {self.dim}")

    def sigma_seen(self, adversary: Adversary) -> float:
        """σ as an adversary sees it; 0 if nothing protects against it. Independent noises add up in variance."""
        return math.sqrt(self._unknown(adversary)) * self.sigma

    def mechanism(self, adversary: Adversary, participations: int) -> Mechanism:
        """What an adversary sees of one record or client (PROTOCOL §7a): rate p, T_i rounds.

        The sampling of clients never amplifies a record. It counts for a client whose participation is hidden, and
        only against the other clients: rate q, all T rounds.
        """
        seen = self.sigma_seen(adversary)
        if adversary is Adversary.CLIENTS and self.hidden_rounds is not None:
            return Mechanism(seen, self.client_rate, self.hidden_rounds)
        return Mechanism(seen, self.record_rate, participations)

    def sampler_delta(self, adversary: Adversary, steps: int, epsilon: float) -> float:
        """(1 + e^ε)·T·draws·η: what the noise sampler's distance η from its law adds to δ (PROTOCOL §6).

        The draws of a round whose law protects are d for each noise that the adversary does not know. A server sees
        besides how long a client computes: as if for a sample of fixed size, except with probability η in a round
        (:func:`precad.privacy.sampling.most_drawn`).
        """
        draws = self._unknown(adversary) * self.dim
        if adversary is Adversary.SERVER and self.record_rate < 1:
            draws += 1
        return (1 + math.exp(min(700.0, epsilon))) * steps * draws * SAMPLER_DISTANCE

    def _unknown(self, adversary: Adversary) -> int:
        return self.unknown_to_server if adversary is Adversary.SERVER else self.unknown_to_clients


@dataclass(frozen=True)
class Spent:
    """What a record or client took part in under the same terms, in one run or in several."""

    terms: Terms
    participations: int
