"""`AsyncTurnkeeper`: one server, one key, everything that an app asks it for (contract 2)."""

from types import TracebackType
from typing import Self

import httpx

from turnkeeper.client.turn_api.admin import AsyncAdmin
from turnkeeper.client.turn_api.connection import AsyncConnection
from turnkeeper.client.turn_api.files import AsyncFiles
from turnkeeper.client.turn_api.keys import AsyncApiKeys
from turnkeeper.client.turn_api.resources import (
    AsyncAgents,
    AsyncApprovals,
    AsyncEvents,
    AsyncSessions,
    AsyncTurns,
)
from turnkeeper.client.turn_api.retries import Retries
from turnkeeper.client.turn_api.secrets import AsyncSecrets
from turnkeeper.client.turn_api.skills import AsyncSkills
from turnkeeper.client.turn_api.spending import AsyncBudgets, AsyncPrices, AsyncUsage
from turnkeeper.client.turn_api.webhooks import AsyncWebhooks


class AsyncTurnkeeper:
    """A server's turn API: `async with AsyncTurnkeeper(url, key) as turnkeeper`.

    Requests that cannot have been done, or that done twice are done once, are repeated as `retries` says; posting a
    turn is one of them. Settings of the environment for proxies are not obeyed; `http` brings a client of your own
    (certificates, proxies), which stays yours to close and must not follow redirections.
    """

    def __init__(
        self, base_url: str, key: str, *, retries: Retries | None = None, http: httpx.AsyncClient | None = None
    ) -> None:
        """`base_url` as `http://127.0.0.1:8080`. Raises `SettingRefused`."""
        self._connection = AsyncConnection(base_url, key, retries=retries or Retries(), http=http)
        self.agents = AsyncAgents(self._connection)
        self.sessions = AsyncSessions(self._connection)
        self.turns = AsyncTurns(self._connection)
        self.events = AsyncEvents(self._connection)
        self.approvals = AsyncApprovals(self._connection)
        self.webhooks = AsyncWebhooks(self._connection)
        self.budgets = AsyncBudgets(self._connection)
        self.files = AsyncFiles(self._connection)
        self.model_prices = AsyncPrices(self._connection)
        self.usage = AsyncUsage(self._connection)
        self.admin = AsyncAdmin(self._connection)
        self.secrets = AsyncSecrets(self._connection)
        self.skills = AsyncSkills(self._connection)
        self.api_keys = AsyncApiKeys(self._connection)

    async def aclose(self) -> None:
        """Closes the connections that are not the caller's; idempotent."""
        await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
