"""The command of a client: a native one, which runs its own operator's code alone, or the keeper of one's key."""

import inspect
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from precad.cli.output import need, say

if TYPE_CHECKING:
    from precad.deployment.native import Update
    from precad.deployment.task import Task


def client(
    config: Annotated[Path, typer.Option(help="The client's settings, a TOML file.")],
    train: Annotated[
        str | None, typer.Option(help="Your module:function. train(model, round) returns the update, for unit client.")
    ] = None,
    records: Annotated[
        str | None, typer.Option(help="Your module:function. load() returns (model, loss, records), for unit record.")
    ] = None,
    flower: Annotated[
        bool, typer.Option("--flower", help="Keep the key for apps on Flower, which train as another user.")
    ] = False,
) -> None:
    """Take part in a task: ask A for rounds, train, and answer, until the task is over, SIGTERM or Ctrl-C.

    Nothing that arrives is executed: the module is yours, found in this folder or on Python's path. With --flower, apps
    that A ships train, and this process keeps key, state and budget from them.

    Exit code 0 says that the task is over for this client, or that it was stopped; 1 that it was refused for good; 2
    that something in its settings, its files or its module is wrong.

    Example: precad client --config bank.toml --train mymodule:train
    """
    need("server")
    from precad.deployment import client_config, keeper, native
    from precad.deployment.log import log_as_json

    settings = client_config.load(config)
    if flower:
        if train is not None or records is not None:
            raise ValueError("with --flower the app trains: give neither --train nor --records")
        keeper.run(settings)
        return
    task = settings.load_task()
    update = _update(task, settings.name, train, records)
    log_as_json()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        say(f"ended: {native.run(settings, task, update)}")
    except KeyboardInterrupt:
        say(f"stopped: {settings.store} knows how far it came, and the same command goes on from there")


def _update(task: "Task", name: str, train: str | None, records: str | None) -> "Update":
    from precad.protocol.params import Unit

    by_record = task.bounds.unit is Unit.RECORD
    given, option, other = (records, "--records", "--train") if by_record else (train, "--train", "--records")
    if given is None or (train is not None and records is not None):
        raise ValueError(
            f"the task's unit is {task.bounds.unit.value}: give {option} module:function, and no {other}; or --flower, "
            "if apps on Flower train"
        )
    return _by_record(task, name, given) if by_record else _by_client(given)


def _by_client(train: str) -> "Update":
    function = _function("training", train, "model", "round")
    return lambda model, round_, _look: function(model, round_)


def _by_record(task: "Task", name: str, load: str) -> "Update":
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise ValueError("torch is not installed, and training by record needs it: pip install torch")
    from precad.gradients.record_update import RecordUpdate
    from precad.mpc import fixed_point
    from precad.simulation.user_code import explained

    function = _function("loader of records", load)
    with explained(f"{load!r}"):
        update = RecordUpdate.of(function(), task.bounds.dim, task.members[name].records)
    return lambda model, _round, look: fixed_point.decode(
        update.sum_at(model, task.record_terms(name, look)), task.bounds.fractional_bits
    )


def _function(what: str, name: str, *parameters: str) -> Any:
    """The person's function, if it can be called with these parameters."""
    from precad.simulation.user_code import load_plugin

    if not all(name.partition(":")[::2]):
        raise ValueError(f"the {what} must be given as module:function, got {name!r}")
    function = load_plugin(what, name)
    try:
        inspect.signature(function).bind(*parameters)
    except (TypeError, ValueError):
        wanted = f"({', '.join(parameters)})"
        raise ValueError(f"the {what} {name!r} must be callable as {name.partition(':')[2]}{wanted}") from None
    return function
