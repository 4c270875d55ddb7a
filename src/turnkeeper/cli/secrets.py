"""`turnkeeper secrets`: tokens that tools use without having them (contract 2.13)."""

import sys
from typing import Annotated, Final

import typer

from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.options import AsJson
from turnkeeper.cli.over_api import Limit, add_group, over_api, show_made
from turnkeeper.cli.shown import show_documents
from turnkeeper.client import Turnkeeper

SECRET_COLUMNS: Final = ("id", "name", "hosts", "created_at")

SecretId = Annotated[str, typer.Argument(metavar="ID", help="The secret's id, from `secrets list`.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    commands = {"create": create, "list": list_secrets, "delete": delete}
    add_group(app, "secrets", about="Keep tokens that tools use without having them.", commands=commands)


@over_api
def create(
    turnkeeper: Turnkeeper,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What sessions call it.")],
    *,
    host: Annotated[list[str], typer.Option("--host", help="Who may get it: `host`, `*.host`, with `:port`; several.")],
    json: AsJson = False,
) -> None:
    """Keep the value on standard input; prints the secret's id.

    The value is no argument, so that no list of processes and no shell's history has it.
    """
    if sys.stdin.isatty():
        typer.echo("the value, then Enter and Ctrl-D:", err=True)
    value = sys.stdin.read().strip()
    if not value:
        raise UsageRefused("standard input has no value to keep")
    show_made(turnkeeper.secrets.create(name, value, host), as_json=json)


@over_api
def list_secrets(turnkeeper: Turnkeeper, *, limit: Limit = 100, json: AsJson = False) -> None:
    """List secrets without their values, newest first."""
    show_documents(turnkeeper.secrets.list(limit=limit), SECRET_COLUMNS, as_json=json)


@over_api
def delete(turnkeeper: Turnkeeper, secret_id: SecretId) -> None:
    """Delete a secret; open boxes keep it to their end."""
    turnkeeper.secrets.delete(secret_id)
    typer.echo(f"secret {secret_id} deleted", err=True)
