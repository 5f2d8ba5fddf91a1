"""Every option and argument that two commands share, once: its names, its sentence and its panel in the help.

A command gives the default, and the type where that varies: ``sigma: Annotated[float | None, options.SIGMA] = None``.
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

ValidationName = Literal["proof", "triples", "none"]
NormaliseName = Literal["constant", "realised"]
NoiseName = Literal["server", "clients"]
UnitName = Literal["record", "client"]
OptimiserName = Literal["sgd", "momentum", "adam"]

_size = partial(typer.Option, rich_help_panel="Size of the run")
privacy = partial(typer.Option, rich_help_panel="Privacy")
_protocol = partial(typer.Option, rich_help_panel="Bounds and validation")
_learning = partial(typer.Option, rich_help_panel="Learning")
_attack = partial(typer.Option, rich_help_panel="Attackers and defences")

CLIENTS = _size(help="n, the number of clients, malicious ones included.")
ROUNDS = _size(help="T, the number of rounds.")
DIM = _size(help="d, the number of the model's parameters.")
CLIENT_RATE = _size(help="q, the probability that a round selects a client.")
RECORD_RATE = _size(help="p, the probability that a client samples a record.")
MINIMUM = _size(help="The fewest participants of a round that is opened; 1, or 0 where they are hidden.")
PARTICIPATIONS = _size(help="T_i, the most rounds in which a client takes part.")

SIGMA = privacy("--sigma", "--noise-multiplier", help="σ: each server adds noise of σ times the sensitivity.")
DELTA = privacy(help="δ, which should be far below one over the number of records.")
GROUP = privacy(help="K, the number of records or clients that are protected together.")
BUDGET = privacy(help="A client sits out once its ε against a server would exceed this.")
UNIT = privacy(help="What the guarantee protects: one record, or all of a client's.")
NOISE = privacy(help="Who must see noise of σ: a server (each adds σ), or clients alone (each adds σ/√2).")
PARTICIPANTS = privacy(help="Whether anyone but the two servers may learn who took part in a round.")

RECORD_BOUND = _protocol(help="R, the bound on one record's gradient.")
CLIENT_BOUND = _protocol(help="C, the bound on a client's update.")
VALIDATION = _protocol(
    "--validation", "--mode", help="proof: clients prove their norm; triples: the paper's way; none."
)
NORMALISE = _protocol(help="What the servers divide the sum by: a public constant, or what those who took part hold.")

LEARNING_RATE = _learning(help="η in the first round.")
FINAL_LEARNING_RATE = _learning(help="η in the last round: it falls linearly. Without it, η stays the same.")
OPTIMISER = _learning(help="How the servers turn the sum into a step.")

MALICIOUS = _attack(help="K, the number of malicious clients.")
ATTACK = _attack(help="What malicious clients send: boost, sign_flip, backdoor, …, or your module:function.")
DEFENCE = _attack(help="What replaces the mean under protocol plain: median, krum, …, or your module:function.")

SEED = typer.Option(help="Make the run repeatable, for research: its noise is then NOT private.")
DEVICE = typer.Option(help="Where gradients are computed: cpu, cuda, mps, …")
DATASET = typer.Option(help="digits (the default), mnist, fashion, cifar10, or your module:function.")
PRESET = typer.Option(help="recommended, paper, or certified; `precad train` takes recommended if you give none.")
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="The folder of the data sets; $PRECAD_DATA if not given.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines; progress goes to stderr.")]
RunCode = Annotated[
    bool, typer.Option("--run-code", help="Run the module:function that the run's configuration names.")
]
ServerSettings = Annotated[Path, typer.Option("--config", help="The server's settings, a TOML file.")]
Init = Annotated[bool, typer.Option("--init", help="Make the server's store. There is no other way to begin.")]
TaskFile = Annotated[Path, typer.Argument(help="The task's file.")]
KitFolder = Annotated[Path, typer.Argument(help="The folder to write.")]
Wheels = Annotated[
    Path | None, typer.Option(help="A folder with the wheels of precad and its libraries, which the kit pins.")
]
ModelFile = Annotated[Path, typer.Option("--model", help="The initial model: a .npy file with one float64 vector.")]
ClientName = Annotated[str, typer.Argument(help="The client's name in the task.")]
DataLedgerFolder = Annotated[Path, typer.Argument(help="The folder of the data set's ledger.")]
LedgerFile = Annotated[Path, typer.Argument(help="The ledger's file; or the folder of its run, server or client.")]


def given(kind: type, values: Mapping[str, object]) -> dict[str, Any]:
    """Of a command's ``locals()``, the fields of this dataclass that the person gave: the others are None."""
    names = [field.name for field in fields(kind)]
    return {name: values[name] for name in names if values.get(name) is not None}
