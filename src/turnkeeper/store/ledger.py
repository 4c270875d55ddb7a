"""The ledger of model calls: reserved, then settled, and summed to what a turn used (contract 4 and 8).

The rows of `model_calls` are the record. The figures of every budget over a turn are changed in the same transaction,
under the lock of the session's row and then of the budgets' own.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, RowMapping, bindparam, func, select

from turnkeeper.events.catalogue import model_called
from turnkeeper.events.envelope import NewEvent
from turnkeeper.store.budget_tables import IS_HELD, budgets
from turnkeeper.store.budgets import accounts_over, store_accounts
from turnkeeper.store.charging import announce, charge_active, warn
from turnkeeper.store.prices import parse_price, price_json, price_of
from turnkeeper.store.rows import to_call
from turnkeeper.store.statements import add, change, find
from turnkeeper.store.tables import agent_versions, model_calls, turns
from turnkeeper.store.tx import Tx, append_events, change_fenced, lock_session, write_turn
from turnkeeper.turns.budget_accounts import Account, charged, wraps_up
from turnkeeper.turns.budgets import Shortfall, Taken, active_left_ms, reservation, reserve, shortfall
from turnkeeper.turns.model import CallGrant, CallRecord, Fence, Usage
from turnkeeper.turns.money import ZERO, Money, split_amount
from turnkeeper.turns.ports import NotFound
from turnkeeper.turns.prices import Price, call_cost, largest_cost
from turnkeeper.turns.usage import believable, call_usage, model_document, sum_usage

ASSUMED_FINISH: Final = "unknown"

_HIGHEST_CALL: Final = select(func.max(model_calls.c.call)).where(model_calls.c.turn_id == bindparam("turn_key"))
_MODEL_OF: Final = select(agent_versions.c.model_provider, agent_versions.c.model_id).where(
    agent_versions.c.agent_id == bindparam("agent_key"), agent_versions.c.version == bindparam("version_key")
)

# Built once: whoever looks at turns asks this.
_CALLS_OF: Final = (
    select(model_calls)
    .where(model_calls.c.turn_id.in_(bindparam("turns", expanding=True)), model_calls.c.state != "reserved")
    .order_by(model_calls.c.turn_id, model_calls.c.call)
)


def reserve_call(
    tx: Tx,
    fence: Fence,
    *,
    input_tokens: int,
    max_output_tokens: int,
    active_ms: int = 0,
    thread_id: str | None = None,
) -> CallGrant | Shortfall:
    """A reserved call, or the limit that refuses it, which is then written as `budget.reached` once.

    `active_ms` is how long the turn has run; what is new of it is charged. `thread_id` is the subagent's that calls.
    """
    lock_session(tx, fence.session_id)
    change_fenced(tx, fence, {})
    turn = _turn_row(tx.conn, fence.turn_id)
    price = _price_of_row(tx.conn, turn, tx.now)
    accounts = charge_active(tx, turn, active_ms)
    purses = [account.purse for account in accounts]
    cap = reserve(purses, input_tokens=input_tokens, max_output_tokens=max_output_tokens, price=price)
    if isinstance(cap, Shortfall):
        append_events(tx, fence.session_id, announce(tx, turn, accounts, cap))
        return cap
    call = _next_call(tx.conn, fence.turn_id)
    # By a clock that is behind it would have begun before the windows it is charged in, and never be settled there.
    began_at = max([tx.now, *(account.counts_from for account in accounts)])
    also = {"price_json": price_json(price), "created_at": began_at, "thread_id": thread_id}
    add(tx.conn, model_calls, _reserved(tx, turn, call, input_tokens, cap) | also)
    held = _held(input_tokens, cap, price)
    store_accounts(tx, [charged(account, reserved=held) for account in accounts])
    return CallGrant(call, cap, active_left_ms(purses))


def settle_call(tx: Tx, fence: Fence, record: CallRecord) -> bool:
    """The gateway's figures in place of the reservation; whether the agent is to finish now.

    A second record of the same call changes nothing. A late one, for a turn that has ended or moved on, is charged
    too; it writes no event.
    """
    lock_session(tx, fence.session_id)
    row = _call_row(tx.conn, fence.turn_id, record.call)
    if row["state"] == "settled":
        return False
    price = parse_price(row["price_json"])
    settled = believable(record)
    settled = replace(settled, cost=call_cost(settled, price))
    turn, is_current = _turn_row(tx.conn, fence.turn_id), _is_current(tx.conn, fence)
    accounts, news = _settled_accounts(tx, turn, row, _taken(settled)), list[NewEvent]()
    if is_current:
        accounts, news = warn(turn, accounts)
    store_accounts(tx, accounts)
    _store_settled(tx, fence.turn_id, settled)
    if row["state"] == "reserved" and is_current:
        write_turn(tx, fence, None, [_called(turn, settled, thread_id=row["thread_id"]), *news])
    return wraps_up(accounts)


def assume_open_calls(tx: Tx, turn_id: str, attempt: int | None) -> list[NewEvent]:
    """Charges calls that nobody will settle with all that they had reserved, marked as estimated."""
    query = select(model_calls).where(model_calls.c.turn_id == turn_id, model_calls.c.state == "reserved")
    written: list[NewEvent] = []
    for row in tx.conn.execute(query.order_by(model_calls.c.call)).mappings().all():
        assumed = _assumed(row)
        turn = _turn_row(tx.conn, turn_id)
        accounts, news = warn(turn, _settled_accounts(tx, turn, row, _taken(assumed)))
        store_accounts(tx, accounts)
        _store_settled(tx, turn_id, assumed, state="assumed")
        settled = to_call(_call_row(tx.conn, turn_id, row["call"]))
        written += [_called(turn, settled, thread_id=row["thread_id"], attempt=attempt), *news]
    return written


def usage_of(conn: Connection, turn_id: str, *, tool_calls: int, sandbox_ms: int) -> Usage:
    """What a turn has used by its ledger; running calls are not in it."""
    return sum_usage(calls_of(conn, [turn_id])[turn_id], tool_calls=tool_calls, sandbox_ms=sandbox_ms)


def usage_of_thread(conn: Connection, turn_id: str, thread_id: str, *, tool_calls: int, sandbox_ms: int) -> Usage:
    """What a subagent has used by the turn's ledger; running calls are in it with what they have reserved."""
    query = select(model_calls).where(model_calls.c.turn_id == turn_id, model_calls.c.thread_id == thread_id)
    rows = conn.execute(query.order_by(model_calls.c.call)).mappings()
    calls = [_assumed(row) if row["state"] == "reserved" else to_call(row) for row in rows]
    return sum_usage(calls, tool_calls=tool_calls, sandbox_ms=sandbox_ms)


def calls_of(conn: Connection, turn_ids: Sequence[str]) -> defaultdict[str, list[CallRecord]]:
    """The finished calls of some turns."""
    calls: defaultdict[str, list[CallRecord]] = defaultdict(list)
    if not turn_ids:
        return calls
    for row in conn.execute(_CALLS_OF, {"turns": list(turn_ids)}).mappings():
        calls[row["turn_id"]].append(to_call(row))
    return calls


def shortfall_of(conn: Connection, turn_id: str, now: datetime) -> Shortfall | None:
    """The limit that refuses even the smallest call of a turn, or `None`. Raises `NotFound`."""
    turn = _turn_row(conn, turn_id)
    accounts = accounts_over(conn, turn, now, locked=False)
    if not accounts:
        return None
    return shortfall([account.purse for account in accounts], _price_of_row(conn, turn, now))


def announce_front(tx: Tx, turn_id: str) -> list[NewEvent]:
    """`budget.reached` for a turn that came to the front of its queue with no budget left."""
    turn = _turn_row(tx.conn, turn_id)
    accounts = accounts_over(tx.conn, turn, tx.now, locked=True)
    found = shortfall([account.purse for account in accounts], _price_of_row(tx.conn, turn, tx.now))
    return [] if found is None else announce(tx, turn, accounts, found)


def unpayable_front() -> ColumnElement[bool]:
    """Whether a turn at a queue's front cannot be paid, over `turns`, as far as no price is needed to say so.

    The same predicate as `shortfall`, kept in the budgets' rows; a test compares them. Binds `now`.
    """
    over = budgets.c.scope_id.in_(
        [turns.c.id, turns.c.session_id, turns.c.agent_id, turns.c.api_key_id, turns.c.project_id]
    )
    in_window = budgets.c.resets_at.is_(None) | (budgets.c.resets_at > bindparam("now"))
    return select(budgets.c.id).where(IS_HELD, over, budgets.c.spent, in_window).exists()


def _settled_accounts(tx: Tx, turn: RowMapping, row: RowMapping, taken: Taken) -> list[Account]:
    """Those that the call counts in, with its figures in place of what it had reserved, or was assumed to have used."""
    held = _held(*_reserved_tokens(row), parse_price(row["price_json"]))
    accounts = accounts_over(tx.conn, turn, tx.now, locked=True)
    counted = [account for account in accounts if account.counts(row["created_at"])]
    if row["state"] == "assumed":
        return [charged(account, used=taken - held) for account in counted]
    return [charged(account, used=taken, reserved=Taken() - held) for account in counted]


def _held(input_tokens: int, output_tokens: int, price: Price | None) -> Taken:
    return reservation(input_tokens, output_tokens, largest_cost(price, input_tokens, output_tokens))


def _taken(record: CallRecord) -> Taken:
    entry = call_usage(record)
    cost = ZERO if record.cost is None else record.cost.amount
    tokens = entry.input_tokens + entry.output_tokens
    return Taken(model_calls=entry.model_calls, total_tokens=tokens, output_tokens=entry.output_tokens, cost=cost)


def _assumed(row: RowMapping) -> CallRecord:
    input_tokens, output_tokens = _reserved_tokens(row)
    price = parse_price(row["price_json"])
    cost = None if price is None else Money(largest_cost(price, input_tokens, output_tokens), price.currency)
    return replace(
        to_call(row),
        accepted=True,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        estimated=True,
        finish_reason=ASSUMED_FINISH,
        cost=cost,
    )


def _price_of_row(conn: Connection, turn: RowMapping, now: datetime) -> Price | None:
    agent = model_of(conn, turn)
    return price_of(conn, turn["project_id"], f"{agent['model_provider']}/{agent['model_id']}", now)


def model_of(conn: Connection, turn: RowMapping | Mapping[str, object]) -> RowMapping:
    """Provider and id of the model that a turn's, or a session's, agent version uses."""
    named = {"agent_key": turn["agent_id"], "version_key": turn["agent_version"]}
    return conn.execute(_MODEL_OF, named).mappings().one()


def _reserved(tx: Tx, turn: RowMapping, call: int, input_tokens: int, cap: int) -> dict[str, object]:
    # Until the gateway says which model answered, it is the agent's.
    agent = model_of(tx.conn, turn)
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
    }


def _store_settled(tx: Tx, turn_id: str, record: CallRecord, state: str = "settled") -> None:
    units, picos = (0, 0) if record.cost is None else split_amount(record.cost.amount)
    changes: dict[str, object] = {
        "state": state,
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
        "cost_currency": None if record.cost is None else record.cost.currency,
        "cost_units": units,
        "cost_picos": picos,
    }
    change(tx.conn, model_calls, {"turn_id": turn_id, "call": record.call}, changes)


def _called(turn: RowMapping, record: CallRecord, *, thread_id: str | None, attempt: int | None = None) -> NewEvent:
    called = model_called(
        turn_id=turn["id"],
        attempt=attempt or turn["attempt"] or None,
        call=record.call,
        provider=record.provider,
        model=record.model,
        latency_ms=record.latency_ms,
        first_token_ms=record.first_token_ms,
        finish_reason=record.finish_reason,
        usage=model_document(call_usage(record)),
        retries=record.retries,
    )
    return replace(called, thread_id=thread_id)


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
