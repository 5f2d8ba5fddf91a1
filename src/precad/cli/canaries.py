"""``precad canaries``: plays the runs, and shows what they say."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from precad.cli.output import answer, new_console, new_table
from precad.errors import PrecadError
from precad.report.formatting import counted
from precad.settings import RunConfig, from_table
from precad.simulation import presets
from precad.tables import merged, read_toml

if TYPE_CHECKING:
    from precad.lab.canaries.audit import Audit
    from precad.lab.canaries.findings import Finding

_SECONDS, _ROUNDS = 60.0, 100


@dataclass(frozen=True)
class Order:
    """What the person asked for."""

    config: str
    seconds: float | None
    trials: int | None
    false_alarm: float
    clients: int | None
    rounds: int | None
    ideal: bool
    seed: int | None
    out: Path
    data: Path | None
    run_code: bool
    device: str

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"--time must be above 0, got {self.seconds}")
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"--trials must be at least 1, got {self.trials}")
        if not 0 < self.false_alarm < 0.5:
            raise ValueError(f"--false-alarm must be in (0, 0.5), got {self.false_alarm}")

    def settings(self) -> RunConfig:
        """The run of the configuration, without its malicious clients."""
        path = Path(self.config)
        if path.exists() or path.suffix == ".toml":
            table = read_toml(path / "config.toml" if path.is_dir() else path)
            task = table.get("task")
            if task is None:
                raise PrecadError(f"{path} is of a run from Python: its model and data are not in the file")
            named = task.get("dataset") if isinstance(task, Mapping) else None
            if isinstance(named, str) and ":" in named and not self.run_code:
                raise PrecadError(f"{path} names code, {named!r}: if you trust it, give --run-code")
        else:
            dataset, _, preset = self.config.partition("/")
            try:
                table = dict(presets.preset(dataset, preset or "recommended"))
            except ValueError as error:
                raise PrecadError(f"there is no run and no file {self.config!r}, and no such preset: {error}") from None
        over: dict[str, Any] = {"task": {}, "training": {}, "malicious": {"clients": 0}}
        if self.clients is not None:
            over["task"]["clients"] = self.clients
        if self.rounds is not None:
            over["training"]["rounds"] = self.rounds
        return from_table(merged(table, over))


def perform(order: Order, as_json: bool) -> int:
    """Play, judge, show; returns the exit code: 0 for a pass, 1 for a claim that is refuted, 130 after Ctrl-C."""
    from precad.lab.canaries import picture, problem
    from precad.lab.canaries.audit import Audit
    from precad.simulation.randomness import Randomness

    settings, console = order.settings(), new_console(stderr=True)
    randomness = Randomness.private() if order.seed is None else Randomness.repeatable(order.seed)
    if problem.needs_stand_in(settings.task, order.data):
        console.print(f"noise stands in for the images of {settings.task.dataset}: give --data to use them")
    task = problem.build(settings.task, order.data, randomness)
    audit = Audit(task, settings.training, seed=order.seed, ideal=order.ideal, device=order.device)
    stopped = _play(audit, order, settings, console)
    if not audit.runs:
        console.print("stopped before the end of the first run: nothing was tested")
        return 130
    with console.status("judging"):
        measured = audit.measured()
        findings = audit.findings(order.false_alarm)
        title = f"{order.config}: {counted(audit.runs, 'run')}, false alarms at most {order.false_alarm:g}"
        picture.draw(measured, findings, title, order.false_alarm / len(measured), order.out)
    caught = any(finding.caught for finding in findings)
    answer(as_json, _value(audit, order, findings), _table(title, findings), "\n".join(_notes(audit, order, findings)))
    return 1 if caught else 130 if stopped else 0


def _play(audit: "Audit", order: Order, settings: RunConfig, console: Console) -> bool:
    """Whole runs, until time or trials are reached; whether the person stopped it before."""
    rounds = min(settings.training.rounds, order.rounds or _ROUNDS)
    limit = order.seconds or (_SECONDS if order.trials is None else None)
    begun, canaries, longest = time.monotonic(), len(audit.canaries), 0.0

    def left() -> float:
        return float("inf") if limit is None else limit - (time.monotonic() - begun)

    with _progress(console, limit or float(order.trials or 1)) as move:

        def go_on() -> bool:
            move(time.monotonic() - begun if limit is not None else float(audit.runs * canaries))
            return left() > 0

        try:
            while (order.trials is None or audit.runs * canaries < order.trials) and left() > longest:
                start = time.monotonic()
                audit.play(rounds, go_on)
                longest = max(longest, time.monotonic() - start)
        except KeyboardInterrupt:
            return True
    return False


@contextmanager
def _progress(console: Console, total: float) -> Iterator[Any]:
    columns = (TextColumn("runs with canaries"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)


def _table(title: str, findings: "list[Finding]") -> Table:
    """One line for each adversary and test, in 80 columns."""
    table = new_table(title, "adversary", "test", "trials", "false", "true", "claim", "ε ≥", "of ε", "verdict")
    table.box, table.padding = SIMPLE_HEAD, (0, 1, 0, 0)
    for column in table.columns:
        column.no_wrap = True
    named = ""
    for each in findings:
        table.add_row(
            each.adversary if each.adversary != named else "",
            each.test,
            f"{each.trials:,}",
            f"{each.false_positives:.3f}",
            f"{each.true_positives:.3f}",
            f"{each.claimed:.3f}",
            f"{each.epsilon_shown:.2f}",
            f"{each.epsilon_claimed:.2f}" if math.isfinite(each.epsilon_claimed) else "none",
            Text("CAUGHT", "bold red") if each.caught else "passed" if each.trials else "untested",
        )
        named = each.adversary
    return table


def _notes(audit: "Audit", order: Order, findings: "list[Finding]") -> Iterator[str]:
    yield "false, true: rates of false and true positives at the most telling threshold; claim: the most true ones."
    how = "without shares and proofs" if order.ideal else "with the whole protocol"
    yield f"{len(audit.canaries)} canaries in {counted(audit.runs, 'run')}, {how}. A drawn one moved the sum by"
    yield f"{audit.strength:.3f} of the sensitivity, on average. The picture is in {order.out}."
    if (noise := _would_catch(findings)) is not None:
        yield f"As many trials would have caught noise of {noise:g} of what is claimed, or less."
    caught = [finding for finding in findings if finding.caught]
    if caught:
        worst = min(caught, key=lambda finding: finding.p_value)
        yield f"CAUGHT: {worst.adversary} ({worst.test}) guesses better than the claim allows; by chance, with"
        yield f"probability {worst.p_value:.2g} at most. The program is less private than it says."
    else:
        yield "Nothing was caught. That proves no privacy: these guesses alone are no better than the claim allows."


def _would_catch(findings: "list[Finding]") -> float | None:
    """Against every adversary, by its best test."""
    best: dict[str, float] = {}
    for finding in findings:
        if finding.would_catch is not None:
            best[finding.adversary] = max(best.get(finding.adversary, 0.0), finding.would_catch)
    return min(best.values(), default=None)


def _value(audit: "Audit", order: Order, findings: "list[Finding]") -> dict[str, Any]:
    return {
        "config": order.config,
        "caught": any(finding.caught for finding in findings),
        "false_alarm": order.false_alarm,
        "seed": order.seed,
        "ideal": order.ideal,
        "runs": audit.runs,
        "canaries": len(audit.canaries),
        "strength": audit.strength,
        "would_catch": _would_catch(findings),
        "findings": [asdict(each) for each in findings],
    }
