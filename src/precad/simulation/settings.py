"""What a person chooses for a run, as ``config.toml`` holds it."""

from dataclasses import dataclass
from typing import Literal

from precad import tables
from precad.mpc.fixed_point import check_positive
from precad.simulation.hyperparameters import Hyperparameters
from precad.simulation.randomness import NOT_PRIVATE
from precad.tables import Table, build, to_table

Split = Literal["shards", "dirichlet", "iid"]
ModelName = Literal["auto", "linear", "frequencies"]


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """What is learnt: a data set that precad knows, or a function of the user's."""

    dataset: str = "digits"
    """digits, mnist, fashion or cifar10; or ``module:function``, which gets these values and returns a ``Problem``."""
    model: ModelName = "auto"
    """The paper's network for the data set, a linear model, or one without bias on the lowest frequencies."""
    frequencies: int = 8
    """Of the model of that name: it sees frequencies² − 1 numbers of an image."""
    activation: Literal["relu", "tanh"] = "relu"
    clients: int = 100
    """n."""
    split: Split = "shards"
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

    def __post_init__(self) -> None:
        if self.evaluate_every < 1:
            raise ValueError(f"evaluate_every must be at least 1, got {self.evaluate_every}")
        if self.malicious.clients >= self.task.clients:
            raise ValueError(
                f"malicious clients must be fewer than all {self.task.clients}, got {self.malicious.clients}"
            )


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
