"""The commands of those who run a task: keys, roster, task, kits, server B, status, audit."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from precad.cli.options import JsonOption, plain_errors

keys = typer.Typer(help="Make the keys of a party.", no_args_is_help=True)
roster = typer.Typer(help="Say who may take part in a task.", no_args_is_help=True)
task = typer.Typer(help="Write down what all parties of a task agree on.", no_args_is_help=True)

kit = typer.Typer(help="Write a folder with what a party needs to start.", no_args_is_help=True)

ConfigOption = Annotated[Path, typer.Option("--config", help="The server's settings, a TOML file.")]
TaskPath = Annotated[Path, typer.Argument(help="The task's file.")]


def mount(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.add_typer(keys, name="keys")
    app.add_typer(roster, name="roster")
    app.add_typer(task, name="task")
    app.add_typer(kit, name="kit")
    app.command()(server)
    app.command()(status)
    app.command()(audit)


@keys.command("new")
def keys_new(
    kind: Annotated[Literal["server", "client"], typer.Argument(help="What the party is.")],
    name: Annotated[str, typer.Argument(help="Its name in the task.")],
    folder: Annotated[Path, typer.Option(help="Where to write the files.")] = Path(),
) -> None:
    """Make a party's keys: NAME.key stays with it, NAME.pub goes to the others."""
    import datetime

    from precad.deployment import keys as files

    with plain_errors():
        if kind == "server":
            identity = files.new_server(folder, name, datetime.datetime.now(datetime.UTC))
        else:
            identity = files.new_client(folder, name)
    typer.echo(f"wrote {folder / name}.key (keep it secret) and {folder / name}.pub (give it to the others)")
    typer.echo(f"public key {identity.key.hex()}")
    if identity.certificate:
        typer.echo(f"certificate fingerprint {identity.fingerprint}")


@task.command("new")
def task_new(
    path: TaskPath,
    server_a: Annotated[Path, typer.Option(help="Server A's public file.")],
    server_b: Annotated[Path, typer.Option(help="Server B's public file.")],
    model: Annotated[Path, typer.Option(help="The initial model: a .npy file with one float64 vector.")],
    rounds: Annotated[int, typer.Option(help="T, the rounds of the run.")],
    participations: Annotated[int, typer.Option(help="T_i, the most rounds that a client takes part in.")],
    budget: Annotated[float, typer.Option(help="The most that the run may cost in ε against a server.")],
    client_rate: Annotated[float, typer.Option(help="q, the probability that a client is selected.")] = 0.1,
    record_rate: Annotated[float, typer.Option(help="p, the probability that a record is in a sample.")] = 0.05,
    learning_rate: Annotated[float, typer.Option(help="η.")] = 1.0,
    delta: Annotated[float, typer.Option(help="δ, far below one over the number of records.")] = 1e-5,
    record_bound: Annotated[float, typer.Option(help="R, the bound on one record's gradient.")] = 2.0,
    client_bound: Annotated[float, typer.Option(help="C, the bound on a client's update.")] = 30.0,
    noise_multiplier: Annotated[float, typer.Option(help="σ, each server's noise over the sensitivity.")] = 1.0,
    validation: Annotated[Literal["proof", "none"], typer.Option(help="How updates are validated.")] = "proof",
    noise: Annotated[Literal["server", "clients"], typer.Option(help="Whom the noise protects against.")] = "server",
    unit: Annotated[Literal["record", "client"], typer.Option(help="Whom the guarantee is about.")] = "record",
    participants: Annotated[
        Literal["public", "hidden"], typer.Option(help="Whether participants may become known.")
    ] = "public",
    normalise: Annotated[
        Literal["constant", "realised"], typer.Option(help="What the sum is divided by.")
    ] = "constant",
) -> None:
    """Write a task without clients; `precad roster add` adds them."""
    from precad.deployment import keys as files
    from precad.deployment import task as tasks
    from precad.protocol.digests import model_digest
    from precad.protocol.params import Noise, Normalise, Params, Unit, Validation

    with plain_errors():
        if path.exists():
            raise ValueError(f"{path} exists and is not overwritten")
        initial = tasks.load_model(model)
        tasks.Task(
            bounds=Params(
                dim=initial.size,
                clients=1,
                record_bound=record_bound,
                client_bound=client_bound,
                noise_multiplier=noise_multiplier,
                validation=Validation(validation),
                noise=Noise(noise),
                unit=Unit(unit),
            ),
            training=tasks.Training(
                client_rate=client_rate,
                record_rate=record_rate,
                rounds=rounds,
                learning_rate=learning_rate,
                delta=delta,
                budget=budget,
                participations=participations,
                normalise=Normalise(normalise),
                participants=tasks.Participants(participants),
            ),
            server_a=files.load_public(server_a),
            server_b=files.load_public(server_b),
            model=model_digest(initial),
        ).save(path)
    typer.echo(f"wrote {path}; now add the clients with `precad roster add {path} NAME.pub --records N`")


@task.command("show")
def task_show(path: TaskPath, as_json: JsonOption = False) -> None:
    """Show a task, and what it can cost a client at most."""
    from precad.deployment import task as tasks

    with plain_errors():
        loaded = tasks.load(path)
        value = loaded.as_json()
        if loaded.roster:
            loaded.check_budget()
            value |= {"digest": loaded.digest.hex(), "epsilon": loaded.epsilon}
    for server in ("server_a", "server_b"):
        value[server]["certificate"] = f"sha256:{getattr(loaded, server).fingerprint}"
    if as_json:
        typer.echo(json.dumps(value, indent=2))
        return
    for part in ("parameters", "training"):
        for name, item in value[part].items():
            typer.echo(f"{name:>17}  {item}")
    for server in ("server_a", "server_b"):
        typer.echo(f"{server:>17}  {value[server]['name']}, {value[server]['certificate']}")
    typer.echo(f"{'clients':>17}  {len(loaded.roster)}")
    if not loaded.roster:
        typer.echo(f"{'digest':>17}  none yet: the roster is empty")
        return
    typer.echo(f"{'cost at most':>17}  ε = {value['epsilon']:.3f} at δ = {loaded.training.delta:g}")
    typer.echo(f"{'digest':>17}  {value['digest']}")


@task.command("digest")
def task_digest(path: TaskPath) -> None:
    """Print the digest that everything is bound to: all parties compare it before they start."""
    from precad.deployment import task as tasks

    with plain_errors():
        typer.echo(tasks.load(path).digest.hex())


@roster.command("add")
def roster_add(
    path: TaskPath,
    public: Annotated[Path, typer.Argument(help="The client's public file.")],
    records: Annotated[int, typer.Option(help="|D_i|, the number of its records, declared once.")],
) -> None:
    """Add a client to a task."""
    from precad.deployment import keys as files
    from precad.deployment import task as tasks

    with plain_errors():
        identity = files.load_public(public)
        tasks.load(path).with_member(identity, records).save(path)
    typer.echo(f"added {identity.name}; the task's digest is another now")


@roster.command("remove")
def roster_remove(path: TaskPath, name: Annotated[str, typer.Argument(help="The client's name.")]) -> None:
    """Remove a client from a task."""
    from precad.deployment import task as tasks

    with plain_errors():
        tasks.load(path).without_member(name).save(path)
    typer.echo(f"removed {name}; the task's digest is another now")


@roster.command("show")
def roster_show(path: TaskPath, as_json: JsonOption = False) -> None:
    """Show the clients of a task."""
    from precad.deployment import task as tasks

    with plain_errors():
        value = tasks.load(path).as_json()["roster"]
    if as_json:
        typer.echo(json.dumps(value, indent=2))
        return
    for member in value:
        typer.echo(f"{member['name']}  {member['records']:,} records  {member['key']}")


KitFolder = Annotated[Path, typer.Argument(help="The folder to write.")]


ModelOption = Annotated[Path, typer.Option("--model", help="The initial model, a .npy file.")]


@kit.command("server-a")
def kit_server_a(path: TaskPath, folder: KitFolder, model: ModelOption) -> None:
    """Write the kit of server A."""
    from precad.deployment import kit as kits
    from precad.protocol.states import Role

    with plain_errors():
        kits.server(path, model, Role.A, folder)
    typer.echo(f"wrote {folder}; its README.md says what to do")


@kit.command("server-b")
def kit_server_b(path: TaskPath, folder: KitFolder, model: ModelOption) -> None:
    """Write the kit of server B."""
    from precad.deployment import kit as kits
    from precad.protocol.states import Role

    with plain_errors():
        kits.server(path, model, Role.B, folder)
    typer.echo(f"wrote {folder}; its README.md says what to do")


@kit.command("client")
def kit_client(
    path: TaskPath,
    name: Annotated[str, typer.Argument(help="The client's name.")],
    folder: KitFolder,
    superlink: Annotated[str, typer.Option(help="Where organisation A's SuperLink listens.")] = "SUPERLINK:8000",
) -> None:
    """Write the kit of a client."""
    from precad.deployment import kit as kits

    with plain_errors():
        kits.client(path, name, folder, superlink)
    typer.echo(f"wrote {folder}; its README.md says what to do")


def server(config: ConfigOption) -> None:
    """Run server B until SIGTERM or Ctrl-C."""
    with plain_errors():
        try:
            from precad.deployment import service as http_server
        except ModuleNotFoundError as error:
            raise ValueError(f"{error.name} is not installed: pip install 'precad[server]'") from None
        from precad.deployment import config as settings

        http_server.run(settings.load(config))


def status(config: ConfigOption, as_json: JsonOption = False) -> None:
    """Show how far a server has come: its last round, its model, what is left of the task."""
    from precad.deployment import config as settings
    from precad.deployment import status as report

    with plain_errors():
        value = report.of(settings.load(config))
    if as_json:
        typer.echo(json.dumps(value, indent=2))
        return
    for name, item in value.items():
        typer.echo(f"{name:>15}  {item}")


def audit(
    log_a: Annotated[Path, typer.Argument(help="Server A's audit log.")],
    log_b: Annotated[Path, typer.Argument(help="Server B's audit log.")],
    clients: Annotated[list[Path] | None, typer.Argument(help="Clients' audit logs.")] = None,
    task_file: Annotated[Path, typer.Option("--task", help="The task's file.")] = Path("task.json"),
) -> None:
    """Prove that the logs of a task agree, or name the first line that differs."""
    from precad.deployment import receipts
    from precad.deployment import task as tasks

    with plain_errors():
        loaded = tasks.load(task_file)
        logs = [receipts.read(path) for path in (log_a, log_b, *(clients or []))]
        named = {receipts.owner(log): log for log in logs[2:]}
        typer.echo(receipts.audit(loaded, logs[0], logs[1], named))
