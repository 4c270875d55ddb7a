"""API keys of a project (contract 2.9)."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from turnkeeper.client.turn_api.bodies import given, making, path_of, time_text
from turnkeeper.client.turn_api.connection import AsyncConnection
from turnkeeper.client.turn_api.pages import listed
from turnkeeper.client.turn_api.retries import Call
from turnkeeper.client.turn_api.views import ApiKey


class AsyncApiKeys:
    """API keys. A key makes no key that may do more than itself."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(
        self,
        name: str,
        *,
        idempotency_key: str | None = None,
        scopes: Sequence[str] | None = None,
        agent_ids: Sequence[str] | None = None,
        limits: Mapping[str, int] | None = None,
        expires_at: datetime | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> ApiKey:
        """Makes a key, once; its `secret` is in this answer and never again.

        It is None where that answer was lost and the repeat was told of the key it had made: rotate it then.
        """
        until = None if expires_at is None else time_text(expires_at, "expires_at")
        body = given(extra, name=name, scopes=scopes, agent_ids=agent_ids, limits=limits, expires_at=until)
        return ApiKey((await self._connection.ask(making(path_of("api_keys"), body, idempotency_key))).members)

    async def get(self, key_id: str) -> ApiKey:
        """The key, without its secret. Raises `NotFound`."""
        call = Call("GET", path_of("api_keys", key_id), repeatable=True)
        return ApiKey((await self._connection.ask(call)).members)

    async def list(self, *, limit: int | None = None, order: Literal["asc", "desc"] = "desc") -> AsyncIterator[ApiKey]:
        """Keys, revoked ones too, newest first unless `order` says otherwise."""
        call = Call("GET", path_of("api_keys"), query={"order": order}, repeatable=True)
        async for members in listed(self._connection, call, limit=limit):
            yield ApiKey(members)

    async def change(self, key_id: str, changes: Mapping[str, Any]) -> ApiKey:
        """Changes members of a key; what is left out stays."""
        call = Call("PATCH", path_of("api_keys", key_id), changes, repeatable=True)
        return ApiKey((await self._connection.ask(call)).members)

    async def rotate(self, key_id: str, *, overlap_hours: int | None = None) -> ApiKey:
        """Another `secret` for the key, shown once; the older one works until the overlap is over."""
        call = Call("POST", path_of("api_keys", key_id, "rotate"), given(overlap_hours=overlap_hours))
        return ApiKey((await self._connection.ask(call)).members)

    async def revoke(self, key_id: str) -> ApiKey:
        """Revokes a key: the next request that shows it is refused."""
        call = Call("DELETE", path_of("api_keys", key_id), repeatable=True)
        return ApiKey((await self._connection.ask(call)).members)
