"""`turnkeeper sessions`: sessions of a running server, over its API (contract 2.2)."""

from typing import Annotated, Final

import typer

from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory
from turnkeeper.cli.remote import Key, Remote, Url
from turnkeeper.cli.shown import parse_json, show_document, show_documents

COLUMNS: Final = ("id", "status", "agent_id", "queue_depth", "last_sequence", "last_active_at", "title")

SessionId = Annotated[str, typer.Argument(metavar="ID", help="The session's id.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Open, see and close sessions of a running server.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command()(create)
    group.command("list")(list_sessions)
    group.command()(show)
    group.command()(close)
    app.add_typer(group, name="sessions")


def create(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent's id.")],
    *,
    title: Annotated[str | None, typer.Option("--title", help="What people call it.")] = None,
    metadata: Annotated[str | None, typer.Option("--metadata", help="A JSON object of your own.")] = None,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Open a session with an agent and print its id."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        session = turnkeeper.sessions.create(agent, title=title, metadata=parse_json(metadata, "--metadata"))
    if json:
        show_document(session, as_json=True)
    else:
        typer.echo(session.id)


def list_sessions(
    *,
    agent: Annotated[str | None, typer.Option("--agent", help="Only those with this agent.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 20,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """List sessions, newest first."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        show_documents(turnkeeper.sessions.list(agent_id=agent, limit=limit), COLUMNS, as_json=json)


def show(
    session_id: SessionId,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Show a session."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        show_document(turnkeeper.sessions.get(session_id), as_json=json)


def close(
    session_id: SessionId,
    *,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the queue instead of working it off.")] = False,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Take no more turns; the queue is worked off unless told otherwise."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        closing = turnkeeper.sessions.get(session_id).close(mode="cancel" if cancel else "drain")
    if json:
        show_document(closing, as_json=True)
    else:
        typer.echo(f"session {closing.id} is {closing.status}", err=True)


def _nothing() -> None:
    return
