"""`AccessStore` on SQL: every method is one transaction of `store/access.py`."""

from collections.abc import Collection

from turnkeeper.clock import Clock
from turnkeeper.store import access
from turnkeeper.store.webhook_store import Reads, Writes
from turnkeeper.turns.access import AccessStore, Admission, KeyChange, NewKey
from turnkeeper.turns.model import ApiKey
from turnkeeper.turns.ports import Page, PageRequest


class SqlAccessStore(AccessStore):
    """Keys and whose things are, in the turn store's database."""

    def __init__(self, read: Reads, write: Writes, clock: Clock) -> None:
        self._read = read
        self._write = write
        self._clock = clock

    async def admit(self, secret_sha256: str, ids: Collection[str]) -> Admission | None:
        now = self._clock.now()
        return await self._read(lambda conn: access.admit(conn, secret_sha256, ids, now))

    async def knows_request(self, project_id: str, idempotency_key: str) -> bool:
        return await self._read(lambda conn: access.knows_request(conn, project_id, idempotency_key))

    async def used(self, key_id: str) -> None:
        await self._write(lambda tx: access.used(tx, key_id))

    async def make_key(self, new: NewKey, *, actor: str | None) -> ApiKey:
        return await self._write(lambda tx: access.make_key(tx, new, actor=actor))

    async def key(self, key_id: str) -> ApiKey:
        return await self._read(lambda conn: access.key_by_id(conn, key_id))

    async def keys_of(self, project_id: str, page: PageRequest) -> Page[ApiKey]:
        return await self._read(lambda conn: access.keys_of(conn, project_id, page))

    async def change_key(self, key_id: str, change: KeyChange) -> ApiKey:
        return await self._write(lambda tx: access.change_key(tx, key_id, change))

    async def rotate_key(self, key_id: str, *, secret_sha256: str, overlap_hours: int, actor: str | None) -> ApiKey:
        return await self._write(
            lambda tx: access.rotate_key(
                tx, key_id, secret_sha256=secret_sha256, overlap_hours=overlap_hours, actor=actor
            )
        )

    async def end_key(self, key_id: str, *, actor: str | None) -> ApiKey:
        return await self._write(lambda tx: access.end_key(tx, key_id, actor=actor))
