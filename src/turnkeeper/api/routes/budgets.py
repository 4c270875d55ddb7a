"""Budgets, the price table and usage (contract 2.7, 2.13 and 8)."""

from datetime import timedelta
from typing import Final, cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, refuse_idempotency_key, require_id
from turnkeeper.api.auth import Caller
from turnkeeper.api.bodies import JsonBody, read_json
from turnkeeper.api.budget_intake import parse_budget, parse_budget_change, parse_prices
from turnkeeper.api.budget_reads import render_budget, render_ledger, render_prices, render_usage_groups
from turnkeeper.api.deps import ApiDeps, Deps
from turnkeeper.api.filters import time_of
from turnkeeper.api.keyed import created, created_response
from turnkeeper.api.openapi import LIST_QUERY, answers, body, making, query
from turnkeeper.api.pages import Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.api.problems import RequestRefused
from turnkeeper.turns.budget_accounts import Account
from turnkeeper.turns.budget_ports import USAGE_GROUPS, UsageGroup, UsageQuery

router = APIRouter(prefix="/v1", tags=["budgets"])

MAX_USAGE_DAYS: Final = 366
DEFAULT_USAGE_DAYS: Final = 30

_PATH: Final = "/budgets/{budget_id}"


@router.post(
    "/budgets",
    status_code=201,
    responses=answers({201: "BudgetResource", 200: "BudgetResource"}),
    openapi_extra=making("NewBudget"),
)
async def create_budget(request: Request, deps: Deps, caller: Caller) -> Response:
    """Makes a budget over a project, an API key, an agent or a session. It counts from now on."""
    Query(request, ())
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    new = parse_budget(received, caller.project_id)
    made = await created(deps, request, received, caller, lambda keyed: deps.creations.budget(new, keyed))
    return created_response(made, render_budget(made.thing), f"/v1/budgets/{made.thing.id}")


@router.get("/budgets", responses=answers({200: "BudgetList"}), openapi_extra=query(*LIST_QUERY, "scope_id"))
async def list_budgets(request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists budgets, archived ones too, newest first unless `order` says otherwise."""
    values = Query(request, {"limit", "after", "order", "scope_id"})
    scope_id = values.text("scope_id")
    wanted = list_query(values, deps.cursor_secret, list="budgets", project=caller.project_id, scope_id=scope_id)
    page = await read_page(
        wanted.page, lambda part: deps.budgets.budgets(caller.project_id, part, scope_id=scope_id), _element
    )
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get(_PATH, responses=answers({200: "BudgetResource"}))
async def get_budget(budget_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Shows a budget in its current window."""
    Query(request, ())
    return json_response(render_budget(await deps.budgets.budget(caller.project_id, _id(budget_id))))


@router.patch(_PATH, responses=answers({200: "BudgetResource"}), openapi_extra=body("BudgetChange"))
async def change_budget(budget_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Changes limits and marks. A limit that is raised warns, and is reached, anew."""
    _id(budget_id)
    change = parse_budget_change(await _read(request, deps))
    return json_response(render_budget(await deps.budgets.change_budget(caller.project_id, budget_id, change)))


@router.delete(_PATH, responses=answers({200: "BudgetResource"}))
async def archive_budget(budget_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Archives a budget: it holds nothing any more and can still be read."""
    Query(request, ())
    return json_response(render_budget(await deps.budgets.archive_budget(caller.project_id, _id(budget_id))))


@router.get("/model_prices", responses=answers({200: "ModelPrices"}))
async def get_prices(request: Request, deps: Deps, caller: Caller) -> Response:
    """Shows the price table."""
    Query(request, ())
    return json_response(render_prices(await deps.budgets.prices(caller.project_id)))


@router.put("/model_prices", responses=answers({200: "ModelPrices"}), openapi_extra=body("PutModelPrices"))
async def put_prices(request: Request, deps: Deps, caller: Caller) -> Response:
    """Puts these rows in place of the whole table. What was costed stays as it is."""
    rows = parse_prices(await _read(request, deps), deps.clock.now())
    return json_response(render_prices(await deps.budgets.put_prices(caller.project_id, rows)))


@router.get("/turns/{turn_id}/usage", responses=answers({200: "TurnUsage"}))
async def get_turn_usage(turn_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows what a turn has used, and each model call with what was reserved and what it came to."""
    Query(request, ())
    turn = await deps.store.turn(require_id(turn_id, "trn", "turn"))
    return json_response(render_ledger(turn, await deps.budgets.turn_calls(turn_id)))


@router.get("/usage", responses=answers({200: "UsageGroups"}), openapi_extra=query("group_by", "from", "to"))
async def get_usage(request: Request, deps: Deps, caller: Caller) -> Response:
    """Sums usage of a time by session, agent, API key, model or day (UTC). Without a time it is the last 30 days."""
    values = Query(request, {"group_by", "from", "to"})
    until = time_of(values, "to") or deps.clock.now()
    since = time_of(values, "from") or until - timedelta(days=DEFAULT_USAGE_DAYS)
    if not timedelta() < until - since <= timedelta(days=MAX_USAGE_DAYS):
        raise RequestRefused(
            "invalid_field", f"`from` is not before `to` by at most {MAX_USAGE_DAYS} days.", param="from"
        )
    group = cast("UsageGroup", values.choice("group_by", USAGE_GROUPS, "day"))
    wanted = UsageQuery(caller.project_id, group, since, until)
    return json_response(render_usage_groups(wanted, await deps.budgets.usage(wanted)))


async def _read(request: Request, deps: ApiDeps) -> JsonBody:
    Query(request, ())
    refuse_idempotency_key(request)
    return await read_json(request, max_bytes=deps.settings.max_body_bytes)


def _id(budget_id: str) -> str:
    return require_id(budget_id, "bud", "budget")


async def _element(account: Account) -> Rendered:
    return Rendered(render_budget(account), account.id)
