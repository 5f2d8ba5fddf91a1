"""A run's folder as frozen values: everything that its page shows comes from here. Nothing is written or locked.

The files of a run are written from the same dataclasses, by :mod:`precad.simulation.session`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precad.errors import PrecadError
from precad.privacy.ledger import LedgerView, view
from precad.settings import RunConfig, from_table
from precad.tables import Table, build, parse_json, read_toml

FORMAT = 1
"""Of ``about.json``; runs from before it have none."""


class ReportError(PrecadError):
    """A folder that is no run, or is damaged, or was made by a version that writes otherwise."""


@dataclass(frozen=True, kw_only=True)
class RoundFigures:
    """One line of ``metrics.jsonl``, without the keys whose value is None."""

    round: int
    """Counted from 1."""
    selected: int
    rejected: Mapping[str, str]
    """Client → reason."""
    update_norm: float | None = None
    seconds: Mapping[str, float]
    private: bool | None = None
    """Whether nobody can take the noise away: not with a seed."""
    test_accuracy: float | None = None
    test_loss: float | None = None
    epsilon_server: float | None = None
    epsilon_clients: float | None = None

    @property
    def evaluated(self) -> bool:
        """Whether figures were taken after this round. An ε that is None then does not exist."""
        figures = self.test_accuracy, self.test_loss, self.epsilon_server, self.epsilon_clients
        return any(value is not None for value in figures)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """``summary.json``, which makes a run finished."""

    run: str
    version: str
    protocol: str
    validation: str
    rounds: int
    parameters: int
    clients: int
    test_accuracy: float | None
    test_loss: float | None
    backdoor_accuracy: float | None = None
    epsilon_server: float | None
    """None if nothing protects against it."""
    epsilon_clients: float | None
    delta: float
    participations: int
    """Of the client that took part most often."""
    rejected: Mapping[str, Mapping[str, int]]
    """Of every client that ever was: how often it was ``rejected``, and how many updates it had ``sent``."""
    seconds: Mapping[str, float]
    plain_seconds: float | None = None
    """Of one round of plain training on the same machine, model and data; None if it was not measured."""
    seed: int | None
    randomness: str


@dataclass(frozen=True, kw_only=True)
class About:
    """``about.json``: what the run knew of itself when it began. Older runs did not write it."""

    format: int = FORMAT
    version: str | None = None
    versions: Mapping[str, str]
    """Of Python, torch and the like."""
    parameters: int | None
    """d."""
    clients: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Run:
    """All that a run's page rests on."""

    name: str
    config: RunConfig
    entries: Mapping[str, Mapping[str, str]]
    """Every table of the configuration, as text."""
    clients: int | None
    """n, as far as it is known."""
    rounds: tuple[RoundFigures, ...]
    summary: Summary | None
    about: About
    ledger: LedgerView | None
    config_digest: str | None
    hidden: bool = False
    """Whether participants must not become known (PROTOCOL §7a)."""
    simulated: bool = True
    """Whether one machine played all parties; else this is what one server of a task knows."""

    @property
    def done(self) -> int:
        """How many rounds were played."""
        return self.rounds[-1].round if self.rounds else 0

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.summary is not None if self.simulated else self.done >= self.config.training.rounds

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
        table = read_toml(path / "config.toml")
        config = from_table({"task": {"dataset": ""}, **table})  # precad.train writes none: only its caller knows
    except ValueError as error:
        raise ReportError(f"{path / 'config.toml'} is not the configuration of a run: {error}") from None
    try:
        ended = None if summary is None else build(Summary, summary, "summary.json")
        begun = build(About, about, "about.json") if about is not None else _about(ended, ledger)
    except ValueError as error:
        raise ReportError(f"{path} is damaged: {error}") from None
    return Run(
        name=path.resolve().name,
        config=config,
        entries=as_text(table),
        clients=len(begun.clients) if begun.clients is not None else config.task.clients if "task" in table else None,
        rounds=read_rounds(path / "metrics.jsonl"),
        summary=ended,
        about=begun,
        ledger=ledger,
        config_digest=None if machine is None else machine.get("config"),
    )


def read_rounds(path: Path) -> tuple[RoundFigures, ...]:
    """All whole lines of ``metrics.jsonl``; the last one may be being written."""
    try:
        text = path.read_text() if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path} cannot be read: {error}") from None
    rounds = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            rounds.append(build(RoundFigures, parse_json(line), "the line"))
        except ValueError as error:
            raise ReportError(f"{path} is damaged in line {number}: {error}") from None
        if rounds[-1].round != number:
            raise ReportError(f"{path} is damaged: line {number} is of round {rounds[-1].round}")
    return tuple(rounds)


def as_text(table: Table) -> dict[str, dict[str, str]]:
    """The tables in a table, with their values as text; values outside of them are of the table ``run``."""
    tables: dict[str, dict[str, str]] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            tables[name] = {key: str(item) for key, item in value.items()}
        else:
            tables.setdefault("run", {})[name] = str(value)
    return tables


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


def _about(summary: Summary | None, ledger: LedgerView | None) -> About:
    """Of an older run: what its summary and its ledger know."""
    if summary is not None:
        return About(version=summary.version, versions={}, parameters=summary.parameters)
    return About(versions={}, parameters=None if ledger is None else ledger.terms.dim)
