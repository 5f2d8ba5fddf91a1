"""The commands of those who run a task: keys, roster, task, kits, server B, status, audit."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from precad import deployment
from precad.cli import options
from precad.cli.output import answer, in_lines, need

keys = typer.Typer(name="keys", help="Make the keys of a party.", no_args_is_help=True)
roster = typer.Typer(name="roster", help="Say who may take part in a task.", no_args_is_help=True)
task = typer.Typer(name="task", help="Write down what all parties of a task agree on.", no_args_is_help=True)
kit = typer.Typer(name="kit", help="Write a folder with all that a party needs to start.", no_args_is_help=True)


@keys.command("new")
def keys_new(
    kind: Annotated[Literal["server", "client"], typer.Argument(help="What the party is.")],
    name: Annotated[str, typer.Argument(help="Its name in the task.")],
    folder: Annotated[Path, typer.Option(help="The folder to write the files to.")] = Path(),
    as_json: options.Json = False,
) -> None:
    """Make a party's keys: NAME.key stays with it, NAME.pub goes to the others.

    Example: precad keys new client bank --folder bank
    """
    import datetime

    from precad.deployment.keys import OwnKeys

    now = datetime.datetime.now(datetime.UTC)
    identity = (OwnKeys.of_server(name, now) if kind == "server" else OwnKeys.of_client(name)).save(folder)
    lines = [
        f"wrote {folder / name}.key (keep it secret) and {folder / name}.pub (give it to the others)",
        f"public key {identity.key.hex()}",
    ]
    if identity.certificate:
        lines.append(f"certificate fingerprint {identity.fingerprint}")
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
    file = read_toml(config).get("training", {}) if config else {}
    table = {**base, **file, **options.given(Hyperparameters, chosen)}
    if "budget" not in table:
        raise ValueError("budget is missing: say with --budget how much ε against a server a client may spend")
    if "rounds" not in table:
        raise ValueError("rounds is missing: give --rounds, or a --preset or --config that has it")
    training = build(Hyperparameters, table, "[training]")
    if training.protocol is not Protocol.PRECAD:
        raise ValueError(f"protocol is {training.protocol.value}: two servers deploy precad alone")
    initial = tasks.load_model(model)
    tasks.Task(
        bounds=training.params(initial.size, 1),
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
        ),
        server_a=files.load_public(server_a),
        server_b=files.load_public(server_b),
        model=model_digest(initial),
    ).save(path)
    typer.echo(f"wrote {path}; now add the clients with `precad roster add {path} NAME.pub --records N`")


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
    if loaded.roster:
        loaded.check_budget()
        value |= {"digest": loaded.digest.hex(), "epsilon": loaded.epsilon}
    schedule = {name: item for name, item in value["training"]["schedule"].items() if item is not None}
    lines = value["parameters"] | value["training"] | schedule
    del lines["schedule"]
    for server in ("server_a", "server_b"):
        value[server]["certificate"] = f"sha256:{getattr(loaded, server).fingerprint}"
        lines[server] = f"{value[server]['name']}, {value[server]['certificate']}"
    lines["clients"] = len(loaded.roster)
    if loaded.roster:
        lines["cost at most"] = f"ε = {value['epsilon']:.3f} at δ = {loaded.training.delta:g}"
    lines["digest"] = value.get("digest", "none yet: the roster is empty")
    answer(as_json, value, in_lines(lines))


@task.command("digest")
def task_digest(path: options.TaskFile) -> None:
    """Print the digest that everything is bound to: all parties compare it before they start."""
    typer.echo(deployment.load_task(path).digest.hex())


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
    typer.echo(f"added {identity.name}; this changes the task's digest")


@roster.command("remove")
def roster_remove(path: options.TaskFile, name: options.ClientName) -> None:
    """Remove a client from a task."""
    deployment.load_task(path).without_member(name).save(path)
    typer.echo(f"removed {name}; this changes the task's digest")


@roster.command("show")
def roster_show(path: options.TaskFile, as_json: options.Json = False) -> None:
    """Show the clients of a task."""
    members = deployment.load_task(path).as_json()["roster"]
    answer(as_json, members, *(f"{each['name']}  {each['records']:,} records  {each['key']}" for each in members))


@kit.command("server-b", help="Write the kit of server B.")
@kit.command("server-a", help="Write the kit of server A.")
def kit_server(
    context: typer.Context, path: options.TaskFile, folder: options.KitFolder, model: options.ModelFile
) -> None:
    """Write the kit of the server that the command names."""
    from precad.deployment import kit as kits
    from precad.deployment.task import load_model
    from precad.protocol.states import Role

    role = Role.A if context.info_name == "server-a" else Role.B
    kits.server(deployment.load_task(path), load_model(model), role, folder)
    typer.echo(f"wrote {folder}; its README.md says what to do")


@kit.command("client")
def kit_client(
    path: options.TaskFile,
    name: options.ClientName,
    folder: options.KitFolder,
    superlink: Annotated[str, typer.Option(help="Where organisation A's SuperLink listens.")] = "SUPERLINK:8000",
) -> None:
    """Write the kit of a client."""
    from precad.deployment import kit as kits

    kits.client(deployment.load_task(path), name, folder, superlink)
    typer.echo(f"wrote {folder}; its README.md says what to do")


def server(config: options.ServerSettings) -> None:
    """Run server B until SIGTERM or Ctrl-C.

    Example: precad server --config org-b/b.toml
    """
    need("server")
    from precad.deployment import service

    service.run(deployment.load_settings(config))


def status(config: options.ServerSettings, as_json: options.Json = False) -> None:
    """Show how far a server has come: its last round, its model, what is left of the task."""
    value = deployment.load_settings(config).status()
    answer(as_json, value, in_lines(value))


def audit(
    log_a: Annotated[Path, typer.Argument(help="Server A's audit log.")],
    log_b: Annotated[Path, typer.Argument(help="Server B's audit log.")],
    clients: Annotated[list[Path] | None, typer.Argument(help="Clients' audit logs.")] = None,
    task_file: Annotated[Path, typer.Option("--task", help="The task's file.")] = Path("task.json"),
    as_json: options.Json = False,
) -> None:
    """Prove that the logs of a task agree, or name the first line that differs and fail.

    Example: precad audit alpha.audit.log beta.audit.log bank.audit.log --task task.json
    """
    from precad.deployment import receipts

    loaded = deployment.load_task(task_file)
    logs = [receipts.read(path) for path in (log_a, log_b, *(clients or []))]
    named = {receipts.owner(log): log for log in logs[2:]}
    found = receipts.audit(loaded, logs[0], logs[1], named)
    answer(as_json, {"agree": True, "found": found}, found)
