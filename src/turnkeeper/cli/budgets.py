"""`turnkeeper budgets`: what a running server lets be spent, over its API (contract 2.7 and 8)."""

from typing import Annotated, Final, Literal, cast

import typer

from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory
from turnkeeper.cli.remote import Key, Remote, Url
from turnkeeper.cli.shown import parse_json, show_document, show_documents

COLUMNS: Final = ("id", "status", "scope.type", "scope.id", "window", "limits", "used", "resets_at")

BudgetId = Annotated[str, typer.Argument(metavar="ID", help="The budget's id.")]
Limits = Annotated[
    str, typer.Argument(metavar="LIMITS", help="A JSON object, such as '{\"max_total_tokens\": 100000}'.")
]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Limit what is spent on a running server.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command()(create)
    group.command("list")(list_budgets)
    group.command()(show)
    group.command("limit")(change_limits)
    group.command()(delete)
    app.add_typer(group, name="budgets")


def create(
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="project, api_key, agent or session.")],
    scope_id: Annotated[str, typer.Argument(metavar="ID", help="The id of what is limited; - for the project.")],
    limits: Limits,
    *,
    window: Annotated[str | None, typer.Option("--window", help="total, day or month.")] = None,
    timezone: Annotated[str | None, typer.Option("--timezone", help="Whose midnight begins a window.")] = None,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Make a budget and print its id. It counts from now on."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        made = turnkeeper.budgets.create(
            {"type": scope} | ({} if scope_id == "-" else {"id": scope_id}),
            parse_json(limits, "LIMITS"),
            window=cast('Literal["total", "day", "month"] | None', window),
            timezone=timezone,
        )
    if json:
        show_document(made, as_json=True)
    else:
        typer.echo(made.id)


def list_budgets(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 20,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """List budgets with what is used of them, newest first."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        show_documents(turnkeeper.budgets.list(limit=limit), COLUMNS, as_json=json)


def show(
    budget_id: BudgetId,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Show a budget in its current window."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        show_document(turnkeeper.budgets.get(budget_id), as_json=json)


def change_limits(
    budget_id: BudgetId,
    limits: Limits,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Change the limits of a budget."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        changed = turnkeeper.budgets.change(budget_id, {"limits": parse_json(limits, "LIMITS")})
    show_document(changed, as_json=json)


def delete(
    budget_id: BudgetId,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Archive a budget: it holds nothing any more."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        turnkeeper.budgets.delete(budget_id)
    typer.echo(f"budget {budget_id} archived", err=True)


def _nothing() -> None:
    return
