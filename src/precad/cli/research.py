"""The commands of a person who studies precad: one round to look at, the paper's evaluation, benchmarks."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from precad.cli import options
from precad.cli.output import answer, figures, need, new_console, new_table, say, working
from precad.mpc.cores import usable_cores

bench = typer.Typer(name="bench", help="Measure the speed of precad on this machine.", no_args_is_help=True)


def demo() -> None:
    """Play one round of the protocol in memory and show who sees what."""
    from precad.cli import demo as demonstration

    demonstration.run()


def reproduce(
    target: Annotated[
        Literal["fig2", "fig3", "fig4", "fig5", "table1", "claims", "heatmap", "all"],
        typer.Argument(help="What to repeat."),
    ] = "all",
    quick: Annotated[
        bool, typer.Option("--quick", help="Run the same code with far fewer rounds: under 20 minutes.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(help="The runs at a time, each in a process with one torch thread: one a core if not given."),
    ] = None,
    data: options.DataFolder = None,
    out: Annotated[Path, typer.Option(help="The folder of rows, figures and tables.")] = Path("results"),
    dataset: Annotated[
        list[str] | None, typer.Option(help="mnist or cifar10; both if you give none. May be repeated.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="The number of seeds: 3, or 1 with --quick.")] = None,
    runs: Annotated[
        bool, typer.Option("--runs/--no-runs", help="Make the runs that are missing, or draw and judge what there is.")
    ] = True,
    rounds: Annotated[
        list[str] | None,
        typer.Option(help="T in place of the grid's own, or DATASET=T for one data set. May be repeated."),
    ] = None,
    attack: Annotated[
        list[str] | None, typer.Option(help="Your module:function as one more row of the heat map. May be repeated.")
    ] = None,
    defence: Annotated[
        list[str] | None, typer.Option(help="Your module:function as one more column of it. May be repeated.")
    ] = None,
) -> None:
    """Repeat the paper's evaluation: its runs, its figures, and a verdict on each of its claims.

    TARGET is a figure or table of the paper; claims, for the runs that its sentences need; heatmap, for attacks by
    defences; or all, which is all but the heat map.

    A run that was made is kept in rows.jsonl and not made again: Ctrl-C stops, the same command goes on.

    Example: precad reproduce fig4 --dataset mnist --quick
    """
    need("train")
    from precad.lab.paper import reproduce as experiments
    from precad.lab.paper.plan import DATASETS, read_rounds

    chosen = tuple(known for known in DATASETS if known in (dataset or DATASETS))
    for name in dataset or ():
        if name not in DATASETS:
            raise ValueError(f"dataset must be one of {', '.join(DATASETS)}, got {name!r}")
    folder = out / "quick" if quick else out
    order = experiments.Order(
        target,
        quick,
        folder,
        data=data,
        jobs=usable_cores() if jobs is None else jobs,
        runs=runs,
        datasets=chosen,
        seeds=seeds,
        rounds=read_rounds(rounds or ()),
        attacks=tuple(attack or ()),
        defences=tuple(defence or ()),
    )
    console = new_console()
    try:
        written = experiments.reproduce(order, console)
    except KeyboardInterrupt:
        console.print(f"stopped; the rows so far are in {folder}, and the same command goes on", highlight=False)
        raise typer.Exit(130) from None
    for path in written:
        say(path)


def canaries(
    config: Annotated[
        str, typer.Argument(help="A run's config.toml or its folder; or a preset, as digits or mnist/certified.")
    ],
    seconds: Annotated[
        float | None, typer.Option("--time", help="Play runs for so many seconds: 60 unless you give --trials.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Play until so many canaries were in or out of a run.")] = None,
    false_alarm: Annotated[
        float, typer.Option(help="The probability that a run which keeps its claim is caught, at most.")
    ] = 0.001,
    clients: Annotated[int | None, options.CLIENTS] = None,
    rounds: Annotated[int | None, options.ROUNDS] = None,
    ideal: Annotated[
        bool, typer.Option("--ideal", help="Leave out shares and proofs: the same sums, to the bit, and more trials.")
    ] = False,
    seed: Annotated[int | None, options.SEED] = None,
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("canaries.png"),
    data: options.DataFolder = None,
    run_code: options.RunCode = False,
    device: Annotated[str, options.DEVICE] = "cpu",
    as_json: options.Json = False,
) -> None:
    """Test a run's ε: put canaries into its data, let every adversary guess which are in, and compare with the claim.

    Without --rounds, the first 100 of each run are played. Exit code 1 says that the claim is refuted: more guesses
    were right than its trade-off curve allows. A pass proves nothing.

    Example: precad canaries digits --time 30 --ideal
    """
    need("train")
    from precad.cli.canaries import Order, perform

    order = Order(config, seconds, trials, false_alarm, clients, rounds, ideal, seed, out, data, run_code, device)
    raise typer.Exit(perform(order, as_json))


@bench.command("protocol")
def bench_protocol(
    dim: Annotated[int, options.DIM] = 26_010,
    clients: Annotated[int, options.CLIENTS] = 10,
    mode: Annotated[options.ValidationName, options.VALIDATION] = "proof",
    as_json: options.Json = False,
) -> None:
    """Time one round, party by party, against the keystream that each must expand and against a plain sum."""
    from precad.lab.bench import protocol as benchmark
    from precad.protocol.params import Validation

    with working(f"timing rounds of {clients} submissions of {dim:,} parameters"):
        row = benchmark.run(dim, clients, Validation(mode))
    targets = benchmark.TARGETS if dim >= 1_000_000 and mode == "proof" else None
    answer(as_json, row, *figures("protocol", {mode: row}, targets))


@bench.command("training")
def bench_training(as_json: options.Json = False) -> None:
    """Time an iteration of training with ten clients under each protocol, and per-record gradients against Opacus."""
    need("train")
    from precad.lab.bench import training as benchmark

    with working("timing iterations of training"):
        rows = benchmark.run()
    answer(as_json, rows, *figures("training", rows, benchmark.TARGETS))


@bench.command("deployment")
def bench_deployment(
    dim: Annotated[int, options.DIM] = 26_010,
    clients: Annotated[int, options.CLIENTS] = 3,
    rounds: Annotated[int, options.ROUNDS] = 10,
    as_json: options.Json = False,
) -> None:
    """Time a round with ten native clients; and on Flower, simulated and deployed, plain, with precad and SecAgg+."""
    need("flower")
    from precad.lab.bench import flower, native

    with working("timing rounds with native clients"):
        own = native.run(dim, rounds)
    with working("timing rounds on Flower"):
        rows = {"native": own, **flower.run(dim, clients, rounds)}
    answer(as_json, rows, *figures("deployment", rows, native.TARGETS))


@bench.command("server")
def bench_server(
    submissions: Annotated[int, typer.Option(help="The submissions of the one large round.")] = 200,
    dim: Annotated[int, options.DIM] = 122_570,
    soak_rounds: Annotated[int, typer.Option(help="The rounds of the soak.")] = 1_000,
    soak_submissions: Annotated[int, typer.Option(help="The submissions of each round of the soak.")] = 10,
    soak_dim: Annotated[int, typer.Option(help="d in the soak.")] = 1_000,
    as_json: options.Json = False,
) -> None:
    """Put server B under load over mutual TLS: one large round, then a soak; fail if anything is lost."""
    need("server")
    from precad.lab.bench import server as benchmark

    with working("running rounds with server B"):
        rows = benchmark.run((1, submissions, dim), (soak_rounds, soak_submissions, soak_dim))
    answer(as_json, rows, *figures("server", rows))


@bench.command("arithmetic")
def bench_arithmetic(as_json: options.Json = False) -> None:
    """Time the field, the mask generator, sharing and noise against numpy and the raw cipher."""
    from precad.lab.bench import arithmetic as benchmark

    with working("timing the arithmetic"):
        rows = benchmark.run()
    columns = ("operation", "ms", "compared with", "ratio", "target")
    table = new_table("precad bench arithmetic", "entries", *columns)
    for row in rows:
        for name, (base, target) in benchmark.TARGETS.items():
            ratio = row["ratios"][name]
            mark = "" if ratio <= target else " missed"
            cells = (f"{row['ms'][name]:.3f}", base, f"{ratio:.2f}", f"≤ {target:g}{mark}")
            table.add_row(f"{row['size']:,}", name, *cells)
    answer(as_json, rows, table)
