"""`turnkeeper budgets`: what a running server lets be spent, over its API (contract 2.7 and 8)."""

from typing import Annotated, Final, Literal, cast

import typer

from turnkeeper.cli.options import AsJson
from turnkeeper.cli.over_api import Limit, add_group, over_api, show_made
from turnkeeper.cli.shown import parse_json, show_document, show_documents
from turnkeeper.client import Turnkeeper

COLUMNS: Final = ("id", "status", "scope.type", "scope.id", "window", "limits", "used", "resets_at")

BudgetId = Annotated[str, typer.Argument(metavar="ID", help="The budget's id.")]
Limits = Annotated[
    str, typer.Argument(metavar="LIMITS", help="A JSON object, such as '{\"max_total_tokens\": 100000}'.")
]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    commands = {
        "create": create,
        "list": list_budgets,
        "show": show,
        "limit": change_limits,
        "delete": delete,
    }
    add_group(app, "budgets", about="Limit what is spent on a running server.", commands=commands)


@over_api
def create(
    turnkeeper: Turnkeeper,
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="project, api_key, agent or session.")],
    scope_id: Annotated[str, typer.Argument(metavar="ID", help="The id of what is limited; - for the project.")],
    limits: Limits,
    *,
    window: Annotated[str | None, typer.Option("--window", help="total, day or month.")] = None,
    timezone: Annotated[str | None, typer.Option("--timezone", help="Whose midnight begins a window.")] = None,
    json: AsJson = False,
) -> None:
    """Make a budget and print its id. It counts from now on."""
    made = turnkeeper.budgets.create(
        {"type": scope} | ({} if scope_id == "-" else {"id": scope_id}),
        parse_json(limits, "LIMITS"),
        window=cast('Literal["total", "day", "month"] | None', window),
        timezone=timezone,
    )
    show_made(made, as_json=json)


@over_api
def list_budgets(
    turnkeeper: Turnkeeper,
    *,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """List budgets with what is used of them, newest first."""
    show_documents(turnkeeper.budgets.list(limit=limit), COLUMNS, as_json=json)


@over_api
def show(
    turnkeeper: Turnkeeper,
    budget_id: BudgetId,
    *,
    json: AsJson = False,
) -> None:
    """Show a budget in its current window."""
    show_document(turnkeeper.budgets.get(budget_id), as_json=json)


@over_api
def change_limits(
    turnkeeper: Turnkeeper,
    budget_id: BudgetId,
    limits: Limits,
    *,
    json: AsJson = False,
) -> None:
    """Change the limits of a budget."""
    changed = turnkeeper.budgets.change(budget_id, {"limits": parse_json(limits, "LIMITS")})
    show_document(changed, as_json=json)


@over_api
def delete(
    turnkeeper: Turnkeeper,
    budget_id: BudgetId,
) -> None:
    """Archive a budget: it holds nothing any more."""
    turnkeeper.budgets.delete(budget_id)
    typer.echo(f"budget {budget_id} archived", err=True)
