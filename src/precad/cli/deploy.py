"""The commands of those who run a task: keys, roster, task, kits, server B, status, audit."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from precad.cli import options
from precad.cli.output import needs, plain_errors, print_json, print_lines

keys = typer.Typer(name="keys", help="Make the keys of a party.", no_args_is_help=True)
roster = typer.Typer(name="roster", help="Say who may take part in a task.", no_args_is_help=True)
task = typer.Typer(name="task", help="Write down what all parties of a task agree on.", no_args_is_help=True)
kit = typer.Typer(name="kit", help="Write a folder with all that a party needs to start.", no_args_is_help=True)


@keys.command("new")
def keys_new(
    kind: Annotated[Literal["server", "client"], typer.Argument(help="What the party is.")],
    name: Annotated[str, typer.Argument(help="Its name in the task.")],
    folder: Annotated[Path, typer.Option(help="The folder to write the files to.")] = Path(),
    as_json: Annotated[bool, options.JSON] = False,
) -> None:
    """Make a party's keys: NAME.key stays with it, NAME.pub goes to the others.

    Example: precad keys new client bank --folder bank
    """
    import datetime

    from precad.deployment import keys as files

    with plain_errors():
        if kind == "server":
            identity = files.new_server(folder, name, datetime.datetime.now(datetime.UTC))
        else:
            identity = files.new_client(folder, name)
    if as_json:
        print_json({"name": name, "public_key": identity.key.hex(), "fingerprint": identity.fingerprint})
        return
    typer.echo(f"wrote {folder / name}.key (keep it secret) and {folder / name}.pub (give it to the others)")
    typer.echo(f"public key {identity.key.hex()}")
    if identity.certificate:
        typer.echo(f"certificate fingerprint {identity.fingerprint}")


@task.command("new")
def task_new(
    path: Annotated[Path, options.TASK],
    server_a: Annotated[Path, typer.Option(help="Server A's public file.")],
    server_b: Annotated[Path, typer.Option(help="Server B's public file.")],
    model: Annotated[Path, options.MODEL],
    rounds: Annotated[int, options.ROUNDS],
    participations: Annotated[int, options.PARTICIPATIONS],
    budget: Annotated[float, options.BUDGET],
    client_rate: Annotated[float, options.CLIENT_RATE] = 0.1,
    record_rate: Annotated[float, options.RECORD_RATE] = 0.05,
    learning_rate: Annotated[float, options.LEARNING_RATE] = 1.0,
    delta: Annotated[float, options.DELTA] = 1e-5,
    record_bound: Annotated[float, options.RECORD_BOUND] = 2.0,
    client_bound: Annotated[float, options.CLIENT_BOUND] = 30.0,
    noise_multiplier: Annotated[float, options.SIGMA] = 1.0,
    validation: Annotated[Literal["proof", "none"], options.VALIDATION] = "proof",
    noise: Annotated[options.NoiseName, options.NOISE] = "server",
    unit: Annotated[options.UnitName, options.UNIT] = "record",
    participants: Annotated[Literal["public", "hidden"], options.PARTICIPANTS] = "public",
    normalise: Annotated[options.NormaliseName, options.NORMALISE] = "constant",
) -> None:
    """Write a task without clients; `precad roster add` adds them.

    Example: precad task new task.json --server-a alpha.pub --server-b beta.pub --model model.npy --rounds 100
    --participations 20 --budget 3
    """
    from precad.deployment import keys as files
    from precad.deployment import task as tasks
    from precad.protocol.digests import model_digest
    from precad.protocol.params import Noise, Normalise, Params, Unit, Validation
    from precad.protocol.update import Schedule

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
                schedule=Schedule(learning_rate=learning_rate),
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
def task_show(path: Annotated[Path, options.TASK], as_json: Annotated[bool, options.JSON] = False) -> None:
    """Show a task, and the most that it can cost a client in ε."""
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
        print_json(value)
        return
    lines = value["parameters"] | value["training"]
    for server in ("server_a", "server_b"):
        lines[server] = f"{value[server]['name']}, {value[server]['certificate']}"
    lines["clients"] = len(loaded.roster)
    if loaded.roster:
        lines["cost at most"] = f"ε = {value['epsilon']:.3f} at δ = {loaded.training.delta:g}"
    print_lines(lines | {"digest": value.get("digest", "none yet: the roster is empty")})


@task.command("digest")
def task_digest(path: Annotated[Path, options.TASK]) -> None:
    """Print the digest that everything is bound to: all parties compare it before they start."""
    from precad.deployment import task as tasks

    with plain_errors():
        typer.echo(tasks.load(path).digest.hex())


@roster.command("add")
def roster_add(
    path: Annotated[Path, options.TASK],
    public: Annotated[Path, typer.Argument(help="The client's public file.")],
    records: Annotated[int, typer.Option(help="|D_i|, the number of its records, declared once.")],
) -> None:
    """Add a client to a task.

    Example: precad roster add task.json bank.pub --records 600
    """
    from precad.deployment import keys as files
    from precad.deployment import task as tasks

    with plain_errors():
        identity = files.load_public(public)
        tasks.load(path).with_member(identity, records).save(path)
    typer.echo(f"added {identity.name}; this changes the task's digest")


@roster.command("remove")
def roster_remove(path: Annotated[Path, options.TASK], name: Annotated[str, options.CLIENT_NAME]) -> None:
    """Remove a client from a task."""
    from precad.deployment import task as tasks

    with plain_errors():
        tasks.load(path).without_member(name).save(path)
    typer.echo(f"removed {name}; this changes the task's digest")


@roster.command("show")
def roster_show(path: Annotated[Path, options.TASK], as_json: Annotated[bool, options.JSON] = False) -> None:
    """Show the clients of a task."""
    from precad.deployment import task as tasks

    with plain_errors():
        value = tasks.load(path).as_json()["roster"]
    if as_json:
        print_json(value)
        return
    for member in value:
        typer.echo(f"{member['name']}  {member['records']:,} records  {member['key']}")


@kit.command("server-a")
def kit_server_a(
    path: Annotated[Path, options.TASK],
    folder: Annotated[Path, options.KIT],
    model: Annotated[Path, options.MODEL],
) -> None:
    """Write the kit of server A."""
    from precad.deployment import kit as kits
    from precad.protocol.states import Role

    with plain_errors():
        kits.server(path, model, Role.A, folder)
    typer.echo(f"wrote {folder}; its README.md says what to do")


@kit.command("server-b")
def kit_server_b(
    path: Annotated[Path, options.TASK],
    folder: Annotated[Path, options.KIT],
    model: Annotated[Path, options.MODEL],
) -> None:
    """Write the kit of server B."""
    from precad.deployment import kit as kits
    from precad.protocol.states import Role

    with plain_errors():
        kits.server(path, model, Role.B, folder)
    typer.echo(f"wrote {folder}; its README.md says what to do")


@kit.command("client")
def kit_client(
    path: Annotated[Path, options.TASK],
    name: Annotated[str, options.CLIENT_NAME],
    folder: Annotated[Path, options.KIT],
    superlink: Annotated[str, typer.Option(help="Where organisation A's SuperLink listens.")] = "SUPERLINK:8000",
) -> None:
    """Write the kit of a client."""
    from precad.deployment import kit as kits

    with plain_errors():
        kits.client(path, name, folder, superlink)
    typer.echo(f"wrote {folder}; its README.md says what to do")


def server(config: Annotated[Path, options.CONFIG]) -> None:
    """Run server B until SIGTERM or Ctrl-C.

    Example: precad server --config org-b/b.toml
    """
    with plain_errors():
        with needs("server"):
            from precad.deployment import service as http_server
        from precad.deployment import config as settings

        http_server.run(settings.load(config))


def status(config: Annotated[Path, options.CONFIG], as_json: Annotated[bool, options.JSON] = False) -> None:
    """Show how far a server has come: its last round, its model, what is left of the task."""
    from precad.deployment import config as settings
    from precad.deployment import status as report

    with plain_errors():
        value = report.of(settings.load(config))
    if as_json:
        print_json(value)
        return
    print_lines(value)


def audit(
    log_a: Annotated[Path, typer.Argument(help="Server A's audit log.")],
    log_b: Annotated[Path, typer.Argument(help="Server B's audit log.")],
    clients: Annotated[list[Path] | None, typer.Argument(help="Clients' audit logs.")] = None,
    task_file: Annotated[Path, typer.Option("--task", help="The task's file.")] = Path("task.json"),
    as_json: Annotated[bool, options.JSON] = False,
) -> None:
    """Prove that the logs of a task agree, or name the first line that differs and fail.

    Example: precad audit alpha.audit.log beta.audit.log bank.audit.log --task task.json
    """
    from precad.deployment import receipts
    from precad.deployment import task as tasks

    with plain_errors():
        loaded = tasks.load(task_file)
        logs = [receipts.read(path) for path in (log_a, log_b, *(clients or []))]
        named = {receipts.owner(log): log for log in logs[2:]}
        found = receipts.audit(loaded, logs[0], logs[1], named)
    if as_json:
        print_json({"agree": True, "found": found})
        return
    typer.echo(found)
