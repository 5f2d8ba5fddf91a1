"""The commands of a person who plans a run or accounts for one: privacy, certify, protocol, ledger."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from precad.cli import options
from precad.cli.output import answer, in_lines, new_table, say, working

if TYPE_CHECKING:
    from precad.privacy.nearest import Nearest
    from precad.privacy.plan import Plan

ledger = typer.Typer(
    name="ledger", help="Read the ledger of who took part, and what it cost in ε.", no_args_is_help=True
)


def privacy(
    sigma: Annotated[float | None, options.SIGMA] = None,
    rounds: Annotated[int, options.ROUNDS] = 5000,
    client_rate: Annotated[float, options.CLIENT_RATE] = 0.1,
    record_rate: Annotated[float, options.RECORD_RATE] = 0.05,
    participations: Annotated[int | None, options.PARTICIPATIONS] = None,
    dim: Annotated[int, options.DIM] = 26_010,
    delta: Annotated[float, options.DELTA] = 1e-5,
    unit: Annotated[options.UnitName, options.UNIT] = "record",
    noise: Annotated[options.NoiseName, options.NOISE] = "server",
    target_epsilon: Annotated[
        float | None,
        options.privacy(help="Find the σ that costs this ε against whom --noise names; with --sigma, the most rounds."),
    ] = None,
    hidden: Annotated[
        bool, options.privacy("--hidden", help="With unit client: the other clients cannot see who took part.")
    ] = False,
    group: Annotated[int, options.GROUP] = 1,
    curve: Annotated[
        bool, typer.Option("--curve", help="Show ε by epoch instead, for σ = 1, 1.5 and 2, or for --sigma.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The picture that --curve writes.")] = Path("curve.png"),
    as_json: options.Json = False,
) -> None:
    """Show what a run costs one record in ε, against a corrupted server and against the other clients.

    A client takes part in ⌈q·T⌉ rounds unless you give --participations.

    Example: precad privacy --sigma 2 --rounds 500 --delta 1e-6
    """
    chosen = locals()
    from rich.text import Text

    from precad.privacy.plan import Plan, costs
    from precad.tables import build

    plan = build(Plan, options.given(Plan, chosen), "the run")
    if curve:
        _show_curve(plan, sigma, target_epsilon, out, as_json)
        return
    with working("accounting"):
        found = costs(plan, sigma, target_epsilon)
    answer(as_json, found.as_json(), found.as_table(), Text(found.notes()))


def certify(
    malicious: Annotated[int, options.MALICIOUS] = 1,
    clients: Annotated[int, options.CLIENTS] = 100,
    rounds: Annotated[int, options.ROUNDS] = 5000,
    client_rate: Annotated[float, options.CLIENT_RATE] = 0.1,
    noise_multiplier: Annotated[float, options.SIGMA] = 1.0,
    record_bound: Annotated[float, options.RECORD_BOUND] = 2.0,
    client_bound: Annotated[float, options.CLIENT_BOUND] = 30.0,
    unit: Annotated[options.UnitName, options.UNIT] = "record",
    noise: Annotated[options.NoiseName, options.NOISE] = "server",
    dim: Annotated[int, options.DIM] = 1,
    clean_loss: Annotated[float, typer.Option(help="L, the expected loss of a record without attack.")] = 0.05,
    largest_loss: Annotated[float, typer.Option(help="B, the largest loss that a record can have.")] = 1.0,
    clean_errors: Annotated[
        Path | None, typer.Option(help="A file with the test errors of independent clean runs, one on each line.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="The confidence with which --clean-errors speak for all runs.")
    ] = 0.99,
    normalise: Annotated[options.NormaliseName, options.NORMALISE] = "constant",
    validation: Annotated[options.ValidationName, options.VALIDATION] = "proof",
    as_json: options.Json = False,
) -> None:
    """Bound what malicious clients can do to the expected loss of a record, whatever they send.

    The noise is that of the run: --unit client measures it in C, --noise clients has 1/√2 of it. With more than one of
    --dim's parameters it is a little larger, so without --dim the bound holds for every model.

    Example: precad certify --malicious 2 --rounds 10 --client-rate 1 --sigma 20 --client-bound 2
    """
    chosen = locals()
    from dataclasses import asdict

    from precad.mpc.fixed_point import check_positive
    from precad.privacy import certificate
    from precad.privacy.nearest import nearest
    from precad.protocol.params import Params
    from precad.tables import build

    certificate.check_applies(normalise=normalise, validation=validation)
    for name, count in (("--clients", clients), ("--rounds", rounds)):
        if not 1 <= count <= 1 << 53:
            raise ValueError(f"{name} must be at least 1, and at most 2^53; got {count}")
    if not 1 <= malicious <= clients:
        raise ValueError(
            f"--malicious must be in [1, {clients}], the number of clients; got {malicious}. With more clients, give "
            "--clients"
        )
    if not 0 < client_rate <= 1:
        raise ValueError(f"--client-rate must be in (0, 1], got {client_rate}")
    for name in ("noise_multiplier", "record_bound", "client_bound"):
        check_positive(f"--{name.replace('_', '-')}", chosen[name])
    seen = build(Params, options.given(Params, chosen), "the run").noise_over_bound
    with working("certifying"):
        threat = certificate.Threat(malicious=malicious, rounds=rounds, client_rate=client_rate, noise=seen)
        bounds = certificate.rigorous(threat, clean_loss, largest_loss)
        paper = certificate.as_in_the_paper(threat, clean_loss, largest_loss)
        halfway = (clean_loss + largest_loss) / 2
        near = accuracy = None
        if bounds.vacuous and clean_loss < largest_loss:
            near = nearest(threat, client_bound if unit == "record" else None, clean_loss, halfway, largest_loss)
        if clean_errors is not None:
            accuracy = certificate.certified_accuracy(threat, _read_errors(clean_errors), confidence)
    value = {
        "noise": seen,
        "rigorous": asdict(bounds),
        "paper": asdict(paper),
        "noise_needed": near and near.noise,
        "nearest": near and asdict(near),
        "certified_accuracy": accuracy and asdict(accuracy),
    }
    lines = [
        f"{malicious} malicious of {clients:,} clients, all noise in a sum is σ̃ = {seen:.4g} times C",
        f"  certified: the expected loss is between {bounds.lower:.4f} and {bounds.upper:.4f} (clean: {clean_loss})",
        f"  as in the paper (asymptotic, not a bound): between {paper.lower:.4f} and {paper.upper:.4f}",
    ]
    if accuracy is not None:
        lines.append(
            f"  this test set, from {accuracy.runs:,} clean runs, with confidence {accuracy.confidence:g}: an attacked "
            f"run gives a model of accuracy {accuracy.accuracy_kept:.4f} or more with probability "
            f"{accuracy.probability:.4f} or more, and one of {accuracy.expected_accuracy:.4f} or more in expectation"
        )
    if near is not None:
        lines.append(_where(near, halfway, noise_multiplier / seen))
    answer(as_json, value, *lines)


def protocol(
    dim: Annotated[int, options.DIM] = 26_010,
    clients: Annotated[int, options.CLIENTS] = 100,
    noise_multiplier: Annotated[float, options.SIGMA] = 1.0,
    record_bound: Annotated[float, options.RECORD_BOUND] = 2.0,
    client_bound: Annotated[float, options.CLIENT_BOUND] = 30.0,
    validation: Annotated[options.ValidationName, options.VALIDATION] = "proof",
    unit: Annotated[options.UnitName, options.UNIT] = "record",
    noise: Annotated[options.NoiseName, options.NOISE] = "server",
    explain: Annotated[bool, typer.Option("--explain", help="Say where each number comes from.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show the numbers of the protocol for given parameters: grid, noise, soundness, bytes.

    Example: precad protocol --dim 122570 --client-bound 10 --explain
    """
    chosen = locals()
    from precad.protocol import explain as explanation
    from precad.protocol.params import Params
    from precad.tables import build

    lines = explanation.explain(build(Params, options.given(Params, chosen), "the protocol"))
    table = new_table(f"validation by {validation}, d = {dim:,}, C = {client_bound:g}", "number", "value")
    for column in table.columns:
        column.no_wrap = True
    if explain:
        table.add_column("why")
    for line in lines:
        table.add_row(line.name, line.shown, *([line.why] if explain else []))
    answer(as_json, {line.key: line.value for line in lines}, table)


@ledger.command("show")
def ledger_show(path: options.LedgerFile, as_json: options.Json = False) -> None:
    """Show every client's participations and what they have cost it in ε, with what an ε must be read with."""
    from rich.text import Text

    from precad.deployment.totals import ledger_file, read_ledger
    from precad.report.formatting import counted
    from precad.report.statement import essentials, origin_of, unfinished_of

    place = ledger_file(path)
    with working("accounting"):
        contents = read_ledger(place)
        exported = contents.export()
    origin = origin_of(place, contents.origin)
    known = dict(essentials(contents.terms, origin))
    unless = {True: "", False: ", were the noise secret", None: ", if no seed made the noise"}[origin.private]
    columns = [f"ε against {who}{unless}" for who in ("server", "clients")]
    table = new_table(f"{counted(len(contents.rows), 'round')}, δ = {known['δ']}", "client", "participations", *columns)
    for name, client in exported["clients"].items():
        costs = (client["epsilon"][adversary] for adversary in ("server", "clients"))
        shown = ("none" if cost is None else f"{cost:.3f}" for cost in costs)
        table.add_row(Text(name), f"{client['participations']:,}", *shown)
    value = {"private": origin.private, "unit": origin.unit, "essentials": known, "clients": exported["clients"]}
    cut_off = unfinished_of(place, len(contents.rows))
    answer(as_json, value, in_lines(known), table, *([cut_off] if cut_off else []))


@ledger.command("verify")
def ledger_verify(path: options.LedgerFile, as_json: options.Json = False) -> None:
    """Recompute every link of the hash chain and every count; fail if one is wrong."""
    from precad.deployment.totals import ledger_file, read_ledger

    last = read_ledger(ledger_file(path)).verify()
    said = f"the ledger is whole; its last link is {last or 'none: no round was counted'}"
    answer(as_json, {"digest": last}, said)


@ledger.command("export")
def ledger_export(
    path: options.LedgerFile,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print one line for each client instead of JSON.")] = False,
) -> None:
    """Print all that an auditor needs to recompute every figure, as JSON or CSV."""
    from precad.deployment.totals import ledger_file, read_ledger

    with working("accounting"):
        book = read_ledger(ledger_file(path))
        if as_csv:
            say(*book.export_csv().splitlines())
        else:
            answer(True, book.export())


@ledger.command("total")
def ledger_total(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs, of servers or of clients; ledgers' files or their exports.")
    ],
    delta: Annotated[float | None, options.DELTA] = None,
    unit: Annotated[options.UnitName | None, options.UNIT] = None,
    group: Annotated[int, options.GROUP] = 1,
    same_data: Annotated[
        bool, typer.Option("--same-data", help="The one client of each run holds the same data, whatever its name.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show what several runs on the same data have cost each client together, at one δ.

    Without --delta it is the smallest of the runs'. Clients of the same name hold the same data.

    Example: precad ledger total runs/first runs/second --delta 1e-5
    """
    from rich.text import Text

    from precad.deployment.totals import compose, read_book
    from precad.protocol.params import Unit
    from precad.report.formatting import counted

    with working("accounting"):
        books = [read_book(path) for path in runs]
        found = compose(books, unit=unit and Unit(unit), delta=delta, group=group, same_data=same_data)
    value = found.as_json()
    whom = f"one {value['unit']}" if group == 1 else f"{group} {value['unit']}s together"
    table = new_table(
        f"{counted(len(books), 'run')} together: ε of {whom} at δ = {found.delta:g}",
        "client",
        "participations",
        "ε against server",
        "ε against clients",
    )
    for name, client in value["clients"].items():
        costs = ("none" if cost is None else f"{cost:.3f}" for cost in client["epsilon"].values())
        table.add_row(Text(name), " + ".join(f"{count:,}" for count in client["participations"]), *costs)
    answer(as_json, value, table, Text(found.notes()))


def _show_curve(plan: "Plan", sigma: float | None, target: float | None, out: Path, as_json: bool) -> None:
    from precad.privacy.curve import PAPER_SIGMAS, privacy_curve

    if target is not None:
        raise ValueError("--curve takes --sigma, not --target-epsilon")
    with working("accounting for 200 points"):
        curve = privacy_curve(plan, PAPER_SIGMAS if sigma is None else (sigma,))
    answer(as_json, curve.as_json(), curve.as_text())
    try:
        from precad.report.pictures import draw_privacy
    except ModuleNotFoundError:
        say("No picture was written: it needs matplotlib; pip install 'precad[train]'", err=True)
        return
    draw_privacy(curve, out)
    say(f"The picture is in {out}.", err=True)


def _where(near: "Nearest", wanted: float, sigma_over_noise: float) -> str:
    """The nearest settings that mean something, in words: as the options that give them."""
    values = {
        "--sigma": near.noise and near.noise * sigma_over_noise,
        "--client-bound": near.client_bound,
        "--rounds": near.rounds,
        "--client-rate": near.client_rate,
        "--malicious": near.malicious,
    }
    counts = ("--rounds", "--malicious")
    lines = [
        f"  {name} {_to_the_safe_side(name, value)}"
        if value is not None
        else f"  {name}: {'1 is too many' if name in counts else 'no value helps'}"
        for name, value in values.items()
    ]
    title = "The certificate is vacuous here: it says nothing. With one number changed, the bound is below"
    return "\n".join([f"{title} {wanted:g} from:", *lines])


def _to_the_safe_side(name: str, value: float) -> str:
    """Three digits of a bound that is kept there too."""
    if isinstance(value, int):
        return f"{value} or less"
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    least = name == "--sigma"
    rounded = (math.ceil if least else math.floor)(value / step) * step
    return f"{rounded:.3g} or {'more' if least else 'less'}"


def _read_errors(path: Path) -> list[float]:
    from precad.files import read_text

    try:
        return [float(line) for line in read_text(path).split()]
    except ValueError:  # of float, or of a file that is not text
        raise ValueError(f"--clean-errors {path} must hold one number in [0, 1] on each line") from None
