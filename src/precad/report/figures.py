"""What follows from a run: the figures of its page that are derived from the files and not written in them.

:class:`Figures` derives each when it is asked for, and once.
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING

from precad.errors import Reason
from precad.protocol.params import Params
from precad.protocol.sizes import sizes
from precad.report.participation import Participation, participation
from precad.report.run import RoundFigures, Run
from precad.settings import Hyperparameters, Protocol

if TYPE_CHECKING:
    from precad.privacy.certificate import Bounds

TELLING = 1.6
"""K·q·√T/σ̃ below which the certificate tends to mean something (PROTOCOL §7a)."""


@dataclass(frozen=True)
class Signal:
    """What is left of the opened sums when the expected noise is taken away, in quadrature, over all rounds."""

    norm: float
    """√ of the mean of ‖opened‖²."""
    noise: float
    """√ of the mean of E‖noise‖²."""
    signal: float | None
    """√(norm² − noise²); None if the difference is within three deviations of chance."""


@dataclass(frozen=True)
class Certificate:
    """What is certified of a run, in words; ``applies`` is False where nothing is."""

    applies: bool
    headline: str
    reasons: tuple[str, ...]
    command: str | None
    """Prints the same, and more."""


@dataclass(frozen=True)
class Stage:
    """Seconds of one stage."""

    name: str
    total: float
    usual: float
    """The median over the rounds: the first compiles."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of one kind of message."""

    name: str
    each: int
    unit: str
    count: int
    """How many there were so far."""

    @property
    def whole(self) -> int:
        """In the whole run so far."""
        return self.each * self.count


@dataclass(frozen=True)
class Figures:
    """The derived figures of one run."""

    run: Run

    @property
    def last(self) -> RoundFigures | None:
        """The last round after which figures were taken."""
        return self.run.evaluated[-1] if self.run.evaluated else None

    @property
    def sent(self) -> int:
        """How many updates were sent in all rounds."""
        return sum(line.selected for line in self.run.rounds)

    @cached_property
    def rejections(self) -> Counter[str]:
        """How often each client was rejected; nobody is named where participants are hidden."""
        counts = Counter[str]()
        if not self.run.hidden:
            for line in self.run.rounds:
                counts.update(line.rejected.keys())
        return counts

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """Every reason for which an update was rejected, and what it means."""
        names = sorted({reason for line in self.run.rounds for reason in line.rejected.values()})
        return [(name, Reason[name.upper()].value) for name in names if name.upper() in Reason.__members__]

    @cached_property
    def noise_norms(self) -> list[float] | None:
        """√E‖noise‖² in the opened sum of each round; None where it is not known.

        It is √d times its standard deviation in an entry: √2·σ·R' with two servers, σ·R' with one, √k·σ·R' if each of k
        clients adds its own, √(k/τ)·σ·R' if they share it. Malicious clients add none; older runs counted them too.
        """
        settings, d, n = self.run.config.training, self.run.about.parameters, self.run.clients
        if d is None or n is None or settings.clip_after_noise:
            return None
        if settings.protocol is Protocol.PLAIN:
            return [0.0] * self.run.done
        params = settings.params(d, n)
        if settings.protocol is Protocol.PRECAD:
            whole = math.ldexp(math.sqrt(2 * d) * params.noise_std, -params.fractional_bits)
            return [whole] * self.run.done
        once = math.sqrt(d) * settings.noise_multiplier * params.sensitivity
        if settings.protocol is Protocol.CDP:
            return [once] * self.run.done
        tau = settings.tau(n) if settings.protocol is Protocol.DDP else 1
        noises = (line.selected if line.noises is None else line.noises for line in self.run.rounds)
        return [once * math.sqrt(number / tau) for number in noises]

    @cached_property
    def signal(self) -> Signal | None:
        """The mean signal; None where the noise is not known, or nothing was opened."""
        noise, rounds = self.noise_norms, self.run.rounds
        if noise is None or not rounds or any(line.update_norm is None for line in rounds):
            return None
        squares = [(line.update_norm or 0.0) ** 2 for line in rounds]
        opened, expected = sum(squares) / len(squares), sum(value**2 for value in noise) / len(noise)
        d = self.run.about.parameters or 1
        chance = 3 * expected * math.sqrt(2 / d / len(squares))  # ‖N(0, s²·I)‖² has mean d·s² and deviation √(2d)·s²
        left = opened - expected
        return Signal(math.sqrt(opened), math.sqrt(expected), math.sqrt(left) if left > chance else None)

    @cached_property
    def certificate(self) -> Certificate:
        """PROTOCOL §8 for one malicious client on top of this run's, with its test error for the clean one."""
        settings, d, n = self.run.config.training, self.run.about.parameters, self.run.clients
        from precad.privacy.certificate import Threat, check_applies, rigorous

        try:
            check_applies(
                normalise=settings.normalise.value,
                validation=settings.validation.value,
                protocol=settings.protocol.value,
            )
        except ValueError as refused:
            headline, why = "There is no robustness certificate for this run.", f"{refused}."
            return Certificate(False, headline, (why[0].upper() + why[1:],), None)
        if d is None or n is None:
            unknown = "The number of the model's parameters or of the clients is not recorded: the run is older."
            return Certificate(False, "The certificate cannot be computed.", (unknown,), None)
        accuracies = [line.test_accuracy for line in self.run.rounds if line.test_accuracy is not None]
        if not accuracies:
            return Certificate(False, "The certificate needs a test error, and this run has none.", (), None)
        error = min(1.0, max(0.0, 1 - accuracies[-1]))
        params = settings.params(d, n)
        threat = Threat(
            malicious=1, rounds=settings.rounds, client_rate=settings.client_rate, noise=params.noise_over_bound
        )
        return _in_words(settings, params, error, rigorous(threat, error))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Where the time of the rounds went, the longest first."""
        names = list(dict.fromkeys(stage for line in self.run.rounds for stage in line.seconds))
        columns = {name: [line.seconds.get(name, 0.0) for line in self.run.rounds] for name in names}
        found = (Stage(name, sum(values), median(values)) for name, values in columns.items())
        return tuple(sorted(found, key=lambda stage: -stage.total))

    @property
    def seconds(self) -> float:
        """Of all rounds."""
        return sum(stage.total for stage in self.stages)

    @cached_property
    def usual_round(self) -> float | None:
        """Seconds of the median round; None where no times are recorded."""
        rounds = self.run.rounds
        return median(sum(line.seconds.values()) for line in rounds) if any(line.seconds for line in rounds) else None

    @cached_property
    def traffic(self) -> tuple[Traffic, ...]:
        """Of PRECAD's messages, by the formulas of ``precad protocol``, at most; empty for the other protocols.

        The last is plain training, for comparison: float32 entries, nothing else.
        """
        settings, d, n = self.run.config.training, self.run.about.parameters, self.run.clients
        if settings.protocol is not Protocol.PRECAD or d is None or n is None:
            return ()
        size = sizes(settings.params(d, n))
        once = 2 * (size.close + size.nonce + size.tally + size.noisy_share)
        return (
            Traffic("client → server A", size.header + size.part_a, "a submission", self.sent),
            Traffic("client → server B", size.header + size.part_b, "a submission", self.sent),
            Traffic("A ↔ B, validation", 2 * size.validation, "a submission", self.sent),
            Traffic("A ↔ B, close and open", once, "a round", self.run.done),
            *((Traffic("dealer → B", size.deal, "a submission", self.sent),) if size.deal else ()),
            Traffic("plain training: client → server", 4 * d, "a submission", self.sent),
        )

    @cached_property
    def participation(self) -> Participation | None:
        """Who took part in the rounds that were played; None if that is not recorded, or must not be shown."""
        return participation(self.run)


def _in_words(settings: Hyperparameters, params: Params, error: float, bounds: "Bounds") -> Certificate:
    noise = params.noise_over_bound
    command = (
        f"precad certify --malicious 1 --clients {params.clients} --rounds {settings.rounds} "
        f"--client-rate {settings.client_rate!r} --sigma {params.noise_multiplier!r} --noise {params.noise.value} "
        f"--unit {params.unit.value} --record-bound {params.record_bound!r} --client-bound {params.client_bound!r} "
        f"--dim {params.dim} --clean-loss {error!r}"
    )
    if bounds.vacuous:
        headline = (
            "The certificate says nothing here: even for one malicious client the bound on the error is 100\u00a0%."
        )
        thumb = settings.client_rate * math.sqrt(settings.rounds) / noise
        reasons = (
            f"All noise in a sum is {noise:.3g} times C, the most that one client may move it, over "
            f"{settings.rounds:,} rounds at q = {settings.client_rate:g}: q·√T/σ̃ = {thumb:.3g}, and a bound needs "
            f"about {TELLING} or less.",
            "The command says how far C, T, q or the noise would have to change for it to say something; validation "
            "still bounds every single update by C.",
        )
        return Certificate(False, headline, reasons, command)
    headline = (
        f"With one malicious client more, whatever it sends, the expected error is at most "
        f"{100 * bounds.upper:.2f}\u00a0%, if it is {100 * error:.2f}\u00a0% without."
    )
    reasons = (
        "The expectation is over the randomness of training, for each record by itself: it is not a statement about "
        "the one model of this run.",
        f"{100 * error:.2f}\u00a0% is the error of this run on its test set, taken for the expected one.",
    )
    return Certificate(True, headline, reasons, command)
