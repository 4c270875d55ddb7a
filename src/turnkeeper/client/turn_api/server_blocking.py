"""`Turnkeeper`: one server, one key, everything that an app asks it for (contract 2).

Made from `turnkeeper.client.turn_api.server` by `tests/unit/client/turn_api_half.py`; change it there.
"""

from types import TracebackType
from typing import Self

import httpx

from turnkeeper.client.turn_api.admin_blocking import Admin
from turnkeeper.client.turn_api.connection_blocking import Connection
from turnkeeper.client.turn_api.files_blocking import Files
from turnkeeper.client.turn_api.keys_blocking import ApiKeys
from turnkeeper.client.turn_api.resources_blocking import (
    Agents,
    Approvals,
    Events,
    Sessions,
    Turns,
)
from turnkeeper.client.turn_api.retries import Retries
from turnkeeper.client.turn_api.secrets_blocking import Secrets
from turnkeeper.client.turn_api.skills_blocking import Skills
from turnkeeper.client.turn_api.spending_blocking import Budgets, Prices, Usage
from turnkeeper.client.turn_api.webhooks_blocking import Webhooks


class Turnkeeper:
    """A server's turn API: `with Turnkeeper(url, key) as turnkeeper`.

    Requests that cannot have been done, or that done twice are done once, are repeated as `retries` says; posting a
    turn is one of them. Settings of the environment for proxies are not obeyed; `http` brings a client of your own
    (certificates, proxies), which stays yours to close and must not follow redirections.
    """

    def __init__(
        self, base_url: str, key: str, *, retries: Retries | None = None, http: httpx.Client | None = None
    ) -> None:
        """`base_url` as `http://127.0.0.1:8080`. Raises `SettingRefused`."""
        self._connection = Connection(base_url, key, retries=retries or Retries(), http=http)
        self.agents = Agents(self._connection)
        self.sessions = Sessions(self._connection)
        self.turns = Turns(self._connection)
        self.events = Events(self._connection)
        self.approvals = Approvals(self._connection)
        self.webhooks = Webhooks(self._connection)
        self.budgets = Budgets(self._connection)
        self.files = Files(self._connection)
        self.model_prices = Prices(self._connection)
        self.usage = Usage(self._connection)
        self.admin = Admin(self._connection)
        self.secrets = Secrets(self._connection)
        self.skills = Skills(self._connection)
        self.api_keys = ApiKeys(self._connection)

    def close(self) -> None:
        """Closes the connections that are not the caller's; idempotent."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
