"""A budget as the ledger keeps it: what is used, what running calls have reserved, what was announced (contract 8).

Pure: every function gives the account as it is then. A call counts in the window in which it began; what is settled
after that window has ended changes nothing in the next one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Final, Literal, TypeAlias

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.budget_windows import BudgetWindow, window_end, window_start
from turnkeeper.turns.budgets import (
    NOTHING_TAKEN,
    Dimension,
    Gauge,
    Purse,
    Scope,
    Shortfall,
    Taken,
    gauges,
    is_spent,
)
from turnkeeper.turns.model import Budget
from turnkeeper.turns.money import Money, render_amount

BudgetStatus: TypeAlias = Literal["active", "reached", "archived"]
ResourceScope: TypeAlias = Literal["session", "agent", "api_key", "project"]

RESOURCE_SCOPES: Final[tuple[ResourceScope, ...]] = ("project", "api_key", "agent", "session")
DEFAULT_WARN_AT: Final = (80,)
MAX_WARN_AT: Final = 10
MAX_BUDGETS: Final = 1_000
MAX_PER_SCOPE: Final = 8
"""How many budgets may hold one thing, a day's and a month's for instance."""


class TooManyBudgets(TurnkeeperError):
    """The project, or the thing that is to be held, has as many budgets as it may have."""

    code = "too_many_budgets"


class BudgetArchived(TurnkeeperError):
    """The budget holds nothing any more and cannot be changed."""

    code = "budget_archived"


class LimitsInvalid(TurnkeeperError):
    """Limits that a budget cannot have: none at all, or money of another currency than it counts."""

    code = "budget_invalid"


@dataclass(frozen=True, slots=True)
class NewBudget:
    """A budget to be made, already checked. `warn_at` are percents of a limit."""

    project_id: str
    scope: ResourceScope
    scope_id: str
    limits: Budget
    window: BudgetWindow = "total"
    timezone: str = "UTC"
    warn_at: tuple[int, ...] = DEFAULT_WARN_AT


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """What changes of a budget. A dimension of `limits` that is not named stays; one that is None is lifted."""

    limits: Mapping[Dimension, int | Money | None] = field(default_factory=dict[Dimension, int | Money | None])
    warn_at: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """A budget with its figures. `counts_from` is when its window began, or it was made; calls from then on count.

    `reached` are the limits that were announced as reached, `warned` the marks that were.
    """

    id: str
    project_id: str
    scope: Scope
    scope_id: str
    limits: Budget
    window: BudgetWindow
    timezone: str
    warn_at: tuple[int, ...]
    counts_from: datetime
    resets_at: datetime | None
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None = None
    used: Taken = NOTHING_TAKEN
    reserved: Taken = NOTHING_TAKEN
    reached: Mapping[str, str] = field(default_factory=dict[str, str])
    warned: frozenset[str] = frozenset()

    @property
    def purse(self) -> Purse:
        """What a turn may take from it."""
        resource_id = None if self.scope == "turn" else self.id
        return Purse(self.scope, self.scope_id, self.limits, self.used + self.reserved, resource_id, self.resets_at)

    @property
    def spent(self) -> bool:
        """Whether nothing can be called from it any more, whatever a model costs."""
        return is_spent(self.purse)

    @property
    def status(self) -> BudgetStatus:
        """As an app sees it."""
        if self.archived_at is not None:
            return "archived"
        return "reached" if self.spent or self.reached else "active"

    def counts(self, began_at: datetime) -> bool:
        """Whether a call that began then is in this window."""
        return began_at >= self.counts_from


@dataclass(frozen=True, slots=True)
class Warned:
    """A mark that a budget has come to."""

    account: Account
    gauge: Gauge


def current(account: Account, zone: tzinfo, now: datetime) -> Account:
    """The account in the window that `now` is in: nothing is used, reserved or announced in a new one."""
    if account.resets_at is None or now < account.resets_at:
        return account
    start = window_start(account.window, zone, now)
    return replace(
        account,
        counts_from=start or account.counts_from,
        resets_at=window_end(account.window, zone, now),
        used=NOTHING_TAKEN,
        reserved=NOTHING_TAKEN,
        reached={},
        warned=frozenset(),
    )


def charged(account: Account, *, used: Taken | None = None, reserved: Taken | None = None) -> Account:
    """The account after a change; neither figure falls below zero."""
    return replace(
        account,
        used=(account.used + (used or NOTHING_TAKEN)).floored(),
        reserved=(account.reserved + (reserved or NOTHING_TAKEN)).floored(),
    )


def warned(account: Account) -> tuple[Account, tuple[Warned, ...]]:
    """The marks that were come to since, once each, and the account that remembers them. The highest one speaks."""
    found: list[Warned] = []
    marks = set(account.warned)
    for gauge in gauges(account.limits, account.used):
        new = [mark for mark in account.warn_at if gauge.ratio * 100 >= mark and _mark(gauge, mark) not in marks]
        if new:
            marks |= {_mark(gauge, mark) for mark in new}
            found.append(Warned(account, gauge))
    return replace(account, warned=frozenset(marks)), tuple(found)


def announced(account: Account, found: Shortfall) -> Account | None:
    """The account that remembers that this limit is reached; None where it was said already."""
    value = _value(found.limit)
    if account.reached.get(found.dimension) == value:
        return None
    return replace(account, reached={**account.reached, found.dimension: value})


def changed(account: Account, change: BudgetChange, now: datetime) -> Account:
    """The account with other limits. One that is raised, or lifted, arms its warnings and its end again.

    Raises `LimitsInvalid`. What was used stays; where the currency of the cost changes it would be a figure of another
    one, so that is refused as well.
    """
    limits = replace(account.limits, **{str(name): value for name, value in change.limits.items()})
    if limits == Budget():
        raise LimitsInvalid("a budget has at least one limit")
    old, new = account.limits.max_cost, limits.max_cost
    if old is not None and new is not None and old.currency != new.currency:
        raise LimitsInvalid(f"the budget counts {old.currency}", hint="Make another budget for another currency.")
    raised = {gauge.dimension for gauge in gauges(account.limits, account.used) if _is_raised(gauge, limits)}
    return replace(
        account,
        limits=limits,
        warn_at=account.warn_at if change.warn_at is None else change.warn_at,
        reached={name: value for name, value in account.reached.items() if name not in raised},
        warned=frozenset(mark for mark in account.warned if mark.partition(":")[0] not in raised),
        updated_at=now,
    )


def wraps_up(accounts: Iterable[Account]) -> bool:
    """Whether some budget is so far used that the agent is to finish."""
    return any(gauge.wraps_up for account in accounts for gauge in gauges(account.limits, account.used))


def limits_document(limits: Budget) -> dict[str, object]:
    """The limits that are set, as events and answers show them."""
    return {gauge.dimension: amount_document(gauge.limit) for gauge in gauges(limits, NOTHING_TAKEN)}


def amount_document(amount: int | Money) -> object:
    """A figure of a dimension."""
    if isinstance(amount, Money):
        return {"amount": render_amount(amount.amount), "currency": amount.currency}
    return amount


def _mark(gauge: Gauge, mark: int) -> str:
    return f"{gauge.dimension}:{mark}"


def _value(amount: int | Money) -> str:
    return f"{render_amount(amount.amount)} {amount.currency}" if isinstance(amount, Money) else str(amount)


def _is_raised(gauge: Gauge, limits: Budget) -> bool:
    after = next((other for other in gauges(limits, NOTHING_TAKEN) if other.dimension == gauge.dimension), None)
    return after is None or _number(after.limit) > _number(gauge.limit)


def _number(amount: int | Money) -> Decimal:
    return amount.amount if isinstance(amount, Money) else Decimal(amount)
