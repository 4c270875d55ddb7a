"""Secrets of a project: tokens that tools use without having them (contract 2.13)."""

from collections.abc import AsyncIterator, Sequence
from typing import Literal

from turnkeeper.client.turn_api.bodies import making, path_of
from turnkeeper.client.turn_api.connection import AsyncConnection
from turnkeeper.client.turn_api.pages import listed
from turnkeeper.client.turn_api.retries import Call
from turnkeeper.client.turn_api.views import Secret


class AsyncSecrets:
    """Values that the egress proxy adds to requests to the hosts that they are for. None is ever shown again."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(
        self, name: str, value: str, hosts: Sequence[str], *, idempotency_key: str | None = None
    ) -> Secret:
        """Keeps a value for requests to `hosts`, once. Raises `RequestRefused`, `Conflict`."""
        body = {"name": name, "value": value, "hosts": list(hosts)}
        return Secret((await self._connection.ask(making(path_of("secrets"), body, idempotency_key))).members)

    async def get(self, secret_id: str) -> Secret:
        """The secret without its value. Raises `NotFound`."""
        call = Call("GET", path_of("secrets", secret_id), repeatable=True)
        return Secret((await self._connection.ask(call)).members)

    async def list(self, *, limit: int | None = None, order: Literal["asc", "desc"] = "desc") -> AsyncIterator[Secret]:
        """Secrets without their values, newest first unless `order` says otherwise."""
        call = Call("GET", path_of("secrets"), query={"order": order}, repeatable=True)
        async for members in listed(self._connection, call, limit=limit):
            yield Secret(members)

    async def delete(self, secret_id: str) -> None:
        """Deletes a secret: boxes that are open keep it to their end, new ones get none. Raises `NotFound`."""
        await self._connection.ask(Call("DELETE", path_of("secrets", secret_id)))
