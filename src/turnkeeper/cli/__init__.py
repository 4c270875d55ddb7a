"""The command line. One module per command; this one names them and turns errors into exit codes.

A command's module is imported only when it is asked for, so that `turnkeeper version` does not load a server.
"""

import sys
from importlib import import_module
from typing import Final, Protocol, cast

import typer
from rich.console import Console
from rich.text import Text

from turnkeeper.cli.exits import exit_of_error
from turnkeeper.errors import TurnkeeperError

COMMANDS: Final = (
    "serve",
    "api",
    "work",
    "run",
    "guardian",
    "agents",
    "sessions",
    "turns",
    "events",
    "files",
    "artifacts",
    "approvals",
    "webhooks",
    "keys",
    "secrets",
    "skills",
    "runners",
    "hook",
    "budgets",
    "prices",
    "usage",
    "admin",
    "export",
    "verify",
    "validate",
    "policy",
    "doctor",
    "config",
    "demo",
    "migrate",
    "version",
)
"""In the order of the help; a command's module has its name and a function `register`."""


class CommandModule(Protocol):
    """What a command's module has."""

    def register(self, app: typer.Typer) -> None:
        """Adds the command."""
        ...


def build_app(first: str | None = None) -> typer.Typer:
    """The application; with the name of a command only that one is loaded."""
    app = typer.Typer(
        name="turnkeeper",
        help="Runs AI-agent turns durably on machines you own, with a policy Guardian in the path of every step.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    # A callback keeps the commands' names even when there is only one.
    app.callback()(_nothing)
    for name in (first,) if first in COMMANDS else COMMANDS:
        cast("CommandModule", import_module(f"turnkeeper.cli.{name}")).register(app)
    return app


def main() -> None:
    """The `turnkeeper` command."""
    words = sys.argv[1:]
    try:
        build_app(words[0] if words else None)()
    except TurnkeeperError as error:
        show_error(error)
        sys.exit(exit_of_error(error))


def show_error(error: TurnkeeperError) -> None:
    """An error for a person, on standard error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), error.message, (f" ({error.error_code})", "dim")))
    if error.hint:
        console.print(error.hint, markup=False)


def _nothing() -> None:
    return
