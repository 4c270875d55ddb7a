"""What the API and the command line need of budgets, prices and usage. Every method is one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias

from turnkeeper.turns.budget_accounts import Account, BudgetChange, NewBudget
from turnkeeper.turns.model import CallRecord, Usage
from turnkeeper.turns.ports import Page, PageRequest
from turnkeeper.turns.prices import PriceRow

UsageGroup: TypeAlias = Literal["session", "agent", "api_key", "model", "day"]

USAGE_GROUPS: Final[tuple[UsageGroup, ...]] = ("session", "agent", "api_key", "model", "day")
MAX_USAGE_GROUPS: Final = 1_000
MAX_LEDGER_CALLS: Final = 10_000


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Whose usage, of which time, by what. Calls count by when they began, the rest by when a turn was posted."""

    project_id: str
    group_by: UsageGroup
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class LedgerCall:
    """One model call of a turn as the ledger has it. `settled` is `None` while it runs."""

    call: int
    state: Literal["reserved", "assumed", "settled"]
    provider: str
    model: str
    began_at: datetime
    settled_at: datetime | None
    reserved_input_tokens: int
    reserved_output_tokens: int
    settled: CallRecord | None


class BudgetStore(Protocol):
    """Budgets, prices and what was used."""

    async def create_budget(self, new: NewBudget) -> Account:
        """Raises `NotFound`, `TooManyBudgets`, `PriceUnknown`."""
        ...

    async def budget(self, project_id: str, budget_id: str) -> Account:
        """Raises `NotFound`."""
        ...

    async def budgets(self, project_id: str, page: PageRequest, *, scope_id: str | None = None) -> Page[Account]: ...

    async def change_budget(self, project_id: str, budget_id: str, change: BudgetChange) -> Account:
        """Raises `NotFound`, `BudgetArchived`, `LimitsInvalid`, `PriceUnknown`."""
        ...

    async def archive_budget(self, project_id: str, budget_id: str) -> Account:
        """Raises `NotFound`."""
        ...

    async def prices(self, project_id: str) -> tuple[PriceRow, ...]: ...

    async def put_prices(self, project_id: str, rows: Sequence[PriceRow]) -> tuple[PriceRow, ...]:
        """The table is these rows from now on. Calls keep the price they began with."""
        ...

    async def turn_calls(self, turn_id: str) -> tuple[LedgerCall, ...]: ...

    async def usage(self, query: UsageQuery) -> Mapping[str, Usage]:
        """By group, in the order of the groups; at most `MAX_USAGE_GROUPS`."""
        ...

    async def session_usage(self, session_ids: Sequence[str]) -> Mapping[str, Usage]:
        """What sessions have used in all; every one that was asked for is there."""
        ...
