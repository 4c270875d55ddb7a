"""One request of an Idempotency-Key at a time in this process (contract 9).

Answers for a second request that waits for the first one and not for ever, whatever keeps the first. Those of other
processes are kept apart by the store.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from turnkeeper.turns.idempotency import IN_PROGRESS_WAIT_MS, IdempotencyInProgress


class KeysInFlight:
    """The keys whose requests this process is committing."""

    def __init__(self, *, wait_ms: int = IN_PROGRESS_WAIT_MS) -> None:
        self._wait_ms = wait_ms
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._users = Counter[tuple[str, str]]()

    @property
    def count(self) -> int:
        """How many keys are in use now."""
        return len(self._locks)

    @asynccontextmanager
    async def held(self, project_id: str, key: str | None) -> AsyncGenerator[None]:
        """The key is this request's alone until the end of the block. Raises `IdempotencyInProgress`."""
        if key is None:
            yield
            return
        name = (project_id, key)
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] += 1
        try:
            await self._acquire(lock)
            try:
                yield
            finally:
                lock.release()
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]

    async def _acquire(self, lock: asyncio.Lock) -> None:
        try:
            async with asyncio.timeout(self._wait_ms / 1000):
                await lock.acquire()
        except TimeoutError as error:
            raise IdempotencyInProgress() from error
