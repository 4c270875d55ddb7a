"""Budgets, prices and what was used (contract 2.7, 2.13 and 4)."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from turnkeeper.client.turn_api.bodies import given, making, narrowed, path_of, time_text
from turnkeeper.client.turn_api.connection import AsyncConnection
from turnkeeper.client.turn_api.pages import listed
from turnkeeper.client.turn_api.retries import Call
from turnkeeper.client.turn_api.spending_views import Budget, ModelPrice, ModelPrices, UsageReport


class AsyncBudgets:
    """Budgets over a project, a key, an agent or a session (contract 2.7 and 8)."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(
        self,
        scope: Mapping[str, str],
        limits: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        window: Literal["total", "day", "month"] | None = None,
        timezone: str | None = None,
        warn_at: Sequence[float] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Budget:
        """Makes a budget, once. `scope` is `{"type": …, "id": …}`."""
        body = given(extra, scope=scope, limits=limits, window=window, timezone=timezone, warn_at=warn_at)
        return Budget((await self._connection.ask(making(path_of("budgets"), body, idempotency_key))).members)

    async def get(self, budget_id: str) -> Budget:
        """The budget with what is used of it. Raises `NotFound`."""
        call = Call("GET", path_of("budgets", budget_id), repeatable=True)
        return Budget((await self._connection.ask(call)).members)

    async def list(
        self, *, scope_id: str | None = None, limit: int | None = None, order: Literal["asc", "desc"] = "desc"
    ) -> AsyncIterator[Budget]:
        """Budgets, archived ones too, newest first unless `order` says otherwise; of one scope if it is named."""
        call = Call("GET", path_of("budgets"), query=narrowed(order=order, scope_id=scope_id), repeatable=True)
        async for members in listed(self._connection, call, limit=limit):
            yield Budget(members)

    async def change(self, budget_id: str, changes: Mapping[str, Any]) -> Budget:
        """Changes members of a budget; what is left out stays. Raising a limit lets turns go on."""
        call = Call("PATCH", path_of("budgets", budget_id), changes, repeatable=True)
        return Budget((await self._connection.ask(call)).members)

    async def delete(self, budget_id: str) -> None:
        """Ends a budget."""
        await self._connection.ask(Call("DELETE", path_of("budgets", budget_id), repeatable=True))


class AsyncPrices:
    """What models cost (contract 2.7). The table is read and put as a whole."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self) -> ModelPrices:
        """The table."""
        return ModelPrices((await self._connection.ask(Call("GET", path_of("model_prices"), repeatable=True))).members)

    async def put(self, prices: Sequence[ModelPrice | Mapping[str, Any]]) -> ModelPrices:
        """Puts these rows in place of the whole table; what was costed stays as it is.

        A row is `{"model": "provider/id", "kind": "input", "per_million": {"amount": "2.5", "currency": "USD"}}`.
        """
        rows = [row.members if isinstance(row, ModelPrice) else row for row in prices]
        call = Call("PUT", path_of("model_prices"), {"prices": rows}, repeatable=True)
        return ModelPrices((await self._connection.ask(call)).members)


class AsyncUsage:
    """What was used in a time (contract 2.13); a turn has its own."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(
        self,
        group_by: Literal["session", "agent", "api_key", "model", "day"] = "day",
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> UsageReport:
        """Sums by group; without times those of the last 30 days."""
        times = {name: time_text(at, name) for name, at in (("from", since), ("to", until)) if at is not None}
        call = Call("GET", path_of("usage"), query={"group_by": group_by, **times}, repeatable=True)
        return UsageReport((await self._connection.ask(call)).members)
