"""What is ready: a Guardian somewhere else is asked for a connection."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from turnkeeper.api.deps import Readiness
from turnkeeper.clock import SystemClock
from turnkeeper.ids import RandomIds
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.model import CanceledBy
from turnkeeper.turns.wakeups import LocalWakeups
from turnkeeper.wiring.readiness import readiness, takes_connections


async def _hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_a_guardian_takes_connections_while_it_listens_and_not_afterwards() -> None:
    async def main() -> tuple[bool, bool]:
        server = await asyncio.start_server(_hang_up, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/acs"
        during = await takes_connections(url)
        server.close()
        await server.wait_closed()
        return during, await takes_connections(url)

    assert asyncio.run(main()) == (True, False)


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[SqlTurnStore]:
    clock = SystemClock()
    url = f"sqlite:///{folder}/turnkeeper.db"
    store = await SqlTurnStore.open(url, clock=clock, ids=RandomIds(clock), wakeups=LocalWakeups())
    try:
        yield store
    finally:
        await store.close()


def test_every_part_is_named_and_a_drain_is_said(tmp_path: Path) -> None:
    async def main() -> tuple[Readiness, Readiness]:
        async with opened(tmp_path) as store:
            before = await readiness(store, None)
            await store.operations().begin_drain(reason=None, by=CanceledBy("user", None))
            return before, await readiness(store, None)

    before, drained = asyncio.run(main())

    assert before == Readiness(
        ready=True,
        checks={"store": True, "migrations": True},
        counters={"dead_letters": 0, "sessions_owing_steps": 0},
    )
    assert (drained.ready, drained.drained) == (True, True)


def test_tables_that_another_version_has_changed_are_not_ready(tmp_path: Path) -> None:
    async def main() -> Readiness:
        async with opened(tmp_path) as store:
            with closing(sqlite3.connect(tmp_path / "turnkeeper.db")) as other, other:
                other.execute("UPDATE alembic_version SET version_num = '9999'")
            return await readiness(store, None)

    found = asyncio.run(main())

    assert (found.ready, found.checks) == (False, {"store": True, "migrations": False})


def test_a_store_that_cannot_answer_is_not_ready_and_no_figure_is_made_up(tmp_path: Path) -> None:
    async def main() -> Readiness:
        async with opened(tmp_path) as store:
            with closing(sqlite3.connect(tmp_path / "turnkeeper.db")) as other, other:
                other.execute("DROP TABLE steps")
            return await readiness(store, "http://127.0.0.1:9")

    found = asyncio.run(main())

    assert (found.ready, dict(found.counters)) == (False, {})
    assert found.checks == {"store": True, "migrations": True, "guardian": False}
