"""What budgets are charged with besides model calls, and what is said about them (contract 8).

Answers for `budget.warning` once per mark and window, `budget.reached` once per window and limit, tool calls that are
counted before they run, and running time that is counted once.
"""

from collections.abc import Sequence

from sqlalchemy import RowMapping

from turnkeeper.events.budgets import budget_reached, budget_warning
from turnkeeper.events.envelope import NewEvent
from turnkeeper.store.budgets import accounts_over, store_accounts
from turnkeeper.store.statements import change, load_row
from turnkeeper.store.tables import turns
from turnkeeper.store.tx import Tx, append_events, change_fenced, lock_session, write_turn
from turnkeeper.turns.budget_accounts import Account, Warned, amount_document, announced, charged, warned
from turnkeeper.turns.budgets import Shortfall, Taken, time_shortfall, tool_shortfall
from turnkeeper.turns.model import Fence
from turnkeeper.turns.ports import BudgetSpent

_RATIO_DIGITS = 4
_ONE_TOOL = Taken(tool_calls=1)


def tool_ran(tx: Tx, fence: Fence) -> Shortfall | None:
    """Counts one tool call, or tells the limit that refuses it, written as `budget.reached` once.

    Raises `StaleFence`.
    """
    turn, accounts = _held(tx, fence)
    found = tool_shortfall(account.purse for account in accounts)
    if found is not None:
        append_events(tx, fence.session_id, announce(tx, turn, accounts, found))
        return found
    _count_tool(tx, fence, turn, accounts)
    return None


def tool_answered(tx: Tx, fence: Fence) -> None:
    """Counts a tool call that the app has run: there is nothing left to refuse. Raises `StaleFence`."""
    turn, accounts = _held(tx, fence)
    _count_tool(tx, fence, turn, accounts)


def tool_allowed(tx: Tx, fence: Fence) -> Shortfall | None:
    """The limit that would refuse a tool call, written as `budget.reached` once. Raises `StaleFence`."""
    turn, accounts = _held(tx, fence)
    found = tool_shortfall(account.purse for account in accounts)
    if found is not None:
        append_events(tx, fence.session_id, announce(tx, turn, accounts, found))
    return found


def time_over(tx: Tx, fence: Fence, active_ms: int) -> Shortfall | None:
    """Charges the running time; the limit that it has come to, written as `budget.reached` once."""
    lock_session(tx, fence.session_id)
    change_fenced(tx, fence, {})
    turn = load_row(tx.conn, turns, fence.turn_id)
    accounts = charge_active(tx, turn, active_ms)
    found = time_shortfall(account.purse for account in accounts)
    if found is not None:
        append_events(tx, fence.session_id, announce(tx, turn, accounts, found))
    return found


def charge_active(tx: Tx, turn: RowMapping, active_ms: int) -> list[Account]:
    """The budgets over the turn, locked, charged with the running time that they were not charged with before."""
    accounts = accounts_over(tx.conn, turn, tx.now, locked=True)
    new_ms = active_ms - turn["charged_ms"]
    if new_ms <= 0 or not accounts:
        return accounts
    accounts = [charged(account, used=Taken(active_ms=new_ms)) for account in accounts]
    store_accounts(tx, accounts)
    change(tx.conn, turns, {"id": turn["id"]}, {"charged_ms": active_ms})
    return accounts


def charge_rest(tx: Tx, turn_id: str, active_ms: int) -> None:
    """Charges the running time of a turn that stops running. The session's row is locked."""
    turn = load_row(tx.conn, turns, turn_id)
    if active_ms > turn["charged_ms"]:
        charge_active(tx, turn, active_ms)


def warn(turn: RowMapping, accounts: Sequence[Account]) -> tuple[list[Account], list[NewEvent]]:
    """The accounts that remember what is said now, and what that is."""
    after: list[Account] = []
    news: list[NewEvent] = []
    for account in accounts:
        remembering, found = warned(account)
        after.append(remembering)
        news += [_warning(turn, one) for one in found]
    return after, news


def announce(tx: Tx, turn: RowMapping, accounts: Sequence[Account], found: Shortfall) -> list[NewEvent]:
    """`budget.reached`, unless this limit has been announced before in this window."""
    account = next(account for account in accounts if account.purse.budget_id == found.budget_id)
    remembering = announced(account, found)
    if remembering is None:
        return []
    store_accounts(tx, [remembering])
    event = budget_reached(
        turn_id=turn["id"],
        attempt=turn["attempt"] or None,
        scope=found.scope,
        scope_id=found.id,
        dimension=found.dimension,
        limit=amount_document(found.limit),
        used=amount_document(found.used),
        budget_id=found.budget_id,
        resets_at=found.resets_at,
    )
    return [event]


def _held(tx: Tx, fence: Fence) -> tuple[RowMapping, list[Account]]:
    lock_session(tx, fence.session_id)
    change_fenced(tx, fence, {})
    turn = load_row(tx.conn, turns, fence.turn_id)
    return turn, accounts_over(tx.conn, turn, tx.now, locked=True)


def _count_tool(tx: Tx, fence: Fence, turn: RowMapping, accounts: Sequence[Account]) -> None:
    after, news = warn(turn, [charged(account, used=_ONE_TOOL) for account in accounts])
    store_accounts(tx, after)
    write_turn(tx, fence, {"tool_calls": turns.c.tool_calls + 1}, news)


def _warning(turn: RowMapping, one: Warned) -> NewEvent:
    account, gauge = one.account, one.gauge
    return budget_warning(
        turn_id=turn["id"],
        attempt=turn["attempt"] or None,
        budget_id=account.purse.budget_id,
        scope=account.scope,
        scope_id=account.scope_id,
        dimension=gauge.dimension,
        limit=amount_document(gauge.limit),
        used=amount_document(gauge.used),
        ratio=round(float(gauge.ratio), _RATIO_DIGITS),
    )


def spent(found: Shortfall, what: str) -> BudgetSpent:
    """The refusal of a call, in the words of the port."""
    detail = {
        "scope": found.scope,
        "dimension": found.dimension,
        "limit": amount_document(found.limit),
        "used": amount_document(found.used),
    }
    return BudgetSpent(f"{found.dimension} of the {found.scope} does not allow another {what}", detail=detail)
