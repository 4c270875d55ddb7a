"""`turnkeeper agents`: agents of a running server, over its API (contract 2.1)."""

from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from turnkeeper.cli.input_files import as_json
from turnkeeper.cli.options import AsJson
from turnkeeper.cli.over_api import Limit, add_group, over_api, show_made
from turnkeeper.cli.shown import show_document, show_documents
from turnkeeper.client import Turnkeeper

COLUMNS: Final = ("id", "name", "version", "model.provider", "model.id", "created_at")


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    commands = {
        "create": create,
        "list": list_agents,
        "show": show,
    }
    add_group(app, "agents", about="Make and see agents of a running server.", commands=commands)


@over_api
def create(
    turnkeeper: Turnkeeper,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The agent, as JSON or TOML.")],
    *,
    json: AsJson = False,
) -> None:
    """Make an agent from a file and print its id."""
    members = orjson.loads(as_json(file))
    agent = turnkeeper.agents.create(members.pop("name", ""), members.pop("model", {}), extra=members)
    show_made(agent, as_json=json)


@over_api
def list_agents(
    turnkeeper: Turnkeeper,
    *,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """List agents, newest first."""
    show_documents(turnkeeper.agents.list(limit=limit), COLUMNS, as_json=json)


@over_api
def show(
    turnkeeper: Turnkeeper,
    agent_id: Annotated[str, typer.Argument(metavar="ID", help="The agent's id.")],
    *,
    json: AsJson = False,
) -> None:
    """Show an agent."""
    show_document(turnkeeper.agents.get(agent_id), as_json=json)
