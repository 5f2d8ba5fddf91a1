"""The commands that train: thin, like the rest of the command line."""

import json
import os
import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from precad.cli.options import need_torch, plain_errors
from precad.errors import PrecadError

if TYPE_CHECKING:
    from precad.simulation.progress import Progress
    from precad.simulation.randomness import Randomness
    from precad.simulation.run_folder import RunFolder
    from precad.simulation.settings import RunConfig
    from precad.simulation.trainer import Trainer

DataOption = Annotated[
    Path | None, typer.Option("--data", help="The folder of the data sets; $PRECAD_DATA if not given.")
]
DeviceOption = Annotated[str, typer.Option(help="Where gradients are computed: cpu, cuda, mps, …")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the summary as JSON; progress goes to stderr.")]


def train(
    config: Annotated[Path | None, typer.Argument(help="A TOML file; options override it.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="digits (the default), mnist, fashion, cifar10, or your module:function.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="recommended (the default), or paper.")] = None,
    protocol: Annotated[
        Literal["precad", "plain", "cdp", "ldp", "ddp"] | None, typer.Option(help="How updates are added up.")
    ] = None,
    validation: Annotated[
        Literal["proof", "triples", "none"] | None, typer.Option(help="How updates are validated.")
    ] = None,
    clients: Annotated[int | None, typer.Option(help="n, the number of clients.")] = None,
    rounds: Annotated[int | None, typer.Option(help="T, the number of rounds.")] = None,
    sigma: Annotated[float | None, typer.Option(help="σ, each server's noise over the sensitivity.")] = None,
    client_rate: Annotated[float | None, typer.Option(help="q, the probability that a client is selected.")] = None,
    record_rate: Annotated[float | None, typer.Option(help="p, the probability that a record is in a sample.")] = None,
    record_bound: Annotated[float | None, typer.Option(help="R, the bound on one record's gradient.")] = None,
    client_bound: Annotated[float | None, typer.Option(help="C, the bound on a client's update.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="η, in the first round.")] = None,
    final_learning_rate: Annotated[float | None, typer.Option(help="η, in the last round.")] = None,
    optimiser: Annotated[Literal["sgd", "momentum", "adam"] | None, typer.Option(help="The servers'.")] = None,
    budget: Annotated[float | None, typer.Option(help="The most ε against a server that a client spends.")] = None,
    defence: Annotated[
        str | None, typer.Option(help="Of protocol plain: median, krum, …, or your module:function.")
    ] = None,
    malicious: Annotated[int | None, typer.Option(help="K, how many clients are malicious.")] = None,
    attack: Annotated[
        str | None, typer.Option(help="What they do: boost, sign_flip, backdoor, …, or your module:function.")
    ] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Look at the test set every so many rounds.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Make the run repeatable, for research: its noise is then NOT private.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The run's name; chosen if not given.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of runs.")] = Path("runs"),
    data: DataOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Train a model with the whole protocol: simulated clients, two servers, validation, noise."""
    with plain_errors():
        need_torch()
        from precad.simulation.randomness import Randomness
        from precad.simulation.run_folder import RunFolder, free_name
        from precad.simulation.settings import to_toml

        training = {
            "protocol": protocol,
            "validation": validation,
            "rounds": rounds,
            "noise_multiplier": sigma,
            "client_rate": client_rate,
            "record_rate": record_rate,
            "record_bound": record_bound,
            "client_bound": client_bound,
            "learning_rate": learning_rate,
            "final_learning_rate": final_learning_rate,
            "optimiser": optimiser,
            "budget": budget,
            "defence": defence,
        }
        options = {
            "task": {"dataset": dataset, "clients": clients},
            "training": training,
            "malicious": {"clients": malicious, "attack": attack},
            "seed": seed,
            "evaluate_every": evaluate_every,
        }
        if name is not None and (Path(name).name != name or name in ("", "..") or not name.isprintable()):
            raise PrecadError(f"a run's name is that of a folder in --out, without slashes; got {name!r}")
        settings = _settings(config, preset, options)
        randomness = Randomness.private() if settings.seed is None else Randomness.repeatable(settings.seed)
        trainer = _trainer(settings, data, device, randomness, None)
        path = out / name if name else free_name(out, f"{settings.task.dataset}-{settings.training.protocol.value}")
        run = RunFolder.create(path, to_toml(settings), randomness, {"data": _place(data), "device": device})
        _play(run, trainer, settings, as_json)


def resume(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a run that was stopped, by Ctrl-C, by a crash or by a full disk."""
    with plain_errors(), ExitStack() as stack:
        need_torch()
        from precad.simulation.run_folder import RunFolder
        from precad.simulation.settings import from_table
        from precad.tables import read_toml

        folder = RunFolder(run)
        stack.callback(folder.close)
        if folder.finished:
            raise PrecadError(f"{run} has come to its end: there is nothing to resume")
        folder.check_config()
        table = read_toml(folder.path / "config.toml")
        if "task" not in table:
            raise PrecadError(f"{run} was begun by precad.train from Python: the same call again goes on with it")
        settings = from_table(table)
        machine = folder.machine
        place = data or (Path(machine["data"]) if machine["data"] else None)
        randomness = folder.randomness(settings.seed)
        trainer = _trainer(settings, place, machine["device"], randomness, folder.load())
        _play(folder, trainer, settings, as_json)


def _settings(config: Path | None, preset: str | None, options: Mapping[str, Any]) -> "RunConfig":
    """The preset, overridden by the file, overridden by the options."""
    from precad.simulation import presets
    from precad.simulation.settings import from_table
    from precad.tables import merged, read_toml

    table = merged(read_toml(config) if config else {}, _given(options))
    task = table.get("task", {})
    dataset = task.get("dataset", "digits") if isinstance(task, Mapping) else "digits"
    return from_table(merged(presets.preset(dataset, preset or "recommended"), table))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Without what was not said."""
    nested = {key: _given(value) if isinstance(value, Mapping) else value for key, value in options.items()}
    return {key: value for key, value in nested.items() if value is not None and value != {}}


def _trainer(
    settings: "RunConfig", data: Path | None, device: str, randomness: "Randomness", progress: "Progress | None"
) -> "Trainer":
    from precad.lab import malicious
    from precad.simulation.trainer import Trainer

    task = malicious.build(settings, data, randomness)
    return Trainer(task, settings.training, randomness, progress=progress, device=device)


def _play(run: "RunFolder", trainer: "Trainer", settings: "RunConfig", as_json: bool) -> None:
    from rich.console import Console

    from precad.simulation import session, terminal
    from precad.simulation.curves import draw_curves
    from precad.simulation.randomness import NOT_PRIVATE

    console = Console(stderr=as_json, highlight=False, markup=False)
    go_on = f"`precad resume {shlex.quote(str(run.path))}`"
    trainer.keep_ledger(run.open_ledger)
    console.print(f"training in {run.path}: Ctrl-C stops it, {go_on} goes on", soft_wrap=True)
    if settings.seed is not None:
        console.print(NOT_PRIVATE, style="bold", soft_wrap=True)
    try:
        with terminal.View(console, trainer) as live:
            figures = session.play(trainer, run, settings.evaluate_every, live)
        note = "" if settings.seed is None else NOT_PRIVATE
        draw_curves(run.metrics(), run.path.name, run.path / "curves.png", note=note)
        summary = session.finish(trainer, run, figures)
    except KeyboardInterrupt:
        done = trainer.progress.round
        console.print(f"stopped after round {done}; {go_on} goes on", soft_wrap=True)
        raise typer.Exit(130) from None
    except OSError as error:
        raise PrecadError(
            f"{error.strerror or error} while writing to {run.path}: nothing is lost; make room, then {go_on}"
        ) from None
    finally:
        run.close()
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        console.print(terminal.end_table(summary))
        console.print(f"all of it is in {run.path}", soft_wrap=True)


def _place(data: Path | None) -> str | None:
    """Where a run's data are, for ``precad resume`` from any folder."""
    place = data or os.environ.get("PRECAD_DATA")
    return str(Path(place).absolute()) if place else None
