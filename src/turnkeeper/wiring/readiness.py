"""Whether this process can serve, part by part: its database, its tables, and a Guardian that is somewhere else.

Answers for saying so within `PROBE_MS`, whatever hangs. A part that has not answered by then is not ready, and a figure
that could not be read is left out: it is never guessed.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar
from urllib.parse import urlsplit

from turnkeeper.api.deps import Readiness
from turnkeeper.errors import TurnkeeperError
from turnkeeper.store.turn_store import SqlTurnStore

MAX_COUNTED: Final = 100
"""How many dead letters, and sessions that owe the Guardian something, are counted; more are not told apart."""
PROBE_MS: Final = 2_000
CONNECT_MS: Final = 1_000

T = TypeVar("T")


async def readiness(store: SqlTurnStore, guardian_url: str | None) -> Readiness:
    """What is ready. Of a Guardian somewhere else it says whether it takes connections, not what it would decide.

    What the Guardian still has to be told, and what it has refused for good, are the counters.
    """
    operations = store.operations()
    pinged, current, dead, owing, drain, listens = await asyncio.gather(
        _within(_answered(store.ping())),
        _within(operations.schema_is_current()),
        _within(store.dead_letters(MAX_COUNTED)),
        _within(store.sessions_with_pending_steps(MAX_COUNTED)),
        _within(_drained(store)),
        _true() if guardian_url is None else takes_connections(guardian_url),
    )
    checks = {"store": pinged is True, "migrations": current is True}
    if guardian_url is not None:
        checks["guardian"] = listens
    counted = {"dead_letters": dead, "sessions_owing_steps": owing}
    counters = {name: len(found) for name, found in counted.items() if found is not None}
    return Readiness(all(checks.values()), checks, counters, drained=drain is True)


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


async def _within(work: Awaitable[T]) -> T | None:
    try:
        async with asyncio.timeout(PROBE_MS / 1000):
            return await work
    except (TurnkeeperError, TimeoutError):
        return None


async def _answered(work: Awaitable[None]) -> bool:
    await work
    return True


async def _drained(store: SqlTurnStore) -> bool:
    return await store.operations().drain() is not None


async def _true() -> bool:
    return True
