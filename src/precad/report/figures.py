"""What follows from a run's figures: noise against signal, the certificate in words, bytes. Pure functions of a run."""

import math
from dataclasses import dataclass
from statistics import median

from precad.protocol.explain import explain
from precad.protocol.params import Validation
from precad.report.run import Run

TELLING = 1.6
"""K·q·√T/σ̃ below which the certificate tends to mean something (PROTOCOL §7a)."""


def clients_of(run: Run) -> int | None:
    """n."""
    return run.settings.clients if run.about.clients is None else len(run.about.clients)


def noise_norms(run: Run) -> list[float] | None:
    """√E‖noise‖² in the opened sum of each round; None where it is not known.

    It is √d times its standard deviation in an entry: √2·σ·R' with two servers, σ·R' with one, √k·σ·R' if each of k
    clients adds its own, √(k/τ)·σ·R' if they share it. Malicious clients may add less.
    """
    settings, d, n = run.settings, run.about.parameters, clients_of(run)
    if d is None or n is None or settings.clip_after_noise:
        return None
    if settings.protocol == "plain":
        return [0.0] * len(run.rounds)
    params = settings.params(d, n)
    if settings.protocol == "precad":
        whole = math.ldexp(math.sqrt(2 * d) * params.noise_std, -params.fractional_bits)
        return [whole] * len(run.rounds)
    once = math.sqrt(d) * settings.noise_multiplier * params.sensitivity
    if settings.protocol == "cdp":
        return [once] * len(run.rounds)
    tau = settings.honest_clients or max(1, round(settings.client_rate * n)) if settings.protocol == "ddp" else 1
    return [once * math.sqrt(line.selected / tau) for line in run.rounds]


@dataclass(frozen=True)
class Signal:
    """What is left of the opened sums when the expected noise is taken away, in quadrature, over all rounds."""

    norm: float
    """√ of the mean of ‖opened‖²."""
    noise: float
    """√ of the mean of E‖noise‖²."""
    signal: float | None
    """√(norm² − noise²); None if the difference is within three deviations of chance."""


def signal(run: Run) -> Signal | None:
    """The mean signal; None where the noise is not known, or nothing was opened."""
    noise = noise_norms(run)
    if noise is None or not run.rounds or any(line.update_norm is None for line in run.rounds):
        return None
    squares = [(line.update_norm or 0.0) ** 2 for line in run.rounds]
    opened, expected = sum(squares) / len(squares), sum(value**2 for value in noise) / len(noise)
    d = run.about.parameters or 1
    chance = 3 * expected * math.sqrt(2 / d / len(squares))  # ‖N(0, s²·I)‖² has mean d·s² and deviation √(2d)·s²
    left = opened - expected
    return Signal(math.sqrt(opened), math.sqrt(expected), math.sqrt(left) if left > chance else None)


@dataclass(frozen=True)
class Certificate:
    """What is certified of a run, in words; ``applies`` is False where nothing is."""

    applies: bool
    headline: str
    reasons: tuple[str, ...]
    command: str | None
    """Prints the same, and more."""


def certificate(run: Run) -> Certificate:
    """PROTOCOL §8 for one malicious client on top of this run's, with its test error for the clean one."""
    refused = _refused(run)
    if refused is not None:
        return Certificate(False, "There is no robustness certificate for this run.", (refused,), None)
    from precad.privacy.certificate import Threat, rigorous

    settings, d, n = run.settings, run.about.parameters, clients_of(run)
    if d is None or n is None:
        return Certificate(False, "The certificate cannot be computed.", (_UNKNOWN,), None)
    params = settings.params(d, n)
    noise = math.ldexp(math.sqrt(2) * params.noise_std, -params.fractional_bits) / settings.client_bound
    error = _clean_error(run)
    if error is None:
        return Certificate(False, "The certificate needs a test error, and this run has none.", (), None)
    threat = Threat(malicious=1, rounds=settings.rounds, client_rate=settings.client_rate, noise=noise)
    bounds = rigorous(threat, error)
    command = _command(run, noise, error, n)
    thumb = settings.client_rate * math.sqrt(settings.rounds) / noise
    if bounds.vacuous:
        headline = (
            "The certificate says nothing here: even for one malicious client the bound on the error is 100\u00a0%."
        )
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


_UNKNOWN = "The number of the model's parameters or of the clients is not recorded: the run is older."


def _refused(run: Run) -> str | None:
    settings = run.settings
    if settings.protocol != "precad":
        return f"It is a property of precad's rounds; this run's protocol is {settings.protocol}."
    if settings.validation is Validation.NONE:
        return "Nothing is validated: one malicious client can set the sum to anything."
    if settings.normalise == "realised":
        return "The sum is divided by a number that attackers change (normalise = realised)."
    return None


def _clean_error(run: Run) -> float | None:
    accuracies = [line.accuracy for line in run.rounds if line.accuracy is not None]
    return None if not accuracies else min(1.0, max(0.0, 1 - accuracies[-1]))


def _command(run: Run, noise: float, error: float, n: int) -> str:
    settings = run.settings
    sigma = noise * settings.client_bound / (math.sqrt(2) * settings.record_bound)
    return (
        f"precad certify --malicious 1 --clients {n} --rounds {settings.rounds} --client-rate {settings.client_rate:g} "
        f"--sigma {sigma:.6g} --record-bound {settings.record_bound:g} --client-bound {settings.client_bound:g} "
        f"--clean-loss {error:.4g}"
    )


@dataclass(frozen=True)
class Stage:
    """Seconds of one stage."""

    name: str
    total: float
    usual: float
    """The median over the rounds: the first compiles."""


def stages(run: Run) -> tuple[Stage, ...]:
    """Where the time of the rounds went."""
    names = list(dict.fromkeys(stage for line in run.rounds for stage in line.seconds))
    columns = {name: [line.seconds.get(name, 0.0) for line in run.rounds] for name in names}
    return tuple(Stage(name, sum(values), median(values)) for name, values in columns.items())


def usual_round(run: Run) -> float | None:
    """Seconds of the median round; None where no times are recorded."""
    return (
        median(sum(line.seconds.values()) for line in run.rounds) if any(line.seconds for line in run.rounds) else None
    )


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


def traffic(run: Run) -> tuple[Traffic, ...]:
    """Of PRECAD's messages, by the formulas of ``precad protocol``, at most; empty for the other protocols."""
    d, n = run.about.parameters, clients_of(run)
    if run.settings.protocol != "precad" or d is None or n is None:
        return ()
    line = {item.key: int(item.value) for item in explain(run.settings.params(d, n)) if item.key.startswith("bytes_")}
    submissions, rounds = sum(item.selected for item in run.rounds), len(run.rounds)
    between = line.get("bytes_check", line.get("bytes_gates", 0)) * 2
    once = 2 * (line["bytes_close"] + 2 * line["bytes_nonce"] + line["bytes_noisy_share"])
    a, b = line["bytes_header"] + line["bytes_part_a"], line["bytes_header"] + line["bytes_part_b"]
    return (
        Traffic("client → server A", a, "a submission", submissions),
        Traffic("client → server B", b, "a submission", submissions),
        Traffic("A ↔ B, validation", between, "a submission", submissions),
        Traffic("A ↔ B, close and open", once, "a round", rounds),
        *((Traffic("dealer → B", line["bytes_deal"], "a submission", submissions),) if "bytes_deal" in line else ()),
    )


def plain_bytes(run: Run) -> int | None:
    """Of one update in plain training: float32 entries, nothing else."""
    return None if run.about.parameters is None else 4 * run.about.parameters
