"""`turnkeeper agents`: agents of a running server, over its API (contract 2.1)."""

from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from turnkeeper.cli.input_files import as_json
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory
from turnkeeper.cli.remote import Key, Remote, Url
from turnkeeper.cli.shown import show_document, show_documents

COLUMNS: Final = ("id", "name", "version", "model.provider", "model.id", "created_at")


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Make and see agents of a running server.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command()(create)
    group.command("list")(list_agents)
    group.command()(show)
    app.add_typer(group, name="agents")


def create(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The agent, as JSON or TOML.")],
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Make an agent from a file and print its id."""
    members = orjson.loads(as_json(file))
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        agent = turnkeeper.agents.create(members.pop("name", ""), members.pop("model", {}), extra=members)
    if json:
        show_document(agent, as_json=True)
    else:
        typer.echo(agent.id)


def list_agents(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 20,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """List agents, newest first."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        show_documents(turnkeeper.agents.list(limit=limit), COLUMNS, as_json=json)


def show(
    agent_id: Annotated[str, typer.Argument(metavar="ID", help="The agent's id.")],
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Show an agent."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        show_document(turnkeeper.agents.get(agent_id), as_json=json)


def _nothing() -> None:
    return
