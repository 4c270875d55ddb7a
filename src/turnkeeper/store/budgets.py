"""Budgets as rows: those over a turn, locked and in their window; made, changed, archived, listed.

INVARIANT: whoever changes figures has locked the session's row before, and then the budgets' in the order of their ids,
so that no two bodies wait for each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import orjson
from sqlalchemy import Connection, RowMapping, Select, bindparam, func, or_, select

from turnkeeper.events.budgets import budget_updated
from turnkeeper.store.budget_tables import FIGURES, IS_HELD, IS_RESOURCE, budgets
from turnkeeper.store.pages import load_page
from turnkeeper.store.rows import parse_limits, to_json
from turnkeeper.store.statements import add, change
from turnkeeper.store.tables import agents, api_keys, sessions
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhooks import append_project_event
from turnkeeper.turns.budget_accounts import (
    DEFAULT_WARN_AT,
    MAX_BUDGETS,
    MAX_PER_SCOPE,
    Account,
    BudgetArchived,
    BudgetChange,
    NewBudget,
    TooManyBudgets,
    changed,
    current,
    limits_document,
)
from turnkeeper.turns.budget_windows import BudgetWindow, window_end
from turnkeeper.turns.budgets import Scope, Taken
from turnkeeper.turns.model import Budget
from turnkeeper.turns.money import render_amount
from turnkeeper.turns.ports import NotFound, Page, PageRequest

_OVER: Final = (
    select(budgets)
    .where(
        IS_HELD,
        or_(*(budgets.c.scope_id == bindparam(name) for name in ("turn", "session", "agent", "key", "project"))),
    )
    .order_by(budgets.c.id)
)
_OVER_LOCKED: Final = _OVER.with_for_update()
_OWNERS: Final[dict[str, Any]] = {"session": sessions, "agent": agents, "api_key": api_keys}


def accounts_over(
    conn: Connection, turn: RowMapping | Mapping[str, object], now: datetime, *, locked: bool
) -> list[Account]:
    """The budgets over a row of `turns`, those in their current window; `locked` until the end of the transaction."""
    values = {
        "turn": turn["id"],
        "session": turn["session_id"],
        "agent": turn["agent_id"],
        "key": turn["api_key_id"],
        "project": turn["project_id"],
    }
    rows = conn.execute(_OVER_LOCKED if locked else _OVER, values).mappings().all()
    return [_current(row, now) for row in rows]


def store_accounts(tx: Tx, accounts: Iterable[Account]) -> None:
    """The figures and announcements of locked budgets."""
    for account in accounts:
        change(tx.conn, budgets, {"id": account.id}, _figures(account))


def open_account(
    tx: Tx,
    scope: Scope,
    scope_id: str,
    limits: Budget,
    *,
    project_id: str,
    window: BudgetWindow = "total",
    timezone: str = "UTC",
    warn_at: tuple[int, ...] = DEFAULT_WARN_AT,
) -> Account:
    """A budget of which nothing is used yet."""
    account = Account(
        id=tx.ids.new("bud"),
        project_id=project_id,
        scope=scope,
        scope_id=scope_id,
        limits=limits,
        window=window,
        timezone=timezone,
        warn_at=warn_at,
        counts_from=tx.now,
        resets_at=window_end(window, ZoneInfo(timezone), tx.now),
        created_at=tx.now,
        updated_at=tx.now,
    )
    add(tx.conn, budgets, {**_fixed(account), **_figures(account)})
    return account


def close_account(tx: Tx, turn_id: str) -> None:
    """Forgets the budget of a turn that has ended."""
    tx.conn.execute(budgets.delete().where(IS_HELD, budgets.c.scope_id == turn_id))


def create_budget(tx: Tx, new: NewBudget) -> Account:
    """A budget resource. Raises `NotFound` for what it would hold, `TooManyBudgets`."""
    _require_owner(tx.conn, new)
    held = select(func.count()).where(IS_HELD, IS_RESOURCE, budgets.c.project_id == new.project_id)
    if tx.conn.execute(held).scalar_one() >= MAX_BUDGETS:
        raise TooManyBudgets(f"the project has {MAX_BUDGETS} budgets already")
    if tx.conn.execute(held.where(budgets.c.scope_id == new.scope_id)).scalar_one() >= MAX_PER_SCOPE:
        raise TooManyBudgets(f"{new.scope_id} has {MAX_PER_SCOPE} budgets already")
    return open_account(
        tx,
        new.scope,
        new.scope_id,
        new.limits,
        project_id=new.project_id,
        window=new.window,
        timezone=new.timezone,
        warn_at=new.warn_at,
    )


def budget_by_id(conn: Connection, project_id: str, budget_id: str, now: datetime) -> Account:
    """A budget resource in its current window. Raises `NotFound`."""
    row = conn.execute(_by_id(project_id, budget_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no budget {budget_id}")
    return _current(row, now)


def list_budgets(
    conn: Connection, project_id: str, page: PageRequest, scope_id: str | None, now: datetime
) -> Page[Account]:
    """A page of budget resources, archived ones too; of one scope or of all."""
    query = select(budgets).where(IS_RESOURCE, budgets.c.project_id == project_id)
    if scope_id is not None:
        query = query.where(budgets.c.scope_id == scope_id)
    return load_page(conn, query, budgets.c.id, page, lambda rows: [_current(row, now) for row in rows])


def change_budget(tx: Tx, project_id: str, budget_id: str, wanted: BudgetChange) -> Account:
    """The budget with its changes, and `budget.updated` where its limits are others.

    Raises `NotFound`, `BudgetArchived`, `LimitsInvalid`.
    """
    before = _locked(tx, project_id, budget_id)
    if before.archived_at is not None:
        raise BudgetArchived(f"{budget_id} is archived")
    after = changed(before, wanted, tx.now)
    values = {"limits_json": to_json(limits_document(after.limits)), "warn_at_json": to_json(after.warn_at)}
    change(tx.conn, budgets, {"id": budget_id}, {**values, **_figures(after), "updated_at": tx.now})
    if after.limits != before.limits:
        now, then = limits_document(after.limits), limits_document(before.limits)
        told = budget_updated(budget_id=budget_id, limits=now, previous_limits=then)
        append_project_event(tx, told, project_id=project_id)
    return after


def archive_budget(tx: Tx, project_id: str, budget_id: str) -> Account:
    """The budget, which holds nothing from now on. Raises `NotFound`."""
    before = _locked(tx, project_id, budget_id)
    if before.archived_at is None:
        change(tx.conn, budgets, {"id": budget_id}, {"archived_at": tx.now, "updated_at": tx.now})
    return budget_by_id(tx.conn, project_id, budget_id, tx.now)


def to_account(row: RowMapping) -> Account:
    """A row of `budgets` as it was written."""
    return Account(
        id=row["id"],
        project_id=row["project_id"],
        scope=row["scope"],
        scope_id=row["scope_id"],
        limits=parse_limits(row["limits_json"]),
        window=row["budget_window"],
        timezone=row["timezone"],
        warn_at=tuple(orjson.loads(row["warn_at_json"])),
        counts_from=row["counts_from"],
        resets_at=row["resets_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        archived_at=row["archived_at"],
        used=_taken(row, "used"),
        reserved=_taken(row, "reserved"),
        reached=orjson.loads(row["reached_json"]),
        warned=frozenset(orjson.loads(row["warned_json"])),
    )


def _locked(tx: Tx, project_id: str, budget_id: str) -> Account:
    row = tx.conn.execute(_by_id(project_id, budget_id).with_for_update()).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no budget {budget_id}")
    return _current(row, tx.now)


def _by_id(project_id: str, budget_id: str) -> Select[Any]:
    return select(budgets).where(budgets.c.id == budget_id, budgets.c.project_id == project_id, IS_RESOURCE)


def _require_owner(conn: Connection, new: NewBudget) -> None:
    table = _OWNERS.get(new.scope)
    if table is None:
        known = new.scope_id == new.project_id
    else:
        # An agent may have several rows, one for each version.
        query = select(table.c.id).where(table.c.id == new.scope_id, table.c.project_id == new.project_id)
        known = conn.execute(query.limit(1)).one_or_none() is not None
    if not known:
        raise NotFound(f"there is no {new.scope} {new.scope_id}")


def _current(row: RowMapping, now: datetime) -> Account:
    account = to_account(row)
    return current(account, ZoneInfo(account.timezone), now)


def _taken(row: RowMapping, kind: str) -> Taken:
    return Taken(**{name: row[f"{kind}_{name}"] for name in FIGURES}, cost=Decimal(row[f"{kind}_cost"]))


def _fixed(account: Account) -> dict[str, object]:
    return {
        "id": account.id,
        "project_id": account.project_id,
        "scope": account.scope,
        "scope_id": account.scope_id,
        "limits_json": to_json(limits_document(account.limits)),
        "budget_window": account.window,
        "timezone": account.timezone,
        "warn_at_json": to_json(account.warn_at),
        "created_at": account.created_at,
        "updated_at": account.updated_at,
        "archived_at": account.archived_at,
    }


def _figures(account: Account) -> dict[str, object]:
    kinds: Sequence[tuple[str, Taken]] = (("used", account.used), ("reserved", account.reserved))
    return {
        **{f"{kind}_{name}": getattr(taken, name) for kind, taken in kinds for name in FIGURES},
        **{f"{kind}_cost": render_amount(taken.cost) for kind, taken in kinds},
        "spent": account.spent,
        "reached_json": to_json(dict(account.reached)),
        "warned_json": to_json(sorted(account.warned)),
        "counts_from": account.counts_from,
        "resets_at": account.resets_at,
    }
