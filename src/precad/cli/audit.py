"""The command of a person who answers for the data, and trusts neither the one who ran it nor a server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from precad.cli import options
from precad.cli.output import answer, working

if TYPE_CHECKING:
    from precad.report.statement import Statement


def audit(
    what: Annotated[Path, typer.Argument(help="The folder of a run; or server A's audit log.")],
    log_b: Annotated[Path | None, typer.Argument(help="Server B's audit log.")] = None,
    clients: Annotated[list[Path] | None, typer.Argument(help="Clients' audit logs.")] = None,
    task_file: Annotated[Path, typer.Option("--task", help="Of logs: the task's file.")] = Path("task.json"),
    kept: Annotated[
        str | None, typer.Option("--digest", help="The digest of the run, or of the task, that you kept elsewhere.")
    ] = None,
    statement: Annotated[
        Path | None, typer.Option(help="Write the statement to this file, as .html to print, or as .md.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compare all files of a run, or the logs of a task; name what differs, and end with a statement to sign.

    A run's folder is only read. Exit code 1 if a file of a run differs, 2 if logs do.

    Example: precad audit runs/first --statement first.html
    """
    if statement is not None and statement.suffix not in (".html", ".md"):
        raise ValueError(f"--statement must end in .html or .md, got {statement}")
    if what.is_dir():
        _audit_run(what, log_b, kept, statement, as_json)
        return
    if log_b is None:
        raise ValueError(f"{what} is no folder of a run; of a task, give the logs of both servers")
    from precad.deployment import receipts
    from precad.deployment import task as tasks
    from precad.deployment.run_view import task_statement

    loaded = tasks.load(task_file)
    if kept is not None and kept.lower() != loaded.digest.hex():
        raise ValueError(f"{task_file} has the digest {loaded.digest.hex()}, and {kept!r} was kept")
    logs = [receipts.read(path) for path in (what, log_b, *(clients or []))]
    named = {receipts.owner(log): log for log in logs[2:]}
    found = receipts.audit(loaded, logs[0], logs[1], named)
    with working("accounting"):
        said = task_statement(loaded, logs[0], named)
        text = said.as_text()
    _write_statement(said, statement)
    answer(as_json, {"agree": True, "found": found, "statement": said.as_json()}, found, "", text)


def _audit_run(run: Path, other: Path | None, kept: str | None, statement: Path | None, as_json: bool) -> None:
    from precad.report.audit import audit_run

    if other is not None:
        raise ValueError(f"{run} is the folder of a run, which is audited alone; got {other} too")
    if statement is not None and statement.resolve().parent == run.resolve():
        raise ValueError(f"--statement {statement} would be a file in the run's folder, which is only read")
    with working("auditing"):
        found = audit_run(run, kept)
        text = found.as_text()
    _write_statement(found.statement, statement)
    answer(as_json, found.as_json(), text)
    if not found.agree:
        raise typer.Exit(1)


def _write_statement(statement: "Statement | None", place: Path | None) -> None:
    from precad.files import write_file

    if place is not None and statement is not None:
        text = statement.as_html() if place.suffix == ".html" else statement.as_text()
        write_file(place, text, private=not statement.simulated)
    elif place is not None:
        raise ValueError("the files do not say what was run: there is no statement to write")
