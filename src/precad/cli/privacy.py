"""The commands of a person who plans a run or accounts for one: privacy, certify, protocol, ledger."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from precad.cli import options
from precad.cli.output import answer, new_table, working

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
    group: Annotated[int, options.privacy(help="K, the number of records or clients that are protected together.")] = 1,
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
    sigma: Annotated[float, options.SIGMA] = 1.0,
    record_bound: Annotated[float, options.RECORD_BOUND] = 2.0,
    client_bound: Annotated[float, options.CLIENT_BOUND] = 30.0,
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

    Example: precad certify --malicious 2 --rounds 10 --client-rate 1 --sigma 20 --client-bound 2
    """
    from dataclasses import asdict

    from precad.mpc.fixed_point import check_positive
    from precad.privacy import certificate
    from precad.privacy.nearest import nearest

    certificate.check_applies(normalise=normalise, validation=validation)
    for name, count in (("--clients", clients), ("--rounds", rounds)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    if not 1 <= malicious <= clients:
        raise ValueError(
            f"--malicious must be in [1, {clients}], the number of clients; got {malicious}. With more clients, give "
            "--clients"
        )
    if not 0 < client_rate <= 1:
        raise ValueError(f"--client-rate must be in (0, 1], got {client_rate}")
    for name, number in (("--sigma", sigma), ("--record-bound", record_bound), ("--client-bound", client_bound)):
        check_positive(name, number)
    noise = math.sqrt(2) * sigma * record_bound / client_bound
    with working("certifying"):
        threat = certificate.Threat(malicious=malicious, rounds=rounds, client_rate=client_rate, noise=noise)
        bounds = certificate.rigorous(threat, clean_loss, largest_loss)
        paper = certificate.as_in_the_paper(threat, clean_loss, largest_loss)
        halfway = (clean_loss + largest_loss) / 2
        near = accuracy = None
        if bounds.vacuous and clean_loss < largest_loss:
            near = nearest(threat, client_bound, clean_loss, halfway, largest_loss)
        if clean_errors is not None:
            accuracy = certificate.certified_accuracy(threat, _read_errors(clean_errors), confidence)
    value = {
        "noise": noise,
        "rigorous": asdict(bounds),
        "paper": asdict(paper),
        "noise_needed": near and near.noise,
        "nearest": near and asdict(near),
        "certified_accuracy": accuracy and asdict(accuracy),
    }
    lines = [
        f"{malicious} malicious of {clients:,} clients, noise σ̃ = √2·σ·R/C = {noise:.4g} in units of C",
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
        lines.append(_where(near, halfway))
    answer(as_json, value, *lines)


def protocol(
    dim: Annotated[int, options.DIM] = 26_010,
    clients: Annotated[int, options.CLIENTS] = 100,
    noise_multiplier: Annotated[float, options.SIGMA] = 1.0,
    record_bound: Annotated[float, options.RECORD_BOUND] = 2.0,
    client_bound: Annotated[float, options.CLIENT_BOUND] = 30.0,
    validation: Annotated[options.ValidationName, options.VALIDATION] = "proof",
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
    """Show every client's participations and what they have cost it in ε."""
    from rich.text import Text

    from precad.privacy.ledger import Ledger

    with working("accounting"):
        exported = Ledger.load(path).export()
    title = f"{len(exported['rounds']):,} rounds, δ = {exported['terms']['delta']:g}"
    table = new_table(title, "client", "participations", "ε against server", "ε against clients")
    for name, client in exported["clients"].items():
        costs = (client["epsilon"][adversary] for adversary in ("server", "clients"))
        shown = ("none" if cost is None else f"{cost:.3f}" for cost in costs)
        table.add_row(Text(name), f"{client['participations']:,}", *shown)
    answer(as_json, exported["clients"], table)


@ledger.command("verify")
def ledger_verify(path: options.LedgerFile, as_json: options.Json = False) -> None:
    """Recompute every link of the hash chain and every count; fail if one is wrong."""
    from precad.privacy.ledger import Ledger

    last = Ledger.load(path).verify()
    said = f"the ledger is whole; its last link is {last or 'none: no round was counted'}"
    answer(as_json, {"digest": last}, said)


@ledger.command("export")
def ledger_export(
    path: options.LedgerFile,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print one line for each client instead of JSON.")] = False,
) -> None:
    """Print all that an auditor needs to recompute every figure, as JSON or CSV."""
    from precad.privacy.ledger import Ledger

    with working("accounting"):
        book = Ledger.load(path)
        if as_csv:
            typer.echo(book.export_csv().rstrip())
        else:
            answer(True, book.export())


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
        typer.echo("No picture was written: it needs matplotlib; pip install 'precad[train]'", err=True)
        return
    draw_privacy(curve, out)
    typer.echo(f"The picture is in {out}.", err=True)


def _where(near: "Nearest", wanted: float) -> str:
    """The nearest settings that mean something, in words."""
    values = near.noise, near.client_bound, near.rounds, near.client_rate, near.malicious
    lines = [
        f"  {name}: none" if value is None else f"  {name}: {value:.3g} or {'more' if name == 'σ̃' else 'less'}"
        for name, value in zip(("σ̃", "C", "T", "q", "K"), values, strict=True)
    ]
    title = "The certificate is vacuous here: it says nothing. With one number changed, the bound is below"
    return "\n".join([f"{title} {wanted:g} from:", *lines])


def _read_errors(path: Path) -> list[float]:
    try:
        return [float(line) for line in path.read_text().split()]
    except ValueError:  # of float, or of a file that is not text
        raise ValueError(f"--clean-errors {path} must hold one number in [0, 1] on each line") from None
