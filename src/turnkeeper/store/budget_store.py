"""`BudgetStore` on SQL: every method is one transaction of the modules beside this one."""

from collections.abc import Mapping, Sequence

from turnkeeper.clock import Clock
from turnkeeper.store import budgets, prices, usage
from turnkeeper.store.price_checks import require_price_of
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhook_store import Reads, Writes
from turnkeeper.turns.budget_accounts import Account, BudgetChange, NewBudget
from turnkeeper.turns.budget_ports import BudgetStore, LedgerCall, UsageQuery
from turnkeeper.turns.model import Usage
from turnkeeper.turns.ports import Page, PageRequest
from turnkeeper.turns.prices import PriceRow


class SqlBudgetStore(BudgetStore):
    """Budgets in the turn store's database."""

    def __init__(self, read: Reads, write: Writes, clock: Clock) -> None:
        self._read = read
        self._write = write
        self._clock = clock

    async def create_budget(self, new: NewBudget) -> Account:
        return await self._write(lambda tx: make_budget(tx, new))

    async def budget(self, project_id: str, budget_id: str) -> Account:
        now = self._clock.now()
        return await self._read(lambda conn: budgets.budget_by_id(conn, project_id, budget_id, now))

    async def budgets(self, project_id: str, page: PageRequest, *, scope_id: str | None = None) -> Page[Account]:
        now = self._clock.now()
        return await self._read(lambda conn: budgets.list_budgets(conn, project_id, page, scope_id, now))

    async def change_budget(self, project_id: str, budget_id: str, change: BudgetChange) -> Account:
        def body(tx: Tx) -> Account:
            account = budgets.change_budget(tx, project_id, budget_id, change)
            require_price_of(tx, account)
            return account

        return await self._write(body)

    async def archive_budget(self, project_id: str, budget_id: str) -> Account:
        return await self._write(lambda tx: budgets.archive_budget(tx, project_id, budget_id))

    async def prices(self, project_id: str) -> tuple[PriceRow, ...]:
        return await self._read(lambda conn: prices.list_prices(conn, project_id))

    async def put_prices(self, project_id: str, rows: Sequence[PriceRow]) -> tuple[PriceRow, ...]:
        def body(tx: Tx) -> tuple[PriceRow, ...]:
            prices.put_prices(tx, project_id, rows)
            return prices.list_prices(tx.conn, project_id)

        return await self._write(body)

    async def turn_calls(self, turn_id: str) -> tuple[LedgerCall, ...]:
        return await self._read(lambda conn: usage.turn_calls(conn, turn_id))

    async def usage(self, query: UsageQuery) -> Mapping[str, Usage]:
        return await self._read(lambda conn: usage.usage_by(conn, query))

    async def session_usage(self, session_ids: Sequence[str]) -> Mapping[str, Usage]:
        return await self._read(lambda conn: usage.usage_of_sessions(conn, session_ids))


def make_budget(tx: Tx, new: NewBudget) -> Account:
    """A budget that every model it holds has a price for. Raises as `BudgetStore.create_budget` does."""
    account = budgets.create_budget(tx, new)
    require_price_of(tx, account)
    return account
