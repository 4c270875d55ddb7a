"""Whether this process can serve, part by part: its database, and a Guardian that is somewhere else."""

import asyncio
from typing import Final
from urllib.parse import urlsplit

from turnkeeper.api.deps import Readiness
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.ports import StoreUnavailable

MAX_DEAD_LETTERS_COUNTED: Final = 100
CONNECT_MS: Final = 1_000


async def readiness(store: SqlTurnStore, guardian_url: str | None) -> Readiness:
    """What is ready. Of a Guardian somewhere else it says whether it takes connections, not what it would decide."""
    dead = await _dead_letters(store)
    checks = {"store": dead is not None}
    if guardian_url is not None:
        checks["guardian"] = await takes_connections(guardian_url)
    return Readiness(all(checks.values()), checks, {} if dead is None else {"dead_letters": dead})


async def takes_connections(url: str) -> bool:
    """Whether something listens where the URL leads, within `CONNECT_MS`."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_MS / 1000):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _dead_letters(store: SqlTurnStore) -> int | None:
    try:
        await store.ping()
        return len(await store.dead_letters(MAX_DEAD_LETTERS_COUNTED))
    except StoreUnavailable:
        return None
