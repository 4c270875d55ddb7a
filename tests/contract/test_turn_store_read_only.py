"""The turn store opened to be read: nothing is made, nothing is migrated, nothing can be changed."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.contract.store_rig import AGENT, open_store

from turnkeeper.clock import SystemClock
from turnkeeper.ids import RandomIds
from turnkeeper.store.admin import SchemaOutdated
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.ports import StoreUnavailable
from turnkeeper.turns.wakeups import LocalWakeups


async def reading(url: str) -> SqlTurnStore:
    clock = SystemClock()
    return await SqlTurnStore.open(url, clock=clock, ids=RandomIds(clock), wakeups=LocalWakeups(), read_only=True)


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def test_what_a_running_store_holds_can_be_read_beside_it(sqlite_url: str) -> None:
    async def scenario() -> None:
        rig = await open_store(sqlite_url)
        session = await rig.session()
        store = await reading(sqlite_url)
        assert (await store.session(session.id)).id == session.id
        await store.close()
        await rig.store.close()

    asyncio.run(scenario())


def test_nothing_can_be_written_through_it(sqlite_url: str) -> None:
    async def scenario() -> None:
        rig = await open_store(sqlite_url)
        await rig.store.close()
        store = await reading(sqlite_url)
        with pytest.raises(StoreUnavailable):
            await store.create_agent(AGENT)
        await store.close()

    asyncio.run(scenario())


def test_an_older_file_is_refused_and_left_as_it_is(sqlite_url: str) -> None:
    async def scenario() -> None:
        rig = await open_store(sqlite_url)
        await rig.store.close()
        with closing(sqlite3.connect(file_of(sqlite_url))) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = '0000'")
        with pytest.raises(SchemaOutdated, match="version 0000") as refused:
            await reading(sqlite_url)
        assert refused.value.hint == "Run `turnkeeper migrate`."
        with closing(sqlite3.connect(file_of(sqlite_url))) as connection:
            assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0000",)

    asyncio.run(scenario())


def test_a_file_that_is_not_there_is_not_made(sqlite_url: str) -> None:
    async def scenario() -> None:
        with pytest.raises(StoreUnavailable):
            await reading(sqlite_url)
        assert not file_of(sqlite_url).exists()

    asyncio.run(scenario())
