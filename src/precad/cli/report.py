"""``precad report`` and ``precad watch``: the page of a run, in a file or live."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from precad.cli.options import plain_errors

if TYPE_CHECKING:
    from precad.report.run import Source


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="The folder of a run or of a server; several are shown over each other.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file; report.html in the run's folder, or here for several runs.")
    ] = None,
) -> None:
    """Write a run's page: one HTML file with every figure of the run, or of several side by side."""
    from precad.report.page import REPORT_NAME, write_report

    with plain_errors():
        place = out if out is not None else runs[0] / REPORT_NAME if len(runs) == 1 else Path(REPORT_NAME)
        write_report([_source(run).read() for run in runs], place)
    typer.echo(f"wrote {place}")


def watch(
    run: Annotated[Path, typer.Argument(help="The folder of a run or of a server.")],
    port: Annotated[int, typer.Option(help="Where on 127.0.0.1; 0 for a free one.")] = 8600,
) -> None:
    """Show a run's page while it is trained, on this machine alone, until Ctrl-C."""
    import time

    from precad.report.live import LiveServer, Watched

    with plain_errors():
        server = LiveServer(Watched(_source(run), time.time), port)
    try:
        typer.echo(f"watching {run} at {server.url}: Ctrl-C ends")
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        typer.echo("ended; the run itself goes on")
    finally:
        server.server_close()


def _source(folder: Path) -> "Source":
    from precad.report.run import run_source

    if not (folder / "config.toml").is_file():
        from precad.deployment.run_view import server_source

        found = server_source(folder)
        if found is not None:
            return found
    return run_source(folder)
