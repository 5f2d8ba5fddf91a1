"""The commands of those who run a task: keys, roster, task, kits, server B, status."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from precad import deployment
from precad.cli import options
from precad.cli.output import answer, in_lines, need, new_table, say, working

keys = typer.Typer(name="keys", help="Make the keys of a party.", no_args_is_help=True)
roster = typer.Typer(name="roster", help="Say who may take part in a task.", no_args_is_help=True)
task = typer.Typer(name="task", help="Write down what all parties of a task agree on.", no_args_is_help=True)
data = typer.Typer(name="data", help="Keep one budget for a data set, over all tasks on it.", no_args_is_help=True)
kit = typer.Typer(name="kit", help="Write a folder with all that a party needs to start.", no_args_is_help=True)


@keys.command("new")
def keys_new(
    kind: Annotated[Literal["server", "client"], typer.Argument(help="What the party is.")],
    name: Annotated[str, typer.Argument(help="Its name in the task.")],
    folder: Annotated[Path, typer.Option(help="The folder to write the files to.")] = Path(),
    as_json: options.Json = False,
) -> None:
    """Make a party's keys: NAME.key and NAME.tls.key stay with it, NAME.pub goes to the others.

    Example: precad keys new client bank --folder bank
    """
    import datetime

    from precad.deployment.keys import OwnKeys

    now = datetime.datetime.now(datetime.UTC)
    identity = OwnKeys.new(name, now).save(folder)
    lines = [
        f"keys of {kind} {name}: keep .key and .tls.key in {folder} secret, give {folder / name}.pub to the others",
        f"public key {identity.key.hex()}",
        f"certificate fingerprint {identity.fingerprint}",
    ]
    answer(as_json, {"name": name, "public_key": identity.key.hex(), "fingerprint": identity.fingerprint}, *lines)


@task.command("new")
def task_new(
    path: options.TaskFile,
    server_a: Annotated[Path, typer.Option(help="Server A's public file.")],
    server_b: Annotated[Path, typer.Option(help="Server B's public file.")],
    model: options.ModelFile,
    config: Annotated[Path | None, typer.Option(help="A file of `precad train`, such as a run's config.toml.")] = None,
    dataset: Annotated[str, options.DATASET] = "digits",
    preset: Annotated[str | None, options.PRESET] = None,
    rounds: Annotated[int | None, options.ROUNDS] = None,
    participations: Annotated[int | None, options.PARTICIPATIONS] = None,
    minimum: Annotated[int | None, options.MINIMUM] = None,
    budget: Annotated[float | None, options.BUDGET] = None,
    client_rate: Annotated[float | None, options.CLIENT_RATE] = None,
    record_rate: Annotated[float | None, options.RECORD_RATE] = None,
    learning_rate: Annotated[float | None, options.LEARNING_RATE] = None,
    final_learning_rate: Annotated[float | None, options.FINAL_LEARNING_RATE] = None,
    optimiser: Annotated[options.OptimiserName | None, options.OPTIMISER] = None,
    delta: Annotated[float | None, options.DELTA] = None,
    record_bound: Annotated[float | None, options.RECORD_BOUND] = None,
    client_bound: Annotated[float | None, options.CLIENT_BOUND] = None,
    noise_multiplier: Annotated[float | None, options.SIGMA] = None,
    validation: Annotated[Literal["proof", "none"] | None, options.VALIDATION] = None,
    noise: Annotated[options.NoiseName | None, options.NOISE] = None,
    unit: Annotated[options.UnitName | None, options.UNIT] = None,
    participants: Annotated[Literal["public", "hidden"], options.PARTICIPANTS] = "public",
    normalise: Annotated[options.NormaliseName | None, options.NORMALISE] = None,
    reply_seconds: Annotated[
        float | None,
        options.privacy(
            help="How long after its invitation a client replies, to hide how many records it drew: 60 with unit "
            "record and p < 1, else 0, which is as soon as it can."
        ),
    ] = None,
) -> None:
    """Write a task without clients; `precad roster add` adds them.

    To deploy what you tried with `precad train`, give the same --preset and --dataset, or its file as --config.
    Without --participations, a client may take part as often as its budget pays for.

    Example: precad task new task.json --server-a alpha.pub --server-b beta.pub --model model.npy --rounds 100
    --participations 20 --budget 3
    """
    chosen = locals()
    from precad.deployment import keys as files
    from precad.deployment import task as tasks
    from precad.protocol.digests import model_digest
    from precad.settings import Hyperparameters, Protocol
    from precad.simulation.presets import preset as preset_of
    from precad.tables import build, read_toml

    if path.exists():
        raise ValueError(f"{path} exists and is not overwritten")
    base = preset_of(dataset, preset)["training"] if preset else {} if config else _USUAL
    file = read_toml(config).get("training") if config else {}
    if not isinstance(file, dict):
        raise ValueError(f"{config} has no table [training]")
    table = {**base, **file, **options.given(Hyperparameters, chosen)}
    if "budget" not in table:
        raise ValueError("budget is missing: say with --budget how much ε against a server a client may spend")
    if "rounds" not in table:
        raise ValueError("rounds is missing: give --rounds, or a --preset or --config that has it")
    training = build(Hyperparameters, table, "[training]")
    if training.protocol is not Protocol.PRECAD:
        raise ValueError(f"protocol is {training.protocol.value}: two servers deploy precad alone")
    initial = tasks.load_model(model)
    bounds = training.params(initial.size, 1)
    if reply_seconds is None:
        samples = bounds.terms(training.record_rate, training.delta).record_rate < 1
        reply_seconds = tasks.REPLY_SECONDS if samples else 0.0
    made = tasks.Task(
        bounds=bounds,
        training=tasks.Training(
            client_rate=training.client_rate,
            record_rate=training.record_rate,
            rounds=training.rounds,
            schedule=training.schedule,
            delta=training.delta,
            budget=table["budget"],
            participations=participations or training.most_participations(initial.size),
            normalise=training.normalise,
            participants=tasks.Participants(participants),
            minimum=int(participants == "public") if minimum is None else minimum,
            reply_seconds=reply_seconds,
        ),
        server_a=files.load_public(server_a),
        server_b=files.load_public(server_b),
        model=model_digest(initial),
    )
    made.check_reply_time()
    made.save(path)
    if reply_seconds:
        say(f"clients reply {reply_seconds:g} seconds after an invitation: a round takes longer than that")
    say(f"wrote {path}; now add the clients with `precad roster add {path} NAME.pub --records N`")


_USUAL = {
    "client_rate": 0.1,
    "record_rate": 0.05,
    "learning_rate": 1.0,
    "record_bound": 2.0,
    "client_bound": 30.0,
    "noise_multiplier": 1.0,
}
"""Where neither a preset nor a file is given."""


@task.command("show")
def task_show(path: options.TaskFile, as_json: options.Json = False) -> None:
    """Show a task, and the most that it can cost a client in ε."""
    loaded = deployment.load_task(path)
    value = loaded.as_json()
    if not loaded.is_draft:
        loaded.check_budget()
        value |= {"digest": loaded.digest.hex(), "epsilon": loaded.epsilon}
    schedule = {name: item for name, item in value["training"]["schedule"].items() if item is not None}
    lines = value["parameters"] | value["training"] | schedule
    del lines["schedule"]
    for server in ("server_a", "server_b"):
        value[server]["certificate"] = f"sha256:{getattr(loaded, server).fingerprint}"
        lines[server] = f"{value[server]['name']}, {value[server]['certificate']}"
    lines["clients"] = len(loaded.roster)
    if "epsilon" in value:
        lines["cost at most"] = f"ε = {value['epsilon']:.3f} at δ = {loaded.training.delta:g}"
    lines["digest"] = value.get("digest", "none yet: the roster is empty, or has too few clients")
    answer(as_json, value, in_lines(lines))


@task.command("digest")
def task_digest(path: options.TaskFile) -> None:
    """Print the digest that everything is bound to: all parties compare it before they start."""
    say(deployment.load_task(path).digest.hex())


@roster.command("add")
def roster_add(
    path: options.TaskFile,
    public: Annotated[Path, typer.Argument(help="The client's public file.")],
    records: Annotated[int, typer.Option(help="|D_i|, the number of its records, declared once.")],
) -> None:
    """Add a client to a task.

    Example: precad roster add task.json bank.pub --records 600
    """
    from precad.deployment.keys import load_public

    identity = load_public(public)
    deployment.load_task(path).with_member(identity, records).save(path)
    say(f"added {identity.name}; this changes the task's digest")


@roster.command("remove")
def roster_remove(path: options.TaskFile, name: options.ClientName) -> None:
    """Remove a client from a task."""
    deployment.load_task(path).without_member(name).save(path)
    say(f"removed {name}; this changes the task's digest")


@roster.command("show")
def roster_show(path: options.TaskFile, as_json: options.Json = False) -> None:
    """Show the clients of a task."""
    members = deployment.load_task(path).as_json()["roster"]
    answer(as_json, members, *(f"{each['name']}  {each['records']:,} records  {each['key']}" for each in members))


@kit.command("server-b", help="Write the kit of server B.")
@kit.command("server-a", help="Write the kit of server A.")
def kit_server(
    context: typer.Context,
    path: options.TaskFile,
    folder: options.KitFolder,
    model: options.ModelFile,
    host: Annotated[str | None, typer.Option(help="Where server B listens.")] = None,
    port: Annotated[int, typer.Option(help="Server B's port.")] = 8443,
    clients_port: Annotated[int, typer.Option(help="Server A's port for native clients; 0 for none.")] = 8444,
    wheels: options.Wheels = None,
) -> None:
    """Write the kit of the server that the command names."""
    from precad.deployment import kit as kits
    from precad.deployment.task import load_model
    from precad.protocol.states import Role

    role = Role.A if context.info_name == "server-a" else Role.B
    loaded, initial = deployment.load_task(path), load_model(model)
    kits.server(loaded, initial, role, folder, host=host, port=port, clients_port=clients_port, wheels=wheels)
    say(f"wrote {folder}; its README.md says what to do")


@kit.command("client")
def kit_client(
    path: options.TaskFile,
    name: options.ClientName,
    folder: options.KitFolder,
    superlink: Annotated[str, typer.Option(help="Where organisation A's gateway listens.")] = "GATEWAY:9092",
    door: Annotated[str, typer.Option(help="Where server A listens for native clients.")] = "SERVER-A:8444",
    data_ledger: Annotated[
        Path | None, typer.Option(help="The folder of the ledger of the client's data, if they have one.")
    ] = None,
    wheels: options.Wheels = None,
) -> None:
    """Write the kit of a client."""
    from precad.deployment import kit as kits

    kits.client(deployment.load_task(path), name, folder, superlink, door=door, data=data_ledger, wheels=wheels)
    say(f"wrote {folder}; its README.md says what to do")


@kit.command("check")
def kit_check(folder: Annotated[Path, typer.Argument(help="The folder of the kit.")]) -> None:
    """Print the digest of all that a kit runs or reads, if nothing in it was changed since it was made.

    Example: precad kit check org-b
    """
    from precad.deployment import kit as kits

    say(kits.check(folder))


@data.command("new")
def data_new(
    folder: options.DataLedgerFolder,
    epsilon: Annotated[float, options.privacy(help="The most ε against a server that all tasks may cost together.")],
    delta: Annotated[float, options.DELTA] = 1e-5,
    unit: Annotated[options.UnitName, options.UNIT] = "record",
) -> None:
    """Begin the ledger of a data set: every client that trains on it counts there, and stops at the budget.

    Example: precad data new /srv/bank-data --epsilon 4 --delta 1e-6
    """
    from precad.deployment.data_file import DataBudget
    from precad.deployment.data_ledger import DataLedger
    from precad.protocol.params import Unit

    DataLedger.new(folder, DataBudget(epsilon=epsilon, delta=delta, unit=Unit(unit))).close()
    place = folder.absolute()
    say(f'wrote {folder}; name it in the settings of the clients of these data: data = "{place}"')


@data.command("show")
def data_show(folder: options.DataLedgerFolder, as_json: options.Json = False) -> None:
    """Show what each task on a data set cost, what all cost together, and what is left.

    Example: precad data show /srv/bank-data
    """
    from rich.text import Text

    from precad.deployment import data_file

    with working("accounting"):
        value = data_file.view(folder).as_json()
    budget = value["budget"]
    table = new_table(
        f"one {budget['unit']}, δ = {budget['delta']:g}; budget: ε = {budget['epsilon']:g} against a server",
        "task",
        "client",
        "rounds",
        "ε against server",
        "ε against clients",
    )
    for each in value["tasks"]:
        table.add_row(each["task"][:12], Text(each["client"]), f"{each['participations']:,}", *_shown(each["epsilon"]))
    table.add_section()
    table.add_row("together", "", f"{value['rounds']:,}", *_shown(value["epsilon"]))
    answer(as_json, value, table, f"last link {value['digest'] or 'none: no round was counted'}")


def _shown(costs: dict[str, float | None]) -> list[str]:
    return ["none" if cost is None else f"{cost:.3f}" for cost in costs.values()]


def server(config: options.ServerSettings, init: options.Init = False) -> None:
    """Run server A or B until SIGTERM or Ctrl-C; with --init, make its store and stop.

    Example: precad server --init --config org-b/b.toml
    """
    settings = deployment.load_settings(config)
    if init:
        settings.begin()
        say(f"made {settings.store}: keep it for as long as the task runs, and never put it back from a backup")
        return
    need("server")
    from precad.protocol.states import Role

    if settings.role() is Role.A:
        from precad.deployment import service_a

        service_a.run(settings)
    else:
        from precad.deployment import service

        service.run(settings)


def abandon(
    config: options.ServerSettings,
    round_: Annotated[
        int | None, typer.Option("--round", min=0, help="The round that you mean: no other is given up.")
    ] = None,
) -> None:
    """Give up the round that is under way at a server, where the protocol allows it, while the server runs or not.

    Its submissions are destroyed, and the model stays as it is. A round whose noisy share may have left can only be
    finished.

    Example: precad abandon --config org-a/a.toml --round 7
    """
    need("server")
    from precad.deployment import control

    say(control.abandon(deployment.load_settings(config), round_))


def gateway(config: Annotated[Path, typer.Option(help="The gateway's settings, a TOML file.")]) -> None:
    """Run the door of A's Flower to the internet until SIGTERM or Ctrl-C: it passes the fleet's paths alone.

    Example: precad gateway --config org-a/gateway.toml
    """
    need("server")
    from precad.deployment import gateway as door

    door.run(door.load(config))


def status(config: options.ServerSettings, as_json: options.Json = False) -> None:
    """Show how far a server has come: its last round, its model, what is left of the task."""
    value = deployment.load_settings(config).status()
    answer(as_json, value, in_lines(value))
