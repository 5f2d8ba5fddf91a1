"""The command line: thin commands over the package, in panels by what a person wants to do."""

import io
import sys
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from precad.cli import audit, client, deploy, privacy, research, train
from precad.cli.output import say, show_logs
from precad.errors import PrecadError
from precad.files import words_of
from precad.text import printable

PANELS = {
    "See how it works": (research.demo, privacy.protocol),
    "Train and look at a run": (train.train, train.resume, train.watch, train.report),
    "Plan and account for privacy": (privacy.privacy, privacy.certify, research.canaries, privacy.ledger, audit.audit),
    "Run a task across organisations": (
        deploy.keys,
        deploy.task,
        deploy.roster,
        deploy.data,
        deploy.kit,
        deploy.server,
        client.client,
        deploy.gateway,
        deploy.status,
        deploy.abandon,
    ),
    "Research and measure": (research.reproduce, research.bench),
}

UsageError = cast(type[typer.BadParameter], typer.BadParameter.__base__)
"""Of click, or of the copy of click that newer typers bring with them."""


class Commands(TyperGroup):
    """The commands in the order of the panels: typer would put all commands before all groups."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names as they are shown."""
        del ctx
        return [
            str(command.info.name) if isinstance(command, typer.Typer) else command.__name__
            for commands in PANELS.values()
            for command in commands
        ]

    def invoke(self, ctx: Any) -> Any:
        """A mistake in the input of any command is one sentence, and exit code 2."""
        code = 2
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # whoever read what is printed has gone, as `head` does
            raise
        except UsageError as error:  # it may name a file, as `precad audit *` does
            said = printable(error.format_message())
            if said == error.format_message():
                raise
            raise UsageError(said, error.ctx) from None
        except (ValueError, PrecadError) as error:
            said, code = str(error), getattr(error, "exit_code", code)
        except (MemoryError, ArithmeticError, RecursionError) as error:
            said = f"a number or a file is too large, or too small: {type(error).__name__} {error}".strip()
        except OSError as error:
            said = words_of(error) + (f" ({error.filename})" if error.filename else "")
        say(f"Error: {said}", err=True)
        raise typer.Exit(code)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold shares and seeds
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _panel, _commands in PANELS.items():
    for _command in _commands:
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, rich_help_panel=_panel)
        else:
            app.command(rich_help_panel=_panel)(_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        from precad import __version__

        say(f"precad {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Train one model across organisations that do not trust each other with their data."""
    show_logs()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows "?", not a traceback
