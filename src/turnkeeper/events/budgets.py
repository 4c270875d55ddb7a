"""Events of budgets (contract 10.4): a mark that was come to, a limit that was reached, limits that were changed.

Pure. The first two stand in the session of the turn that came to it; a change is outside of every session.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import orjson

from turnkeeper.clock import render_time
from turnkeeper.events.envelope import NewEvent

BUDGET_TYPES: Final = ("budget.warning", "budget.reached", "budget.updated")


def budget_warning(
    *,
    turn_id: str | None,
    attempt: int | None,
    budget_id: str | None,
    scope: str,
    scope_id: str,
    dimension: str,
    limit: object,
    used: object,
    ratio: float,
) -> NewEvent:
    """A budget is used as far as one of its marks; written once per mark and window."""
    data = {**_gauge(budget_id, (scope, scope_id), dimension, limit, used), "ratio": ratio}
    return NewEvent("budget.warning", "platform", orjson.dumps(data).decode(), turn_id, attempt)


def budget_reached(
    *,
    turn_id: str | None,
    attempt: int | None,
    scope: str,
    scope_id: str,
    dimension: str,
    limit: object,
    used: object,
    budget_id: str | None = None,
    resets_at: datetime | None = None,
) -> NewEvent:
    """A budget has run out; written once per window and limit."""
    resets = None if resets_at is None else render_time(resets_at)
    data = {**_gauge(budget_id, (scope, scope_id), dimension, limit, used), "resets_at": resets}
    return NewEvent("budget.reached", "platform", orjson.dumps(data).decode(), turn_id, attempt)


def budget_updated(*, budget_id: str, limits: Mapping[str, object], previous_limits: Mapping[str, object]) -> NewEvent:
    """Somebody changed the limits of a budget."""
    data = {"budget_id": budget_id, "limits": limits, "previous_limits": previous_limits}
    return NewEvent("budget.updated", "platform", orjson.dumps(data).decode())


def _gauge(
    budget_id: str | None, scope: tuple[str, str], dimension: str, limit: object, used: object
) -> dict[str, object]:
    return {
        "budget_id": budget_id,
        "scope": {"type": scope[0], "id": scope[1]},
        "dimension": dimension,
        "limit": limit,
        "used": used,
    }
