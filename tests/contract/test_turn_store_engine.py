"""Threads, locks and limits under the store."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import Connection, text
from tests.contract.store_rig import Rig, open_store, with_store

from turnkeeper.store import engine
from turnkeeper.store.engine import Database, StoreOverloaded, open_engines


def nobody() -> None:
    """Nobody wants to know of a commit."""


async def with_database(url: str, work: Callable[[Database], Awaitable[None]]) -> None:
    database = Database(open_engines(url))
    try:
        async with asyncio.timeout(60):
            await work(database)
    finally:
        await database.close()


def test_stores_that_are_opened_at_the_same_time_share_one_new_database(sqlite_url: str) -> None:
    async def scenario() -> None:
        rigs = await asyncio.gather(*[open_store(sqlite_url) for _ in range(6)])
        sessions = await asyncio.gather(*[rig.session() for rig in rigs])
        assert len({session.id for session in sessions}) == 6
        for rig in rigs:
            await rig.store.close()

    asyncio.run(scenario())


@with_store
async def test_a_read_does_not_wait_for_a_writer(rig: Rig) -> None:
    session = await rig.session()
    held, release = threading.Event(), threading.Event()
    database = Database(open_engines(rig.url))

    def hold(connection: Connection) -> None:
        connection.execute(text("UPDATE sessions SET title = NULL"))
        held.set()
        release.wait(30)

    writing = asyncio.create_task(database.write(hold, nobody))
    await asyncio.to_thread(held.wait, 30)
    assert (await asyncio.wait_for(rig.store.session(session.id), timeout=20)).id == session.id
    assert not writing.done()
    release.set()
    await writing
    await database.close()


def test_more_waiting_than_the_limit_is_refused(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_WAITING", 3)
    release = threading.Event()

    async def scenario(database: Database) -> None:
        waiting = [asyncio.create_task(database.write(lambda _: release.wait(30), nobody)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(StoreOverloaded):
            await database.read(lambda connection: connection.execute(text("SELECT 1")).scalar_one())
        release.set()
        await asyncio.gather(*waiting)
        assert await database.read(lambda connection: connection.execute(text("SELECT 1")).scalar_one()) == 1

    asyncio.run(with_database(sqlite_url, scenario))


@pytest.mark.postgres
def test_of_two_transactions_that_wait_for_each_other_one_runs_again(postgres_url: str) -> None:
    both = threading.Barrier(2, timeout=30)
    tries: list[str] = []

    def body(first: str, second: str) -> Callable[[Connection], str]:
        def run(connection: Connection) -> str:
            tries.append(first)
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ord(first)})
            if len(tries) <= 2:
                both.wait()
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ord(second)})
            return first

        return run

    async def scenario(database: Database) -> None:
        writes = database.write(body("a", "b"), nobody), database.write(body("b", "a"), nobody)
        assert await asyncio.gather(*writes) == ["a", "b"]

    asyncio.run(with_database(postgres_url, scenario))
    assert len(tries) == 3


def test_what_a_body_raises_rolls_back_and_is_not_told(store_url: str) -> None:
    told: list[int] = []

    def fail(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE left_behind (id INTEGER)"))
        raise LookupError("on purpose")

    async def scenario(database: Database) -> None:
        with pytest.raises(LookupError):
            await database.write(fail, lambda: told.append(1))
        await database.write(
            lambda connection: connection.execute(text("CREATE TABLE left_behind (id INTEGER)")), nobody
        )

    asyncio.run(with_database(store_url, scenario))
    assert told == []


def test_a_reader_cannot_write(store_url: str) -> None:
    async def scenario(database: Database) -> None:
        with pytest.raises(Exception, match=r"read.?only|cannot answer"):
            await database.read(lambda connection: connection.execute(text("CREATE TABLE t (id INTEGER)")))

    asyncio.run(with_database(store_url, scenario))


def test_the_store_needs_nothing_newer_than_sqlite_3_35() -> None:
    assert sqlite3.sqlite_version_info >= (3, 35)
