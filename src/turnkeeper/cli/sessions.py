"""`turnkeeper sessions`: sessions of a running server, over its API (contract 2.2)."""

from typing import Annotated, Final

import typer

from turnkeeper.cli.options import AsJson
from turnkeeper.cli.over_api import Limit, add_group, over_api, show_made
from turnkeeper.cli.shown import parse_json, show_document, show_documents
from turnkeeper.client import Turnkeeper

COLUMNS: Final = ("id", "status", "agent_id", "queue_depth", "last_sequence", "last_active_at", "title")

SessionId = Annotated[str, typer.Argument(metavar="ID", help="The session's id.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    commands = {
        "create": create,
        "list": list_sessions,
        "show": show,
        "close": close,
    }
    add_group(app, "sessions", about="Open, see and close sessions of a running server.", commands=commands)


@over_api
def create(
    turnkeeper: Turnkeeper,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent's id.")],
    *,
    title: Annotated[str | None, typer.Option("--title", help="What people call it.")] = None,
    metadata: Annotated[str | None, typer.Option("--metadata", help="A JSON object of your own.")] = None,
    json: AsJson = False,
) -> None:
    """Open a session with an agent and print its id."""
    session = turnkeeper.sessions.create(agent, title=title, metadata=parse_json(metadata, "--metadata"))
    show_made(session, as_json=json)


@over_api
def list_sessions(
    turnkeeper: Turnkeeper,
    *,
    agent: Annotated[str | None, typer.Option("--agent", help="Only those with this agent.")] = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """List sessions, newest first."""
    show_documents(turnkeeper.sessions.list(agent_id=agent, limit=limit), COLUMNS, as_json=json)


@over_api
def show(
    turnkeeper: Turnkeeper,
    session_id: SessionId,
    *,
    json: AsJson = False,
) -> None:
    """Show a session."""
    show_document(turnkeeper.sessions.get(session_id), as_json=json)


@over_api
def close(
    turnkeeper: Turnkeeper,
    session_id: SessionId,
    *,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the queue instead of working it off.")] = False,
    json: AsJson = False,
) -> None:
    """Take no more turns; the queue is worked off unless told otherwise."""
    closing = turnkeeper.sessions.get(session_id).close(mode="cancel" if cancel else "drain")
    if json:
        show_document(closing, as_json=True)
    else:
        typer.echo(f"session {closing.id} is {closing.status}", err=True)
