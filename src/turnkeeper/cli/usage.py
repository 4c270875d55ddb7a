"""`turnkeeper usage`: what was used on a running server, over its API (contract 2.13 and 4)."""

from typing import Annotated, Final, Literal, cast

import typer

from turnkeeper.cli.options import AsJson
from turnkeeper.cli.over_api import add_group, over_api
from turnkeeper.cli.shown import parse_time, show_document, show_documents
from turnkeeper.client import Turnkeeper

GROUP_COLUMNS: Final = (
    "key",
    "usage.input_tokens",
    "usage.output_tokens",
    "usage.total_tokens",
    "usage.model_calls",
    "usage.tool_calls",
    "usage.cost",
)
CALL_COLUMNS: Final = ("call", "state", "provider", "model", "began_at", "reserved", "settled")


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    commands = {"sum": sum_usage, "turn": turn_usage}
    add_group(app, "usage", about="See what was used on a running server.", commands=commands)


@over_api
def sum_usage(
    turnkeeper: Turnkeeper,
    *,
    by: Annotated[str, typer.Option("--by", help="session, agent, api_key, model or day.")] = "day",
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="From when. Default: 30 days ago.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Until when. Default: now.")] = None,
    json: AsJson = False,
) -> None:
    """Sum what was used in a time, by group."""
    group = cast('Literal["session", "agent", "api_key", "model", "day"]', by)
    report = turnkeeper.usage.get(group, since=parse_time(since, "--since"), until=parse_time(until, "--until"))
    if json:
        show_document(report, as_json=True)
    else:
        show_documents(report.data, GROUP_COLUMNS, as_json=False)


@over_api
def turn_usage(
    turnkeeper: Turnkeeper,
    turn_id: Annotated[str, typer.Argument(metavar="ID", help="The turn's id.")],
    *,
    json: AsJson = False,
) -> None:
    """List a turn's model calls: what was reserved for each, and what it came to."""
    used = turnkeeper.turns.get(turn_id).usage_ledger()
    if json:
        show_document(used, as_json=True)
    else:
        show_documents(used.calls, CALL_COLUMNS, as_json=False)
