"""From a request body to a budget, to what changes of one, or to a price table (contract 2.7, 2.13 and 8)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.fields import Fields
from turnkeeper.ids import is_id
from turnkeeper.turns.budget_accounts import (
    DEFAULT_WARN_AT,
    MAX_WARN_AT,
    RESOURCE_SCOPES,
    BudgetChange,
    NewBudget,
    ResourceScope,
)
from turnkeeper.turns.budget_windows import BUDGET_WINDOWS, BudgetWindow
from turnkeeper.turns.budgets import Dimension
from turnkeeper.turns.model import Budget
from turnkeeper.turns.money import Money, MoneyInvalid, parse_money
from turnkeeper.turns.prices import (
    MAX_PRICE,
    MAX_PRICE_FRACTION_DIGITS,
    MAX_PRICES,
    TOKEN_KINDS,
    PriceRow,
    PricesInvalid,
    TokenKind,
    check_prices,
)

WHOLE_LIMITS: Final[tuple[Dimension, ...]] = (
    "max_model_calls",
    "max_total_tokens",
    "max_output_tokens",
    "max_tool_calls",
    "max_active_ms",
)
LIMITS: Final = frozenset({*WHOLE_LIMITS, "max_cost"})
MAX_TIMEZONE_CHARACTERS: Final = 64
MAX_MODEL_CHARACTERS: Final = 401

_PREFIXES: Final[Mapping[ResourceScope, str]] = {
    "project": "prj",
    "api_key": "key",
    "agent": "agt",
    "session": "ses",
}


def parse_limits(fields: Fields | None) -> Budget | None:
    """The limits of an inline budget; `None` without one. What is wrong is noted in `fields`."""
    if fields is None:
        return None
    fields.close(LIMITS, {})
    calls, total, output, tools, active_ms = (_whole(fields, name) for name in WHOLE_LIMITS)
    budget = Budget(calls, total, output, tools, active_ms, _cost(fields))
    return None if budget == Budget() else budget


def parse_budget(body: JsonBody, project_id: str) -> NewBudget:
    """The budget to make. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"scope", "window", "timezone", "limits", "warn_at"}, {})
    scope, scope_id = _scope(fields.required_object("scope"), project_id)
    limits = parse_limits(fields.required_object("limits"))
    if limits is None:
        fields.note("limits", "budget_invalid", "/limits has no limit")
    new = NewBudget(
        project_id=project_id,
        scope=scope,
        scope_id=scope_id,
        limits=limits or Budget(),
        window=cast("BudgetWindow", fields.choice("window", BUDGET_WINDOWS, "total")),
        timezone=_timezone(fields),
        warn_at=DEFAULT_WARN_AT if not fields.has("warn_at") else _warn_at(fields),
    )
    fields.finish()
    return new


def parse_budget_change(body: JsonBody) -> BudgetChange:
    """What changes of a budget: a limit that is left out stays, one that is null is lifted. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"limits", "warn_at"}, {})
    changes: dict[Dimension, int | Money | None] = {}
    limits = fields.object("limits")
    if limits is not None:
        limits.close(LIMITS, {})
        changes = {name: _whole(limits, name) for name in WHOLE_LIMITS if name in limits.members()}
        if "max_cost" in limits.members():
            changes["max_cost"] = _cost(limits)
    change = BudgetChange(changes, _warn_at(fields) if fields.has("warn_at") else None)
    fields.finish()
    return change


def parse_prices(body: JsonBody, now: datetime) -> tuple[PriceRow, ...]:
    """The price table to put; a row without `valid_from` is valid from now on. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"prices"}, {})
    rows = tuple(_price(row, now) for row in fields.objects("prices", max_items=MAX_PRICES))
    fields.finish()
    try:
        check_prices(rows)
    except PricesInvalid as invalid:
        fields.note("prices", "invalid_field", invalid.message)
    fields.finish()
    return rows


def _whole(fields: Fields, name: str) -> int | None:
    return fields.integer(name, low=1, code="budget_invalid")


def _cost(fields: Fields) -> Money | None:
    cost = fields.object("max_cost")
    if cost is None:
        return None
    money = _money(cost, "budget_invalid")
    if money is not None and not money.amount:
        cost.note("amount", "budget_invalid", f"{cost.pointer('amount')} is not above zero")
    return money


def _money(fields: Fields, code: str) -> Money | None:
    fields.close({"amount", "currency"}, {})
    amount, currency = fields.value("amount"), fields.value("currency")
    if not isinstance(amount, str) or not isinstance(currency, str):
        fields.note("amount", code, f"{fields.pointer('amount')} and currency are required, both as text")
        return None
    try:
        return parse_money(amount, currency)
    except MoneyInvalid as invalid:
        fields.note("amount", code, invalid.message)
        return None


def _scope(fields: Fields, project_id: str) -> tuple[ResourceScope, str]:
    fields.close({"type", "id"}, {})
    kind = cast("ResourceScope", fields.choice("type", RESOURCE_SCOPES, "project"))
    if not fields.has("type"):
        fields.note("type", "invalid_field", f"{fields.pointer('type')} is required")
    scope_id = fields.text("id", max_characters=MAX_TIMEZONE_CHARACTERS)
    if scope_id is None and kind == "project":
        return kind, project_id
    if scope_id is None or not _is_of(scope_id, kind):
        fields.note("id", "invalid_field", f"{fields.pointer('id')} is not the id of a thing of this type")
    return kind, scope_id or ""


def _is_of(scope_id: str, kind: ResourceScope) -> bool:
    prefix = _PREFIXES[kind]
    return any(prefix == known and is_id(scope_id, known) for known in ("prj", "key", "agt", "ses"))


def _timezone(fields: Fields) -> str:
    name = fields.text("timezone", max_characters=MAX_TIMEZONE_CHARACTERS) or "UTC"
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        fields.note(
            "timezone", "invalid_field", "/timezone is not a name of the timezone database, such as Europe/Berlin"
        )
    return name


def _warn_at(fields: Fields) -> tuple[int, ...]:
    marks = fields.value("warn_at")
    if not isinstance(marks, list) or len(marks) > MAX_WARN_AT:
        fields.note("warn_at", "invalid_field", f"/warn_at is not a list of at most {MAX_WARN_AT} percents")
        return ()
    whole = [mark for mark in marks if isinstance(mark, int) and not isinstance(mark, bool) and 1 <= mark <= 99]
    if len(set(whole)) < len(marks):
        fields.note("warn_at", "invalid_field", "/warn_at has something that is no percent from 1 to 99, or one twice")
    return tuple(sorted(set(whole)))


def _price(row: Fields, now: datetime) -> PriceRow:
    row.close({"model", "kind", "per_million", "valid_from"}, {})
    model = row.required_text("model", max_characters=MAX_MODEL_CHARACTERS)
    if model and "/" not in model:
        row.note("model", "invalid_field", f"{row.pointer('model')} is not a provider's name, a slash and a model's id")
    kind = cast("TokenKind", row.choice("kind", TOKEN_KINDS, "input"))
    if not row.has("kind"):
        row.note("kind", "invalid_field", f"{row.pointer('kind')} is required")
    price = _money(row.required_object("per_million"), "invalid_field") or Money(MAX_PRICE, "USD")
    exponent = price.amount.as_tuple().exponent
    if price.amount > MAX_PRICE or (isinstance(exponent, int) and -exponent > MAX_PRICE_FRACTION_DIGITS):
        why = f"is over {MAX_PRICE}, or has more than {MAX_PRICE_FRACTION_DIGITS} digits after the point"
        row.note("per_million", "invalid_field", f"{row.pointer('per_million')} {why}")
    return PriceRow(model, kind, price, row.time("valid_from") or now)
