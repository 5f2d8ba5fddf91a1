"""A run's folder as frozen values: everything that its page shows comes from here. Nothing is written or locked."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precad.privacy.ledger_view import LedgerView, view
from precad.report.settings import ReportError, RunSettings, read_settings
from precad.tables import parse_json

FORMAT = 1
"""Of ``about.json``; runs from before it have none."""


@dataclass(frozen=True)
class RoundFigures:
    """One line of ``metrics.jsonl``."""

    round: int
    """Counted from 1."""
    selected: int
    rejected: Mapping[str, str]
    """Client → reason."""
    update_norm: float | None
    seconds: Mapping[str, float]
    accuracy: float | None
    loss: float | None
    epsilon_server: float | None
    epsilon_clients: float | None

    @property
    def evaluated(self) -> bool:
        """Whether figures were taken after this round. An ε that is None then does not exist."""
        figures = self.accuracy, self.loss, self.epsilon_server, self.epsilon_clients
        return any(value is not None for value in figures)


@dataclass(frozen=True)
class Summary:
    """``summary.json``, which makes a run finished."""

    accuracy: float | None
    loss: float | None
    backdoor_accuracy: float | None
    epsilon_server: float | None
    epsilon_clients: float | None
    participations: int
    plain_seconds: float | None
    """Of one round of plain training on the same machine, model and data; None if it was not measured."""


@dataclass(frozen=True)
class About:
    """``about.json``: what the run knew of itself when it began. Older runs did not write it."""

    version: str | None
    versions: tuple[tuple[str, str], ...]
    """Of Python, torch and the like."""
    parameters: int | None
    """d."""
    clients: tuple[str, ...] | None


@dataclass(frozen=True)
class Run:
    """All that a run's page rests on."""

    name: str
    settings: RunSettings
    rounds: tuple[RoundFigures, ...]
    summary: Summary | None
    about: About
    ledger: LedgerView | None
    config_digest: str | None
    simulated: bool = True
    """Whether one machine played all parties; else this is what one server of a task knows."""

    @property
    def done(self) -> int:
        """How many rounds were played."""
        return self.rounds[-1].round if self.rounds else 0

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.summary is not None

    @property
    def evaluated(self) -> tuple[RoundFigures, ...]:
        """The rounds after which the test set was looked at."""
        return tuple(line for line in self.rounds if line.evaluated)


@dataclass(frozen=True)
class Source:
    """Where a run is."""

    folder: Path
    files: tuple[Path, ...]
    """Whatever changes when the run goes on is among them."""
    read: Callable[[], Run]
    """What they hold now, or an error of one sentence."""


def run_source(folder: Path) -> Source:
    """The run of a folder of ``precad train``."""
    files = tuple(folder / name for name in ("config.toml", "about.json", "metrics.jsonl", "summary.json"))
    return Source(folder, files, lambda: read_run(folder))


def read_run(path: Path) -> Run:
    """The run in a folder, at this moment; a :class:`ReportError` that names the file and the fault."""
    if not (path / "config.toml").is_file():
        raise ReportError(f"there is no run in {path}: config.toml is missing")
    summary, about, machine = (_json(path / name) for name in ("summary.json", "about.json", "machine.json"))
    if about is not None and about.get("format") != FORMAT:
        made = about.get("version", "another version")
        raise ReportError(f"{path} was made by precad {made}, whose runs this version cannot read")
    ledger = view(path / "ledger.sqlite") if (path / "ledger.sqlite").is_file() else None
    try:
        return Run(
            name=path.resolve().name,
            settings=read_settings(path / "config.toml"),
            rounds=_rounds(path / "metrics.jsonl"),
            summary=None if summary is None else _summary(summary),
            about=_about(about, summary, ledger),
            ledger=ledger,
            config_digest=None if machine is None else machine.get("config"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(f"{path} is damaged: {type(error).__name__} {error}") from None


def _json(path: Path) -> dict[str, Any] | None:
    try:
        value = parse_json(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise ReportError(f"{path} is damaged: it must hold an object, got {type(value).__name__}")
    return value


def _rounds(path: Path) -> tuple[RoundFigures, ...]:
    """All whole lines; the last one may be being written."""
    try:
        text = path.read_text() if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path} cannot be read: {error}") from None
    rounds = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            rounds.append(_round(parse_json(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReportError(f"{path} is damaged in line {number}: {type(error).__name__} {error}") from None
        if rounds[-1].round != number:
            raise ReportError(f"{path} is damaged: line {number} is of round {rounds[-1].round}")
    return tuple(rounds)


def _round(line: dict[str, Any]) -> RoundFigures:
    return RoundFigures(
        round=int(line["round"]),
        selected=int(line["selected"]),
        rejected={str(name): str(reason) for name, reason in line["rejected"].items()},
        update_norm=_finite(line.get("update_norm")),
        seconds={str(stage): float(value) for stage, value in line["seconds"].items()},
        accuracy=_finite(line.get("test_accuracy")),
        loss=_finite(line.get("test_loss")),
        epsilon_server=_finite(line.get("epsilon_server")),
        epsilon_clients=_finite(line.get("epsilon_clients")),
    )


def _summary(value: dict[str, Any]) -> Summary:
    return Summary(
        accuracy=_finite(value["test_accuracy"]),
        loss=_finite(value["test_loss"]),
        backdoor_accuracy=_finite(value.get("backdoor_accuracy")),
        epsilon_server=_finite(value["epsilon_server"]),
        epsilon_clients=_finite(value["epsilon_clients"]),
        participations=int(value["participations"]),
        plain_seconds=_finite(value.get("plain_seconds")),
    )


def _about(about: dict[str, Any] | None, summary: dict[str, Any] | None, ledger: LedgerView | None) -> About:
    """From ``about.json``; of older runs, what the summary and the ledger know."""
    if about is not None:
        versions = tuple((str(name), str(value)) for name, value in about["versions"].items())
        names = tuple(str(name) for name in about["clients"])
        return About(str(about["version"]), versions, int(about["parameters"]), names)
    version = None if summary is None else str(summary["version"])
    parameters = int(summary["parameters"]) if summary is not None else ledger.terms.dim if ledger is not None else None
    return About(version, (), parameters, None)


def _finite(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)
