"""What was used, by session, agent, key, model or day: sums over the ledger, made by the database.

Costs are added up as whole units and trillionths, two integers, so that no sum is rounded.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Connection, RowMapping, Select, case, cast, func, select

from turnkeeper.store.rows import to_call
from turnkeeper.store.tables import model_calls, turns
from turnkeeper.turns.budget_ports import MAX_LEDGER_CALLS, MAX_USAGE_GROUPS, LedgerCall, UsageQuery
from turnkeeper.turns.model import ModelUsage, Usage
from turnkeeper.turns.money import Money, join_amount

_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SUMS: Final = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_units",
    "cost_picos",
)


def usage_by(conn: Connection, wanted: UsageQuery) -> Mapping[str, Usage]:
    """Usage of a time by group. What no key posted has the empty group."""
    call_key, turn_key = _keys(wanted)
    in_time = (
        turns.c.project_id == wanted.project_id,
        model_calls.c.created_at >= wanted.since,
        model_calls.c.created_at < wanted.until,
    )
    posted = (
        turns.c.project_id == wanted.project_id,
        turns.c.created_at >= wanted.since,
        turns.c.created_at < wanted.until,
    )
    beside = {} if turn_key is None else _beside(conn, turn_key, posted)
    found = _joined(_calls(conn, call_key, in_time), beside)
    if wanted.group_by != "day":
        return {key: found[key] for key in sorted(found)[:MAX_USAGE_GROUPS]}
    days = sorted(found, key=int)[:MAX_USAGE_GROUPS]
    return {(_EPOCH + timedelta(days=int(day))).date().isoformat(): found[day] for day in days}


def usage_of_sessions(conn: Connection, session_ids: Sequence[str]) -> Mapping[str, Usage]:
    """What sessions have used in all, open turns included."""
    of_calls = (model_calls.c.session_id.in_(session_ids),)
    beside = _beside(conn, turns.c.session_id, (turns.c.session_id.in_(session_ids),))
    found = _joined(_calls(conn, model_calls.c.session_id, of_calls), beside)
    return {session_id: found.get(session_id, Usage()) for session_id in session_ids}


def turn_calls(conn: Connection, turn_id: str) -> tuple[LedgerCall, ...]:
    """The calls of a turn in their order, running ones too."""
    query = select(model_calls).where(model_calls.c.turn_id == turn_id).order_by(model_calls.c.call)
    return tuple(map(_ledger_call, conn.execute(query.limit(MAX_LEDGER_CALLS)).mappings()))


def _keys(wanted: UsageQuery) -> tuple[ColumnElement[Any], ColumnElement[Any] | None]:
    if wanted.group_by == "model":
        return model_calls.c.provider, None
    if wanted.group_by == "day":
        return _day_of(model_calls.c.created_at), _day_of(turns.c.created_at)
    columns = {"session": turns.c.session_id, "agent": turns.c.agent_id, "api_key": turns.c.api_key_id}
    column = columns[wanted.group_by]
    return column, column


def _day_of(time: ColumnElement[Any]) -> ColumnElement[Any]:
    # Stored as milliseconds, so a day is a whole number of them; `//` is integer division in both databases.
    return cast(time, BigInteger) // _DAY_MS


def _calls(
    conn: Connection, key: ColumnElement[Any], where: Sequence[ColumnElement[bool]]
) -> dict[str, list[tuple[ModelUsage, bool]]]:
    unknown = case((model_calls.c.cost_currency.is_(None) & _has_tokens(), 1), else_=0)
    query: Select[Any] = (
        select(
            key.label("key"),
            model_calls.c.provider,
            model_calls.c.model,
            *(func.sum(model_calls.c[name]).label(name) for name in _SUMS),
            func.sum(case((model_calls.c.accepted, 1), else_=0)).label("model_calls"),
            func.max(case((model_calls.c.estimated, 1), else_=0)).label("estimated"),
            func.max(unknown).label("unknown"),
            func.min(model_calls.c.cost_currency).label("first"),
            func.max(model_calls.c.cost_currency).label("last"),
        )
        .join(turns, turns.c.id == model_calls.c.turn_id)
        .where(model_calls.c.state != "reserved", *where)
        .group_by(key, model_calls.c.provider, model_calls.c.model)
        .order_by(key, model_calls.c.provider, model_calls.c.model)
        .limit(MAX_LEDGER_CALLS)
    )
    groups: defaultdict[str, list[tuple[ModelUsage, bool]]] = defaultdict(list)
    for row in conn.execute(query).mappings():
        entry = _entry(row)
        # A model is named with its provider; both together are one group.
        group = entry.model if key is model_calls.c.provider else str(row["key"])
        groups[group].append((entry, bool(row["estimated"])))
    return groups


def _has_tokens() -> ColumnElement[bool]:
    return (model_calls.c.input_tokens > 0) | (model_calls.c.output_tokens > 0)


def _entry(row: RowMapping) -> ModelUsage:
    known = row["first"] is not None and row["first"] == row["last"] and not row["unknown"]
    cost = Money(join_amount(int(row["cost_units"]), int(row["cost_picos"])), row["first"]) if known else None
    figures = {name: int(row[name]) for name in _SUMS[:5]}
    return ModelUsage(
        model=f"{row['provider']}/{row['model']}", **figures, model_calls=int(row["model_calls"]), cost=cost
    )


def _beside(
    conn: Connection, key: ColumnElement[Any], where: Sequence[ColumnElement[bool]]
) -> dict[str, tuple[int, int]]:
    running_ms = func.coalesce(turns.c.duration_ms, turns.c.active_ms)
    query = (
        select(key.label("key"), func.sum(turns.c.tool_calls).label("tools"), func.sum(running_ms).label("ms"))
        .where(*where)
        .group_by(key)
        .order_by(key)
        .limit(MAX_LEDGER_CALLS)
    )
    return {str(row["key"]): (int(row["tools"]), int(row["ms"])) for row in conn.execute(query).mappings()}


def _joined(
    calls: Mapping[str, Sequence[tuple[ModelUsage, bool]]], beside: Mapping[str, tuple[int, int]]
) -> dict[str, Usage]:
    found: dict[str, Usage] = {}
    for key in {*calls, *beside}:
        tools, sandbox_ms = beside.get(key, (0, 0))
        entries = calls.get(key, ())
        models = tuple(sorted((entry for entry, _ in entries), key=lambda entry: entry.model))
        found[key] = Usage(models, tools, sandbox_ms, estimated=any(estimated for _, estimated in entries))
    return found


def _ledger_call(row: RowMapping) -> LedgerCall:
    return LedgerCall(
        call=row["call"],
        state=row["state"],
        provider=row["provider"],
        model=row["model"],
        began_at=row["created_at"],
        settled_at=row["settled_at"],
        reserved_input_tokens=row["reserved_input_tokens"],
        reserved_output_tokens=row["reserved_output_tokens"],
        settled=None if row["state"] == "reserved" else to_call(row),
    )
