"""What a person chooses for a run, as ``config.toml`` holds it: the paper's symbols, checked at birth."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Literal, get_type_hints

from precad import tables
from precad.mpc.fixed_point import check_positive
from precad.mpc.prg import Digest, digest
from precad.privacy.epsilon import epsilon, most_participations
from precad.privacy.terms import Adversary, Terms
from precad.protocol.params import MIN_NOISE_STD, Normalise, Params, Unit, Validation
from precad.protocol.update import Optimiser, Schedule, normaliser
from precad.tables import Table, build, choose, to_table

PRIVATE = "private: from the operating system"
NOT_PRIVATE = "repeatable by its seed: for research; the noise of this run is not private"


class Protocol(Enum):
    """How the clients' updates become the noisy sum (paper, Table 1)."""

    PRECAD = "precad"
    """Shares for two servers, validation, noise σ·R' by each."""
    PLAIN = "plain"
    """No clipping, no noise: not private, not robust."""
    CDP = "cdp"
    """Central: one trusted server sees every update and adds noise σ·R' once."""
    LDP = "ldp"
    """Local: each client adds noise σ·R' to what it sends in the clear."""
    DDP = "ddp"
    """Distributed: each client adds σ·R'/√τ; a sum has the noise σ·R' if τ of its clients are honest."""


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """The numbers of a run. A choice may be given as its value in a file, as ``protocol="ldp"``.

    Raises:
        ValueError: A number is impossible; the message names it, the value and the bound.

    Example:
        >>> params = Hyperparameters(
        ...     rounds=40, client_rate=1, record_rate=0.5, record_bound=1, client_bound=20, noise_multiplier=8,
        ...     learning_rate=1, delta=1e-4,
        ... )
        >>> round(params.epsilon(Adversary.SERVER, participations=40, dim=62), 3)
        1.323
    """

    rounds: int
    """T, the number of rounds."""
    client_rate: float
    """q, the probability that a client is selected in a round."""
    record_rate: float
    """p, the probability that one of its records is in its sample."""
    record_bound: float
    """R, the bound on the norm of one record's gradient."""
    client_bound: float
    """C, the bound on the norm of a client's update."""
    noise_multiplier: float
    """σ: each server's noise has standard deviation σ times the sensitivity."""
    learning_rate: float
    """η, in the first round."""
    final_learning_rate: float | None = None
    """η in the last round; it falls along a line. Constant if not given."""
    optimiser: Optimiser = Optimiser.SGD
    protocol: Protocol = Protocol.PRECAD
    validation: Validation = Validation.PROOF
    noise: Adversary = Adversary.SERVER
    unit: Unit = Unit.RECORD
    normalise: Normalise = Normalise.CONSTANT
    defence: str | None = None
    """Of ``plain``: a rule of ``lab/defences.py``, or ``module:function``, in place of the mean."""
    assumed_malicious: float = 0.2
    """The part of a round's clients that a defence takes for malicious."""
    clip_after_noise: bool = False
    """Of ``ldp``: submissions are cut to C with their noise, and not before (paper, Robustness against Backdoors)."""
    honest_clients: int | None = None
    """τ of ``ddp``: q·n, rounded, if not given."""
    delta: float = 1e-5
    """δ, far below one over the number of records."""
    budget: float | None = None
    """The most ε against a server that a client spends: it sits out the rounds that would pass it."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            if isinstance(kind, type) and issubclass(kind, Enum):
                object.__setattr__(self, name, choose(kind, getattr(self, name), name))
        if type(self.rounds) is not int or self.rounds < 1:
            raise ValueError(f"rounds T must be a whole number of at least 1, got {self.rounds}")
        for name in ("client_rate", "record_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in (0, 1], got {getattr(self, name)}")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must be in (0, 1), far below one over the number of records; got {self.delta}")
        positive = ("record_bound", "client_bound", "noise_multiplier")
        for name in (*positive, *(["budget"] if self.budget is not None else [])):
            check_positive(name, getattr(self, name))
        self.schedule  # noqa: B018 - it refuses what it cannot follow
        if self.honest_clients is not None and self.honest_clients < 1:
            raise ValueError(f"honest_clients τ must be at least 1, got {self.honest_clients}")
        if self.defence is not None and self.protocol is not Protocol.PLAIN:
            raise ValueError(f"a defence must see the updates: it needs protocol plain, got {self.protocol.value}")
        if not 0 <= self.assumed_malicious < 0.5:
            raise ValueError(f"assumed_malicious must be in [0, 0.5), got {self.assumed_malicious}")
        if self.clip_after_noise and (self.protocol is not Protocol.LDP or self.unit is not Unit.RECORD):
            raise ValueError("clip_after_noise needs protocol ldp and the record as the unit")

    def params(self, dim: int, clients: int) -> Params:
        """The protocol's parameters, for a model of ``dim`` parameters."""
        params = Params(
            dim=dim,
            clients=clients,
            record_bound=self.record_bound,
            client_bound=self.client_bound,
            noise_multiplier=self.noise_multiplier,
            validation=self.validation,
            noise=self.noise,
            unit=self.unit,
        )
        if self.protocol is Protocol.DDP:
            share = math.ldexp(self.noise_multiplier * params.sensitivity, params.fractional_bits)
            share /= math.sqrt(self.tau(clients))
            if share < MIN_NOISE_STD:
                raise ValueError(
                    f"with honest_clients τ = {self.tau(clients)}, each client's noise is {share:.3g} grid units: it "
                    f"must be at least {MIN_NOISE_STD}; use a larger noise_multiplier"
                )
        return params

    def tau(self, clients: int) -> int:
        """τ of ``ddp``: how many honest clients in a round it counts on, of ``clients`` in all."""
        return self.honest_clients or max(1, round(self.client_rate * clients))

    @cached_property
    def schedule(self) -> Schedule:
        """How the noisy sums move the model: the servers of a task follow the same value."""
        return Schedule(
            learning_rate=self.learning_rate,
            final_learning_rate=self.final_learning_rate,
            optimiser=self.optimiser,
        )

    def normaliser(self, records: Mapping[str, int], valid: Collection[str]) -> float:
        """N for these valid clients, of all clients with their numbers of records."""
        return normaliser(
            self.normalise,
            self.unit,
            client_rate=self.client_rate,
            record_rate=self.record_rate,
            records=records,
            valid=valid,
        )

    def terms(self, dim: int) -> Terms:
        """What a participation costs, whoever adds the noise (paper, Table 1)."""
        precad = self.params(dim, clients=1).terms(self.record_rate, self.delta)
        if self.protocol is Protocol.PRECAD:
            return precad
        unknown_to_server = int(self.protocol in (Protocol.LDP, Protocol.DDP))
        unknown_to_clients = int(self.protocol is not Protocol.PLAIN)
        return replace(
            precad,
            sigma=self.noise_multiplier,
            unknown_to_server=unknown_to_server,
            unknown_to_clients=unknown_to_clients,
        )

    def shared_terms(self, dim: int, clients: int, noises: int) -> Terms:
        """The same in a round of ``ddp`` that has so many honest clients' noises, each 1/√τ of the whole."""
        share = self.noise_multiplier / math.sqrt(self.tau(clients))
        return replace(self.terms(dim), sigma=share, unknown_to_server=noises, unknown_to_clients=noises)

    def epsilon(self, adversary: Adversary, participations: int, dim: int) -> float:
        """What taking part costs a record, or a client, in ε (PROTOCOL §7a).

        Of ``ddp`` it supposes τ honest noises in every round. Rounds of fewer cost more: a run's own figure counts
        those that it had.

        Args:
            adversary: Against whom.
            participations: The number of rounds in which the client takes part.
            dim: d, the number of the model's parameters.

        Returns:
            A proven bound at this run's δ; infinite where nothing protects against this adversary.
        """
        return epsilon(self.terms(dim), adversary, participations)

    def most_participations(self, dim: int, clients: int = 1) -> int:
        """How many rounds a client may take part in before its budget is spent: T if it has none.

        Of ``ddp``, with so many clients in all, even if no noise but its own is in any of them.
        """
        if self.budget is None:
            return self.rounds
        ddp = self.protocol is Protocol.DDP
        terms = self.shared_terms(dim, clients, noises=1) if ddp else self.terms(dim)
        paid = most_participations(terms, self.budget, self.rounds)
        if paid == 0:
            once = epsilon(terms, Adversary.SERVER, 1)
            raise ValueError(f"a budget of ε = {self.budget} does not pay for one round, which costs {once:.4g}")
        return paid


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """What is learnt: a data set that precad knows, or a function of the user's."""

    dataset: str = "digits"
    """digits, mnist, fashion or cifar10; or ``module:function``, which gets these values and returns a ``Problem``."""
    model: Literal["auto", "linear", "frequencies"] = "auto"
    """The paper's network for the data set, a linear model, or one without bias on the lowest frequencies."""
    frequencies: int = 8
    """Of the model of that name: it sees frequencies² − 1 numbers of an image."""
    activation: Literal["relu", "tanh"] = "relu"
    clients: int = 100
    """n."""
    split: Literal["shards", "dirichlet", "iid"] = "shards"
    shards_per_client: int = 4
    records_per_client: int = 500
    """How many records a client draws in the Dirichlet split."""
    alpha: float = 0.5
    """The Dirichlet split's concentration."""

    def __post_init__(self) -> None:
        for name in ("clients", "shards_per_client", "records_per_client", "frequencies"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        check_positive("alpha", self.alpha)


@dataclass(frozen=True, kw_only=True)
class MaliciousConfig:
    """Who cheats, and how."""

    clients: int = 0
    """K: the last K clients."""
    attack: str = "boost"
    """boost, sign_flip, gaussian, alie, ipm, just_over, wrap_around, label_flip, backdoor, or ``module:function``."""
    boost: float = 10.0
    """How strong: the multiple of C (boost, gaussian), of the honest update (sign_flip) or of the honest mean (ipm)."""
    within_bound: bool = False
    """They cut what they send to exactly C, which no norm check sees."""

    def __post_init__(self) -> None:
        if self.clients < 0:
            raise ValueError(f"malicious clients must be at least 0, got {self.clients}")
        check_positive("boost", self.boost)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All that a run depends on but the data's place and the machine."""

    task: TaskConfig
    training: Hyperparameters
    malicious: MaliciousConfig = MaliciousConfig()
    seed: int | None = None
    """Makes the run repeatable, and its noise not private."""
    evaluate_every: int = 10
    """The number of rounds from one evaluation on the test set to the next; the last round is evaluated too."""

    @property
    def code(self) -> tuple[str, ...]:
        """Every ``module:function`` that a run with these settings loads, and so runs."""
        names = (self.task.dataset, self.malicious.attack, self.training.defence)
        return tuple(name for name in names if name is not None and ":" in name)

    def __post_init__(self) -> None:
        if self.evaluate_every < 1:
            raise ValueError(f"evaluate_every must be at least 1, got {self.evaluate_every}")
        if self.malicious.clients >= self.task.clients:
            raise ValueError(
                f"malicious clients must be fewer than all {self.task.clients}, got {self.malicious.clients}"
            )


def config_digest(text: str) -> str:
    """Of the text of ``config.toml``, in hexadecimal."""
    return digest(b"precad config", text.encode()).hex()


def task_digest(training: Hyperparameters, params: Params, records: Mapping[str, int]) -> Digest:
    """What the rounds of a run are bound to: its numbers, and how many records each client has."""
    sizes = (f"{name}={count}".encode() for name, count in records.items())
    said = repr(training).replace("<Adversary.", "<Noise.")  # its earlier name: old runs go on, seeds repeat
    return digest(b"precad task", params.digest, said.encode(), *sizes)


def from_table(table: Table) -> RunConfig:
    """The settings of a run, every one checked."""
    return build(RunConfig, table, "the configuration")


def to_toml(config: RunConfig) -> str:
    """The file from which :func:`from_table` makes the same settings."""
    return _with_warning(to_table(config), config.seed)


def training_toml(training: Hyperparameters, seed: int | None) -> str:
    """The file of a run whose model and data only a program knows."""
    return _with_warning({"seed": seed, "training": to_table(training)}, seed)


def _with_warning(table: Table, seed: int | None) -> str:
    text = tables.to_toml(table).lstrip()
    return text if seed is None else f"# {NOT_PRIVATE}\n{text}"
