"""Every option and argument that two commands share, once: its names, its sentence and its panel in the help.

A command gives the default, and the type where that varies: ``sigma: Annotated[float | None, options.SIGMA] = None``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

ValidationName = Literal["proof", "triples", "none"]
NormaliseName = Literal["constant", "realised"]
NoiseName = Literal["server", "clients"]
UnitName = Literal["record", "client"]
OptimiserName = Literal["sgd", "momentum", "adam"]

_SIZE = "Size of the run"
PRIVACY = "Privacy"
_PROTOCOL = "Bounds and validation"
_LEARNING = "Learning"
_ATTACK = "Attackers and defences"

CLIENTS = typer.Option(help="n, the number of clients, malicious ones included.", rich_help_panel=_SIZE)
ROUNDS = typer.Option(help="T, the number of rounds.", rich_help_panel=_SIZE)
DIM = typer.Option(help="d, the number of the model's parameters.", rich_help_panel=_SIZE)
CLIENT_RATE = typer.Option(help="q, the probability that a round selects a client.", rich_help_panel=_SIZE)
RECORD_RATE = typer.Option(help="p, the probability that a client samples a record.", rich_help_panel=_SIZE)
PARTICIPATIONS = typer.Option(help="T_i, the most rounds in which a client takes part.", rich_help_panel=_SIZE)

SIGMA = typer.Option(
    "--sigma",
    "--noise-multiplier",
    help="σ: each server adds noise of σ times the sensitivity.",
    rich_help_panel=PRIVACY,
)
DELTA = typer.Option(help="δ, which should be far below one over the number of records.", rich_help_panel=PRIVACY)
BUDGET = typer.Option(help="The most ε against a server that a client may spend.", rich_help_panel=PRIVACY)
UNIT = typer.Option(help="What the guarantee protects: one record, or all of a client's.", rich_help_panel=PRIVACY)
NOISE = typer.Option(
    help="Against whom one server's noise protects: a server (σ each), or clients alone (σ/√2 each).",
    rich_help_panel=PRIVACY,
)
PARTICIPANTS = typer.Option(
    help="Whether people outside the servers may learn who took part in a round.", rich_help_panel=PRIVACY
)

RECORD_BOUND = typer.Option(help="R, the bound on one record's gradient.", rich_help_panel=_PROTOCOL)
CLIENT_BOUND = typer.Option(help="C, the bound on a client's update.", rich_help_panel=_PROTOCOL)
VALIDATION = typer.Option("--validation", "--mode", help="How the servers validate updates.", rich_help_panel=_PROTOCOL)
NORMALISE = typer.Option(
    help="What the servers divide the sum by: a public constant, or the records of those who took part.",
    rich_help_panel=_PROTOCOL,
)

LEARNING_RATE = typer.Option(help="η in the first round.", rich_help_panel=_LEARNING)
FINAL_LEARNING_RATE = typer.Option(
    help="η in the last round: it falls along a line. Without it, η stays the same.", rich_help_panel=_LEARNING
)
OPTIMISER = typer.Option(help="How the servers turn the sum into a step.", rich_help_panel=_LEARNING)

MALICIOUS = typer.Option(help="K, the number of malicious clients.", rich_help_panel=_ATTACK)
ATTACK = typer.Option(
    help="What malicious clients send: boost, sign_flip, backdoor, …, or your module:function.", rich_help_panel=_ATTACK
)
DEFENCE = typer.Option(
    help="What replaces the mean under protocol plain: median, krum, …, or your module:function.",
    rich_help_panel=_ATTACK,
)

DATASET = typer.Option(help="digits (the default), mnist, fashion, cifar10, or your module:function.")
PRESET = typer.Option(help="recommended, paper, or certified; `precad train` takes recommended if you give none.")
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="The folder of the data sets; $PRECAD_DATA if not given.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines; progress goes to stderr.")]
ServerSettings = Annotated[Path, typer.Option("--config", help="The server's settings, a TOML file.")]
TaskFile = Annotated[Path, typer.Argument(help="The task's file.")]
KitFolder = Annotated[Path, typer.Argument(help="The folder to write.")]
ModelFile = Annotated[Path, typer.Option("--model", help="The initial model: a .npy file with one float64 vector.")]
ClientName = Annotated[str, typer.Argument(help="The client's name in the task.")]
LedgerFile = Annotated[Path, typer.Argument(help="The ledger's file.")]


def training_table(given: Mapping[str, object]) -> dict[str, Any]:
    """Make a ``[training]`` table of a command's ``locals()``: the hyperparameters that the person gave."""
    from dataclasses import fields

    from precad.settings import Hyperparameters

    names = {field.name for field in fields(Hyperparameters)}
    return {name: value for name, value in given.items() if name in names and value is not None}
