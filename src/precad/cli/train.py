"""The commands of a person who trains on one machine: train, resume, and the page of a run."""

import os
import shlex
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from precad.cli import options
from precad.cli.output import answer, need, new_console, say
from precad.errors import PrecadError

if TYPE_CHECKING:
    from precad.report.run import Source
    from precad.settings import RunConfig
    from precad.simulation.randomness import Randomness
    from precad.simulation.run_folder import RunFolder
    from precad.simulation.trainer import Progress, Trainer


def train(
    config: Annotated[Path | None, typer.Argument(help="A TOML file with settings; options override it.")] = None,
    dataset: Annotated[str | None, options.DATASET] = None,
    preset: Annotated[str | None, options.PRESET] = None,
    protocol: Annotated[
        Literal["precad", "plain", "cdp", "ldp", "ddp"] | None,
        typer.Option(help="precad, or a baseline to compare with."),
    ] = None,
    clients: Annotated[int | None, options.CLIENTS] = None,
    rounds: Annotated[int | None, options.ROUNDS] = None,
    client_rate: Annotated[float | None, options.CLIENT_RATE] = None,
    record_rate: Annotated[float | None, options.RECORD_RATE] = None,
    noise_multiplier: Annotated[float | None, options.SIGMA] = None,
    budget: Annotated[float | None, options.BUDGET] = None,
    record_bound: Annotated[float | None, options.RECORD_BOUND] = None,
    client_bound: Annotated[float | None, options.CLIENT_BOUND] = None,
    validation: Annotated[options.ValidationName | None, options.VALIDATION] = None,
    learning_rate: Annotated[float | None, options.LEARNING_RATE] = None,
    final_learning_rate: Annotated[float | None, options.FINAL_LEARNING_RATE] = None,
    optimiser: Annotated[options.OptimiserName | None, options.OPTIMISER] = None,
    malicious: Annotated[int | None, options.MALICIOUS] = None,
    attack: Annotated[str | None, options.ATTACK] = None,
    defence: Annotated[str | None, options.DEFENCE] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Evaluate on the test set every this many rounds.")] = None,
    seed: Annotated[int | None, options.SEED] = None,
    name: Annotated[str | None, typer.Option(help="The run's name; precad chooses one if you give none.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of runs.")] = Path("runs"),
    data: options.DataFolder = None,
    device: Annotated[str, options.DEVICE] = "cpu",
    as_json: options.Json = False,
) -> None:
    """Train a model with the whole protocol: simulated clients, two servers, validation, noise.

    Example: precad train --dataset mnist --rounds 500 --malicious 2
    """
    chosen = locals()
    need("train")
    from precad.settings import Hyperparameters, from_table, to_toml
    from precad.simulation import presets
    from precad.simulation.randomness import Randomness
    from precad.simulation.run_folder import RunFolder, free_name
    from precad.tables import merged, read_toml

    if name is not None and (Path(name).name != name or name in ("", "..") or not name.isprintable()):
        raise PrecadError(f"a run's name is that of a folder in --out, without slashes; got {name!r}")
    overrides = {
        "task": {"dataset": dataset, "clients": clients},
        "training": options.given(Hyperparameters, chosen),
        "malicious": {"clients": malicious, "attack": attack},
        "seed": seed,
        "evaluate_every": evaluate_every,
    }
    file = read_toml(config) if config else {}
    try:
        table = merged(file, _given(overrides))
        task = table.get("task", {})
        known = task.get("dataset", "digits") if isinstance(task, Mapping) else "digits"
        settings = from_table(merged(presets.preset(known, preset or "recommended"), table))
    except ValueError as error:
        raise ValueError(f"{config} with the options given: {error}" if config else str(error)) from None
    randomness = Randomness.private() if settings.seed is None else Randomness.repeatable(settings.seed)
    trainer = _trainer(settings, data, device, randomness, None)
    path = out / name if name else free_name(out, f"{settings.task.dataset}-{settings.training.protocol.value}")
    place = data or os.environ.get("PRECAD_DATA")
    machine = {"data": str(Path(place).absolute()) if place else None, "device": device}  # resumed from any folder
    with closing(RunFolder.create(path, to_toml(settings), randomness, machine)) as run:
        _play(run, trainer, settings, as_json)


def resume(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    data: options.DataFolder = None,
    run_code: options.RunCode = False,
    as_json: options.Json = False,
) -> None:
    """Go on with a run that was stopped, by Ctrl-C, by a crash or by a full disk.

    A folder may be somebody else's: if its configuration names code, say with --run-code that it is to be run.

    Example: precad resume runs/digits-precad-1
    """
    need("train")
    from precad.settings import from_table
    from precad.simulation.run_folder import RunFolder
    from precad.tables import read_toml

    with closing(RunFolder(run)) as folder:
        if folder.finished:
            raise PrecadError(f"{run} has come to its end: there is nothing to resume")
        table = read_toml(folder.path / "config.toml")
        if "task" not in table:
            raise PrecadError(f"{run} was begun by precad.train from Python: the same call again goes on with it")
        settings, machine = from_table(table), folder.machine
        if settings.code and not run_code:
            raise PrecadError(f"{run} names code, {_places(settings.code)}: if you trust it, give --run-code")
        place = data or (Path(machine.data) if machine.data else None)
        trainer = _trainer(settings, place, machine.device, folder.randomness(settings.seed), folder.load())
        _play(folder, trainer, settings, as_json)


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="The folder of a run or of a server; the page shows several over each other.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write: report.html in the run's folder, or here for several runs.")
    ] = None,
) -> None:
    """Write the page of a run: one HTML file with every figure of the run, or of several runs side by side.

    Example: precad report runs/first runs/second --out both.html
    """
    from precad.report.manifest import PAGE
    from precad.report.page import write_report

    place = out if out is not None else runs[0] / PAGE if len(runs) == 1 else Path(PAGE)
    write_report([_source(run).read() for run in runs], place)
    say(f"wrote {place}")


def watch(
    run: Annotated[Path, typer.Argument(help="The folder of a run or of a server.")],
    port: Annotated[int, typer.Option(help="The port on 127.0.0.1; 0 chooses a free one.")] = 8600,
) -> None:
    """Serve the page of a run while it trains, on this machine alone, until Ctrl-C.

    Example: precad watch runs/digits-precad-1
    """
    import time

    from precad.report.live import LiveServer, Watched

    server = LiveServer(Watched(_source(run), time.time), port)
    try:
        say(f"watching {run} at {server.url}: Ctrl-C ends")
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        say("ended; the run itself goes on")
    finally:
        server.server_close()


def _given(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the person gave: the others are None."""
    nested = {key: _given(value) if isinstance(value, Mapping) else value for key, value in overrides.items()}
    return {key: value for key, value in nested.items() if value is not None and value != {}}


def _trainer(
    settings: "RunConfig", data: Path | None, device: str, randomness: "Randomness", progress: "Progress | None"
) -> "Trainer":
    from precad.lab import malicious
    from precad.simulation.trainer import Trainer

    task = malicious.build(settings, data, randomness)
    return Trainer(task, settings.training, randomness, progress=progress, device=device)


def _play(run: "RunFolder", trainer: "Trainer", settings: "RunConfig", as_json: bool) -> None:
    from precad.report.pictures import draw_run
    from precad.settings import NOT_PRIVATE
    from precad.simulation import session, terminal
    from precad.tables import to_table

    console = new_console(stderr=as_json)
    go_on = f"`precad resume {shlex.quote(str(run.path))}{' --run-code' if settings.code else ''}`"
    trainer.keep_ledger(run.open_ledger)
    console.print(f"training in {run.path}: Ctrl-C stops it, {go_on} goes on", soft_wrap=True)
    note = "" if settings.seed is None else NOT_PRIVATE
    if note:
        console.print(note, style="bold", soft_wrap=True)
    try:
        with terminal.View(console, trainer, run.rounds()[: trainer.progress.round]) as live:
            figures = session.play(trainer, run, settings.evaluate_every, live)
        draw_run(run.rounds(), run.path.name, run.path / "curves.png", note=note)
        summary = session.finish(trainer, run, figures)
    except KeyboardInterrupt:
        console.print(f"stopped after round {trainer.progress.round}; {go_on} goes on", soft_wrap=True)
        console.print(_to_keep(run.path), *_of_ledger(run), sep="\n", soft_wrap=True)
        raise typer.Exit(130) from None
    except OSError as error:
        raise PrecadError(
            f"{error.strerror or error} while writing to {run.path}: nothing is lost; make room, then {go_on}"
        ) from None
    answer(as_json, to_table(summary), terminal.end_table(summary), f"all of it is in {run.path}")
    console.print(_to_keep(run.path), soft_wrap=True)


def _to_keep(run: Path) -> str:
    from precad.report.manifest import file_digests, run_digest

    digest = run_digest(file_digests(run))
    return f"keep this digest of the run elsewhere: {digest}; `precad audit {shlex.quote(str(run))}` compares it"


def _of_ledger(run: "RunFolder") -> list[str]:
    """What to know of the ledger of a run that was stopped."""
    from precad.privacy.ledger import read
    from precad.report.manifest import LEDGER
    from precad.report.run import unfinished

    if not (run.path / LEDGER).is_file():
        return []
    contents = read(run.path / LEDGER)
    cut_off = unfinished(len(contents.rows), len(run.rounds()))
    kept = f"keep the last link of its ledger too, which stays true when the run goes on: {contents.last_link}"
    return [*([cut_off] if cut_off else []), *([kept] if contents.rows else [])]


def _places(code: tuple[str, ...]) -> str:
    """What would be run, and from where."""
    from precad.simulation.user_code import module_file

    return ", ".join(f"{name!r} in {module_file(name.partition(':')[0]) or 'Python itself'}" for name in code)


def _source(folder: Path) -> "Source":
    from precad.report.run import run_source

    if not (folder / "config.toml").is_file():
        from precad.deployment.run_view import server_source

        found = server_source(folder)
        if found is not None:
            return found
    return run_source(folder)
