"""`turnkeeper prices`: what models cost on a running server, over its API (contract 2.7)."""

from pathlib import Path
from typing import Annotated, Any, Final, cast

import orjson
import typer

from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.input_files import as_json
from turnkeeper.cli.options import AsJson
from turnkeeper.cli.over_api import add_group, over_api
from turnkeeper.cli.shown import show_documents
from turnkeeper.client import Turnkeeper

COLUMNS: Final = ("model", "kind", "per_million.amount", "per_million.currency", "valid_from")


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    commands = {"list": list_prices, "put": put}
    add_group(app, "prices", about="See and set what models cost on a running server.", commands=commands)


@over_api
def list_prices(turnkeeper: Turnkeeper, *, json: AsJson = False) -> None:
    """List the price table."""
    show_documents(turnkeeper.model_prices.get().prices, COLUMNS, as_json=json)


@over_api
def put(
    turnkeeper: Turnkeeper,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The whole table, JSON or TOML, with the list `prices`.")
    ],
    *,
    json: AsJson = False,
) -> None:
    """Put a table in place of the one that is there. What was costed stays as it is."""
    show_documents(turnkeeper.model_prices.put(_rows(file)).prices, COLUMNS, as_json=json)


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        document: object = orjson.loads(as_json(file))
    except orjson.JSONDecodeError as error:
        raise UsageRefused(f"{file} is not JSON: {error}") from error
    rows = cast("dict[str, object]", document).get("prices") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise UsageRefused(f"{file} has no list of prices")
    return cast("list[dict[str, Any]]", rows)
