"""The ledger of model calls: reserved, then settled, and summed to what a turn used (contract 4 and 8).

The rows of `model_calls` are the record; the counters on the session's row are their sum over the session, changed in
the same transaction under the row's lock.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, Connection, RowMapping, bindparam, func, or_, select, update

from turnkeeper.events.catalogue import budget_reached, model_called
from turnkeeper.events.envelope import NewEvent
from turnkeeper.store.rows import to_budget, to_call
from turnkeeper.store.statements import add, change, find
from turnkeeper.store.tables import agents, model_calls, sessions, turns
from turnkeeper.store.tx import Tx, append_events, change_fenced, lock_session, write_turn
from turnkeeper.turns.budgets import (
    FLOOR_OUTPUT_TOKENS,
    Purse,
    Shortfall,
    Taken,
    purses_over,
    reservation,
    reserve,
    shortfall,
)
from turnkeeper.turns.model import CallGrant, CallRecord, Fence, Usage
from turnkeeper.turns.ports import NotFound
from turnkeeper.turns.usage import believable, call_usage, model_document, sum_usage

ASSUMED_FINISH: Final = "unknown"

_CALLS_OF: Final = select(model_calls).where(model_calls.c.turn_id == bindparam("turn_key"))
_HIGHEST_CALL: Final = select(func.max(model_calls.c.call)).where(model_calls.c.turn_id == bindparam("turn_key"))
_MODEL_OF: Final = select(agents.c.model_provider, agents.c.model_id).where(agents.c.id == bindparam("agent_key"))
_CHARGE: Final = (
    update(sessions)
    .where(sessions.c.id == bindparam("session_key"))
    .values(
        taken_model_calls=sessions.c.taken_model_calls + bindparam("calls"),
        taken_total_tokens=sessions.c.taken_total_tokens + bindparam("total"),
        taken_output_tokens=sessions.c.taken_output_tokens + bindparam("output"),
    )
)


def reserve_call(tx: Tx, fence: Fence, *, input_tokens: int, max_output_tokens: int) -> CallGrant | Shortfall:
    """A reserved call, or the limit that refuses it, which is then written as `budget.reached` once."""
    session = lock_session(tx, fence.session_id)
    change_fenced(tx, fence, {})
    turn = _turn_row(tx.conn, fence.turn_id)
    cap = reserve(_purses(tx.conn, turn, session), input_tokens=input_tokens, max_output_tokens=max_output_tokens)
    if isinstance(cap, Shortfall):
        append_events(tx, fence.session_id, announce(tx, turn, session, cap))
        return cap
    call = _next_call(tx.conn, fence.turn_id)
    add(tx.conn, model_calls, _reserved(tx, turn, call, input_tokens, cap))
    _charge(tx, fence.session_id, reservation(input_tokens, cap))
    return CallGrant(call, cap)


def settle_call(tx: Tx, fence: Fence, record: CallRecord) -> None:
    """The gateway's figures in place of the reservation. A second record of the same call changes nothing.

    A late one, for a turn that has ended or moved on, is charged too; it writes no event.
    """
    lock_session(tx, fence.session_id)
    row = _call_row(tx.conn, fence.turn_id, record.call)
    if row["state"] == "settled":
        return
    settled = believable(record)
    _charge(tx, fence.session_id, _taken(settled) - reservation(*_reserved_tokens(row)))
    _store_settled(tx, fence.turn_id, settled)
    if row["state"] == "reserved" and _is_current(tx.conn, fence):
        write_turn(tx, fence, None, [_called(fence.turn_id, _attempt(tx.conn, fence.turn_id), settled)])


def assume_open_calls(tx: Tx, turn_id: str, attempt: int | None) -> list[NewEvent]:
    """Charges calls that nobody will settle with all that they had reserved, marked as estimated."""
    query = select(model_calls).where(model_calls.c.turn_id == turn_id, model_calls.c.state == "reserved")
    written: list[NewEvent] = []
    for row in tx.conn.execute(query.order_by(model_calls.c.call)).mappings().all():
        input_tokens, output_tokens = _reserved_tokens(row)
        changes = {
            "state": "assumed",
            "accepted": True,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "estimated": True,
            "finish_reason": ASSUMED_FINISH,
            "settled_at": tx.now,
        }
        change(tx.conn, model_calls, {"turn_id": turn_id, "call": row["call"]}, changes)
        written.append(_called(turn_id, attempt, to_call(_call_row(tx.conn, turn_id, row["call"]))))
    return written


def usage_of(conn: Connection, turn_id: str, *, tool_calls: int, sandbox_ms: int) -> Usage:
    """What a turn has used by its ledger; running calls are not in it."""
    return sum_usage(calls_of(conn, [turn_id])[turn_id], tool_calls=tool_calls, sandbox_ms=sandbox_ms)


def calls_of(conn: Connection, turn_ids: Sequence[str]) -> defaultdict[str, list[CallRecord]]:
    """The finished calls of some turns."""
    calls: defaultdict[str, list[CallRecord]] = defaultdict(list)
    if not turn_ids:
        return calls
    query = select(model_calls).where(model_calls.c.turn_id.in_(turn_ids), model_calls.c.state != "reserved")
    for row in conn.execute(query.order_by(model_calls.c.turn_id, model_calls.c.call)).mappings():
        calls[row["turn_id"]].append(to_call(row))
    return calls


def shortfall_of(conn: Connection, turn_id: str) -> Shortfall | None:
    """The limit that refuses even the smallest call of a turn, or `None`. Raises `NotFound`."""
    turn = _turn_row(conn, turn_id)
    session = conn.execute(select(sessions).where(sessions.c.id == turn["session_id"])).mappings().one()
    return shortfall(_purses(conn, turn, session))


def announce(tx: Tx, turn: RowMapping, session: RowMapping, found: Shortfall) -> list[NewEvent]:
    """`budget.reached`, unless this budget has been announced before."""
    table, row = (turns, turn) if found.scope == "turn" else (sessions, session)
    if row["budget_reached"]:
        return []
    change(tx.conn, table, {"id": found.id}, {"budget_reached": True})
    event = budget_reached(
        turn_id=turn["id"],
        attempt=turn["attempt"] or None,
        scope=found.scope,
        scope_id=found.id,
        dimension=found.dimension,
        limit=found.limit,
        used=found.used,
    )
    return [event]


def unpayable_front() -> ColumnElement[bool]:
    """Whether a turn that has used nothing cannot be paid, over `turns` joined with `sessions`.

    The same predicate as `shortfall`, as SQL; a test compares them.
    """
    own, shared = turns.c, sessions.c
    return or_(
        own.max_model_calls < 1,
        own.max_total_tokens < FLOOR_OUTPUT_TOKENS,
        own.max_output_tokens < FLOOR_OUTPUT_TOKENS,
        shared.max_model_calls - shared.taken_model_calls < 1,
        shared.max_total_tokens - shared.taken_total_tokens < FLOOR_OUTPUT_TOKENS,
        shared.max_output_tokens - shared.taken_output_tokens < FLOOR_OUTPUT_TOKENS,
    )


def _purses(conn: Connection, turn: RowMapping, session: RowMapping) -> Sequence[Purse]:
    own, shared = to_budget(turn), to_budget(session)
    used = _taken_by_turn(conn, turn["id"]) if own is not None else Taken()
    total = Taken(session["taken_model_calls"], session["taken_total_tokens"], session["taken_output_tokens"])
    return purses_over(("turn", turn["id"], own, used), ("session", session["id"], shared, total))


def _taken_by_turn(conn: Connection, turn_id: str) -> Taken:
    taken = Taken()
    for row in conn.execute(_CALLS_OF, {"turn_key": turn_id}).mappings():
        held = row["state"] == "reserved"
        taken += reservation(*_reserved_tokens(row)) if held else _taken(to_call(row))
    return taken


def _taken(record: CallRecord) -> Taken:
    entry = call_usage(record)
    return Taken(entry.model_calls, entry.input_tokens + entry.output_tokens, entry.output_tokens)


def _charge(tx: Tx, session_id: str, taken: Taken) -> None:
    tx.conn.execute(
        _CHARGE,
        {
            "session_key": session_id,
            "calls": taken.model_calls,
            "total": taken.total_tokens,
            "output": taken.output_tokens,
        },
    )


def _reserved(tx: Tx, turn: RowMapping, call: int, input_tokens: int, cap: int) -> dict[str, object]:
    # Until the gateway says which model answered, it is the agent's.
    agent = tx.conn.execute(_MODEL_OF, {"agent_key": turn["agent_id"]}).mappings().one()
    return {
        "turn_id": turn["id"],
        "call": call,
        "session_id": turn["session_id"],
        "state": "reserved",
        "reserved_input_tokens": input_tokens,
        "reserved_output_tokens": cap,
        "provider": agent["model_provider"],
        "model": agent["model_id"],
        "accepted": False,
        "estimated": False,
        "retries": 0,
        "created_at": tx.now,
    }


def _store_settled(tx: Tx, turn_id: str, record: CallRecord) -> None:
    changes: dict[str, object] = {
        "state": "settled",
        "provider": record.provider,
        "model": record.model,
        "accepted": record.accepted,
        "input_tokens": record.input_tokens,
        "cached_input_tokens": record.cached_input_tokens,
        "cache_write_tokens": record.cache_write_tokens,
        "output_tokens": record.output_tokens,
        "reasoning_tokens": record.reasoning_tokens,
        "estimated": record.estimated,
        "latency_ms": record.latency_ms,
        "first_token_ms": record.first_token_ms,
        "finish_reason": record.finish_reason,
        "retries": record.retries,
        "settled_at": tx.now,
    }
    change(tx.conn, model_calls, {"turn_id": turn_id, "call": record.call}, changes)


def _called(turn_id: str, attempt: int | None, record: CallRecord) -> NewEvent:
    return model_called(
        turn_id=turn_id,
        attempt=attempt,
        call=record.call,
        provider=record.provider,
        model=record.model,
        latency_ms=record.latency_ms,
        first_token_ms=record.first_token_ms,
        finish_reason=record.finish_reason,
        usage=model_document(call_usage(record)),
        retries=record.retries,
    )


def _reserved_tokens(row: RowMapping) -> tuple[int, int]:
    return row["reserved_input_tokens"], row["reserved_output_tokens"]


def _call_row(conn: Connection, turn_id: str, call: int) -> RowMapping:
    row = find(conn, model_calls, turn_id=turn_id, call=call)
    if row is None:
        raise NotFound(f"{turn_id} has reserved no call {call}")
    return row


def _turn_row(conn: Connection, turn_id: str) -> RowMapping:
    row = find(conn, turns, id=turn_id)
    if row is None:
        raise NotFound(f"there is no turn {turn_id}")
    return row


def _next_call(conn: Connection, turn_id: str) -> int:
    highest = conn.execute(_HIGHEST_CALL, {"turn_key": turn_id}).scalar_one()
    return (highest or 0) + 1


def _is_current(conn: Connection, fence: Fence) -> bool:
    return find(conn, turns, id=fence.turn_id, owner=fence.owner, fence=fence.number) is not None


def _attempt(conn: Connection, turn_id: str) -> int | None:
    return _turn_row(conn, turn_id)["attempt"] or None
