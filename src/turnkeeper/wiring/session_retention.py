"""Joins the end of sessions to the store, the workspaces and the news of this process. No rule of its own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.content_sweep import ContentSweep
from turnkeeper.turns.retention import RETENTION_TOPIC, Retention
from turnkeeper.turns.timing import stop_task
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.contents import open_contents


@asynccontextmanager
async def retaining(base: Base, store: SqlTurnStore) -> AsyncGenerator[None]:
    """Sweeps until the end of the block."""
    with base.wakeups.watch(RETENTION_TOPIC) as bell:
        retention = Retention(
            store.retention(),
            base.folder.workspaces,
            bell,
            sweep_ms=base.settings.retention.sweep_ms,
            also=ContentSweep(store.files(), open_contents(base, store), base.clock).sweep,
        )
        running = asyncio.create_task(retention.run())
        try:
            yield
        finally:
            await stop_task(running)
