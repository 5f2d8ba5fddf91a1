"""``precad certify``: what malicious clients can do at most."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from precad.cli.options import JsonOption, plain_errors, working

if TYPE_CHECKING:
    from precad.privacy.nearest import Nearest


def certify(
    malicious: Annotated[int, typer.Option(help="K, the number of malicious clients.")] = 1,
    clients: Annotated[int, typer.Option(help="n, the number of clients in the roster, the malicious included.")] = 100,
    rounds: Annotated[int, typer.Option(help="T, the rounds of the run.")] = 5000,
    client_rate: Annotated[float, typer.Option(help="q, the probability that a client is selected.")] = 0.1,
    sigma: Annotated[float, typer.Option(help="σ, each server's noise over the sensitivity R.")] = 1.0,
    record_bound: Annotated[float, typer.Option(help="R, the bound on one record's gradient.")] = 2.0,
    client_bound: Annotated[float, typer.Option(help="C, the bound on a client's update.")] = 30.0,
    clean_loss: Annotated[float, typer.Option(help="L, the expected loss of a record without attack.")] = 0.05,
    largest_loss: Annotated[float, typer.Option(help="B, the largest loss there is.")] = 1.0,
    clean_errors: Annotated[
        Path | None, typer.Option(help="A file with the test error of one independent clean run a line.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="With which --clean-errors speak for all runs.")] = 0.99,
    normalise: Annotated[
        Literal["constant", "realised"], typer.Option(help="What the sum is divided by.")
    ] = "constant",
    validation: Annotated[
        Literal["proof", "triples", "none"], typer.Option(help="How updates are validated.")
    ] = "proof",
    as_json: JsonOption = False,
) -> None:
    """Bound what malicious clients can do to the expected loss of a record, whatever they send."""
    from dataclasses import asdict

    with plain_errors(), working("certifying"):
        from precad.privacy import certificate
        from precad.privacy.nearest import nearest

        certificate.check_applies(normalise=normalise, validation=validation)
        _check(malicious, clients, rounds, sigma, record_bound, client_bound)
        noise = math.sqrt(2) * sigma * record_bound / client_bound
        threat = certificate.Threat(malicious=malicious, rounds=rounds, client_rate=client_rate, noise=noise)
        bounds = certificate.rigorous(threat, clean_loss, largest_loss)
        paper = certificate.as_in_the_paper(threat, clean_loss, largest_loss)
        halfway = (clean_loss + largest_loss) / 2
        near = None
        if bounds.vacuous and clean_loss < largest_loss:
            near = nearest(threat, client_bound, clean_loss, halfway, largest_loss)
        accuracy = None
        if clean_errors is not None:
            accuracy = certificate.certified_accuracy(threat, _read_errors(clean_errors), confidence)
    if as_json:
        answer = {
            "noise": noise,
            "rigorous": asdict(bounds),
            "paper": asdict(paper),
            "noise_needed": near and near.noise,
            "nearest": near and asdict(near),
            "certified_accuracy": accuracy and asdict(accuracy),
        }
        typer.echo(json.dumps(answer, indent=2))
        return
    typer.echo(f"{malicious} malicious of {clients:,} clients, noise σ̃ = √2·σ·R/C = {noise:.4g} in units of C")
    typer.echo(
        f"  certified: the expected loss is between {bounds.lower:.4f} and {bounds.upper:.4f} (clean: {clean_loss})"
    )
    typer.echo(f"  as in the paper (asymptotic, not a bound): between {paper.lower:.4f} and {paper.upper:.4f}")
    if accuracy is not None:
        typer.echo(
            f"  this test set, from {accuracy.runs:,} clean runs, with confidence {accuracy.confidence:g}: an attacked "
            f"run gives a model of accuracy {accuracy.accuracy_kept:.4f} or more with probability "
            f"{accuracy.probability:.4f} or more, and one of {accuracy.expected_accuracy:.4f} or more in expectation"
        )
    if near is not None:
        typer.echo(_where(near, halfway))


def _where(near: "Nearest", wanted: float) -> str:
    """The nearest settings that mean something, in words."""
    knobs = {
        "σ̃": (near.noise, "or more"),
        "C": (near.client_bound, "or less"),
        "T": (near.rounds, "or less"),
        "q": (near.client_rate, "or less"),
        "K": (near.malicious, "or less"),
    }
    lines = [
        f"  {name}: none" if value is None else f"  {name}: {value:.3g} {side}" for name, (value, side) in knobs.items()
    ]
    title = "The certificate is vacuous here: it says nothing. With one number changed, the bound is below"
    return "\n".join([f"{title} {wanted:g} from:", *lines])


def _check(malicious: int, clients: int, rounds: int, sigma: float, record_bound: float, client_bound: float) -> None:
    if clients < 1:
        raise ValueError(f"--clients must be at least 1, got {clients}")
    if not 1 <= malicious <= clients:
        raise ValueError(
            f"--malicious must be in [1, {clients}], the number of clients; got {malicious}. With more clients, give "
            "--clients"
        )
    if rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {rounds}")
    for name, value in (("--sigma", sigma), ("--record-bound", record_bound), ("--client-bound", client_bound)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number above 0, got {value}")


def _read_errors(path: Path) -> list[float]:
    try:
        lines = path.read_text().split()
    except OSError as error:
        raise ValueError(f"--clean-errors {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"--clean-errors {path} is not text: it must hold one number in [0, 1] a line") from None
    try:
        return [float(line) for line in lines]
    except ValueError:
        raise ValueError(f"--clean-errors {path} must hold one number in [0, 1] a line") from None
