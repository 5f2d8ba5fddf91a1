"""A run as it is written down: TOML in, frozen values out; an unknown key or a wrong type is refused by its name."""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from precad.mpc.fixed_point import check_positive
from precad.simulation.hyperparameters import Hyperparameters
from precad.simulation.randomness import NOT_PRIVATE

Split = Literal["shards", "dirichlet", "iid"]
ModelName = Literal["auto", "linear", "frequencies"]


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """What is learnt: a data set that precad knows, or a function of the user's."""

    dataset: str = "digits"
    """digits, mnist, fashion or cifar10; or ``module:function``, which gets these values and returns a ``Task``."""
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
    """How strong: so many times C (boost, gaussian), or the honest update (sign_flip) or mean (ipm)."""
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
    """The test set is looked at every so many rounds, and at the end."""

    def __post_init__(self) -> None:
        if self.evaluate_every < 1:
            raise ValueError(f"evaluate_every must be at least 1, got {self.evaluate_every}")
        if self.malicious.clients >= self.task.clients:
            raise ValueError(
                f"malicious clients must be fewer than all {self.task.clients}, got {self.malicious.clients}"
            )


Table = Mapping[str, Any]


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file, not yet checked."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file that can be read: {error}") from None


def from_table(table: Table) -> RunConfig:
    """A run's values, every one checked."""
    return _build(RunConfig, table, "the configuration")


def to_toml(config: RunConfig) -> str:
    """The file from which :func:`from_table` makes the same values."""
    top = {key: value for key, value in asdict(config).items() if not isinstance(value, dict)}
    tables = {key: value for key, value in asdict(config).items() if isinstance(value, dict)}
    lines = _lines(top) if config.seed is None else [f"# {NOT_PRIVATE}", *_lines(top)]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_lines(table)]
    return "\n".join(lines).lstrip() + "\n"


def training_toml(training: Hyperparameters, seed: int | None) -> str:
    """A run whose model and data are known to a program only."""
    said = [] if seed is None else [f"# {NOT_PRIVATE}", *_lines({"seed": seed})]
    return "\n".join([*said, "[training]", *_lines(asdict(training))]) + "\n"


def merged(base: Table, over: Table) -> dict[str, Any]:
    """Two tables as one; where both have a value, that of ``over``."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def _lines(table: Table) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in table.items() if value is not None]


def _toml(value: object) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)


_Built = TypeVar("_Built")


def _build(kind: type[_Built], table: Table, where: str) -> _Built:
    hints = get_type_hints(kind)
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    for key in table:
        if key not in names:
            raise ValueError(f"{where} has no key {key!r}; it may have {', '.join(names)}")
    required = [item.name for item in fields(kind) if item.default is MISSING]  # type: ignore[arg-type]
    missing = [name for name in required if name not in table]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    return kind(**{key: _convert(hints[key], value, key) for key, value in table.items()})


def _convert(kind: Any, value: Any, key: str) -> Any:
    """``value`` as ``kind``, or a ``ValueError`` that names the key, the value and what is allowed."""
    choices = get_args(kind)
    if isinstance(kind, UnionType):
        (kind,) = (choice for choice in choices if choice is not NoneType)
        return None if value is None else _convert(kind, value, key)
    if hasattr(kind, "__dataclass_fields__"):
        if not isinstance(value, Mapping):
            raise ValueError(f"{key} must be a table, got {value!r}")
        return _build(kind, value, f"[{key}]")
    if get_origin(kind) is Literal:
        allowed: list[Any] = list(choices)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        allowed = [member.value for member in kind]
        if value in allowed:
            return kind(value)
    else:
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is kind:
            return value
        names = {int: "a whole number", float: "a number", str: "text"}
        raise ValueError(f"{key} must be {names[kind]}, got {value!r}")
    if value not in allowed:
        raise ValueError(f"{key} must be one of {', '.join(map(str, allowed))}; got {value!r}")
    return value
