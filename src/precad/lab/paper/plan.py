"""Which runs the paper's figures are made of (Paper: Evaluation, and Appendix: Experimental Details).

Every run is a configuration as ``precad train`` takes it. A figure asks for its runs by their configurations, so that
figures share runs, and a run that was made once is never made again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Literal

from precad.mpc.prg import digest
from precad.privacy.accounting import GdpAccountant, paper_clients_epsilon
from precad.privacy.terms import Adversary, Terms
from precad.settings import RunConfig, from_table, to_toml
from precad.simulation import presets
from precad.simulation.user_code import plugin_source
from precad.tables import Table, merged

Dataset = Literal["mnist", "cifar10"]
DATASETS: tuple[Dataset, ...] = ("mnist", "cifar10")

UNCLIPPED = 150.0
"""C where the paper disables client-level clipping: beyond what 75 records of norm R = 2 add up to, of 30 expected."""
BOUND = 30.0
"""C of Figure 4."""
CLIENT_RATE, RECORD_RATE, DELTA = 0.1, 0.05, 1e-5
PAPER_ROUNDS = 5000
EPOCH = 200
"""Rounds: 200·p·q = 1."""
FORMAT = 1
"""Of a run's row: another one is another run."""


@dataclass(frozen=True)
class Experiment:
    """One run of the grid: its configuration, and whether its time counts."""

    config: RunConfig
    timed: bool = False
    """By the whole protocol, with no other run beside it; else without cryptography, to the same bits."""

    @cached_property
    def key(self) -> str:
        """What the run's row is found by: its configuration, and the text of a person's own modules in it."""
        names = {"attack": self.config.malicious.attack, "defence": self.config.training.defence or ""}
        own = (plugin_source(what, name) for what, name in names.items() if ":" in name)
        text = f"{FORMAT} {self.timed}\n{to_toml(self.config)}"
        return digest(b"precad run key", text.encode(), *own).hex()[:16]


def terms(sigma: float) -> Terms:
    """What a participation costs in the paper's setting, with its model for MNIST."""
    return Terms(sigma=sigma, record_rate=RECORD_RATE, delta=DELTA, dim=26_010)


def participations(rounds: int) -> int:
    """q·T, the expectation, which the paper counts with."""
    return max(1, round(CLIENT_RATE * rounds))


def paper_epsilon(adversary: Adversary, sigma: float, rounds: int) -> float:
    """ε as the paper accounts it, by the central limit theorem; :func:`precad.privacy.epsilon.epsilon` is rigorous."""
    if adversary is Adversary.SERVER:
        return GdpAccountant().epsilon(terms(sigma).mechanism(adversary, participations(rounds)), DELTA)
    rates = {"record_rate": RECORD_RATE, "client_rate": CLIENT_RATE}
    return paper_clients_epsilon(sigma=sigma, **rates, rounds=rounds, delta=DELTA)


def unique(runs: Iterable[Experiment]) -> list[Experiment]:
    """Each run once: figures and claims share them."""
    return list({run.key: run for run in runs}.values())


@dataclass(frozen=True)
class Method:
    """A curve of a figure."""

    protocol: Literal["plain", "ldp", "precad"]
    sigma: float = 1.0

    @property
    def label(self) -> str:
        """The name of the curve in a legend."""
        if self.protocol == "plain":
            return "non-private"
        return f"{self.protocol.upper()}, σ = {self.sigma:g}"


@dataclass(frozen=True)
class Scale:
    """How much of the grid is run. The paper's text names some of its values of n, K and C; the others are ours."""

    quick: bool
    seeds: tuple[int, ...]
    rounds: Mapping[Dataset, int]
    evaluate_every: Mapping[Dataset, int]
    timed_rounds: int
    sigmas: tuple[float, ...]
    clients: tuple[int, ...]
    """n of Figure 3."""
    attackers: Mapping[Dataset, tuple[int, ...]]
    """K of Figure 4."""
    bound_attackers: Mapping[Dataset, tuple[int, ...]]
    """K of Figure 5."""
    bounds: tuple[float, ...]
    """C of Figure 5."""
    datasets: tuple[Dataset, ...] = DATASETS

    @property
    def methods(self) -> tuple[Method, ...]:
        """The curves of Figures 3 and 4."""
        noisy = (Method(protocol, sigma) for protocol in ("ldp", "precad") for sigma in self.sigmas)
        return (Method("plain"), *noisy)


FULL = Scale(
    quick=False,
    seeds=(1, 2, 3),
    rounds=dict.fromkeys(DATASETS, PAPER_ROUNDS),
    evaluate_every={"mnist": 200, "cifar10": 200},
    timed_rounds=52,
    sigmas=(1.0, 1.5, 2.0),
    clients=(100, 200, 400),
    attackers={"mnist": (0, 2, 4, 5, 10), "cifar10": (0, 1, 2, 3, 5)},
    bound_attackers={"mnist": (5, 10), "cifar10": (1, 3)},
    bounds=(10.0, 20.0, 30.0, 50.0),
)
QUICK = Scale(
    quick=True,
    seeds=(1,),
    rounds={"mnist": 200, "cifar10": 40},
    evaluate_every={"mnist": 50, "cifar10": 40},
    timed_rounds=7,
    sigmas=(1.0, 2.0),
    clients=(100, 200),
    attackers={"mnist": (0, 4, 10), "cifar10": (0, 1, 3)},
    bound_attackers={"mnist": (10,), "cifar10": (3,)},
    bounds=(20.0, 30.0),
)


def with_rounds(scale: Scale, rounds: Mapping[Dataset, int]) -> Scale:
    """The same grid with runs of another length on some data sets."""
    every = {dataset: min(scale.evaluate_every[dataset], max(1, rounds[dataset] // 5)) for dataset in rounds}
    return replace(scale, rounds={**scale.rounds, **rounds}, evaluate_every={**scale.evaluate_every, **every})


def read_rounds(texts: Sequence[str]) -> dict[Dataset, int]:
    """Lengths as a person gives them: T for all data sets, or DATASET=T for one."""
    found = dict[Dataset, int]()
    for text in texts:
        name, equals, number = text.rpartition("=")
        if equals and name not in DATASETS:
            raise ValueError(f"rounds of {name!r}: the data set must be one of {', '.join(DATASETS)}")
        if not number.strip().isdecimal() or int(number) < 1:
            raise ValueError(f"rounds must be a number of at least 1, got {number!r}")
        found |= {dataset: int(number) for dataset in DATASETS if not equals or dataset == name}
    return found


def clean(scale: Scale, dataset: Dataset, method: Method, clients: int, seed: int) -> Experiment:
    """A run without attackers, client-level clipping and validation: Figures 2 and 3, left."""
    return Experiment(_config(scale, dataset, method, seed, clients, _unclipped(method, scale.rounds[dataset]), {}))


def time_runs(scale: Scale, dataset: Dataset, clients: int) -> list[Experiment]:
    """The runs of Figure 3, right: few rounds of the same by the whole protocol.

    They are non-private, LDP, PRECAD without validation (as in the paper's comparison), and PRECAD with it.
    """
    cases = (Method("plain"), "none"), (Method("ldp"), "none"), (Method("precad"), "none"), (Method("precad"), "proof")
    runs = []
    for method, validation in cases:
        training = _unclipped(method, scale.timed_rounds) | {"validation": validation}
        runs.append(Experiment(_config(scale, dataset, method, 1, clients, training, {}), timed=True))
    return runs


def attacked(
    scale: Scale, dataset: Dataset, method: Method, attackers: int, seed: int, bound: float = BOUND
) -> Experiment:
    """K clients plant the data set's backdoor; they keep within C where someone checks it: Figures 4 and 5."""
    checked = method.protocol != "plain"
    training = {"rounds": scale.rounds[dataset], "client_bound": bound if checked else BOUND}
    if method.protocol == "ldp":
        training["clip_after_noise"] = True
    malicious = {"clients": attackers, "attack": "backdoor", "within_bound": checked}
    return Experiment(_config(scale, dataset, method, seed, 100, training, malicious))


def figure_2(scale: Scale) -> list[Experiment]:
    """The runs that show PRECAD's accuracy by epoch, on MNIST."""
    if "mnist" not in scale.datasets:
        return []
    return [clean(scale, "mnist", Method("precad", sigma), 100, seed) for seed in scale.seeds for sigma in scale.sigmas]


def figure_3(scale: Scale) -> list[Experiment]:
    """The runs that show accuracy and time by n."""
    cells = product(scale.seeds, scale.datasets, scale.clients, scale.methods)
    runs = [clean(scale, dataset, method, clients, seed) for seed, dataset, clients, method in cells]
    return runs + [run for dataset in scale.datasets for n in scale.clients for run in time_runs(scale, dataset, n)]


def figure_4(scale: Scale) -> list[Experiment]:
    """The runs that show main and backdoor accuracy by K."""
    return [
        attacked(scale, dataset, method, attackers, seed)
        for seed, dataset in product(scale.seeds, scale.datasets)
        for attackers, method in product(scale.attackers[dataset], scale.methods)
    ]


def figure_5(scale: Scale) -> list[Experiment]:
    """The runs that show main and backdoor accuracy by C."""
    return [
        attacked(scale, dataset, Method("precad", sigma), attackers, seed, bound)
        for seed, dataset in product(scale.seeds, scale.datasets)
        for attackers, sigma, bound in product(scale.bound_attackers[dataset], scale.sigmas, scale.bounds)
    ]


def _unclipped(method: Method, rounds: int) -> dict[str, object]:
    if method.protocol == "plain":
        return {"rounds": rounds, "client_bound": BOUND}
    return {"rounds": rounds, "client_bound": UNCLIPPED, "validation": "none"}


def _config(
    scale: Scale, dataset: Dataset, method: Method, seed: int, clients: int, training: Table, malicious: Table
) -> RunConfig:
    """The paper's preset with the paper's normalisation, and these values."""
    noise = {"protocol": method.protocol, "noise_multiplier": method.sigma, "normalise": "realised"}
    changes = {
        "task": {"clients": clients},
        "training": {**noise, **training},
        "malicious": malicious,
        "seed": seed,
        "evaluate_every": scale.evaluate_every[dataset],
    }
    return from_table(merged(presets.preset(dataset, "paper"), changes))
