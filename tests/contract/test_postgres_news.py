"""What processes on one PostgreSQL tell each other, and how they see that a worker has ended."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import psycopg
import pytest
from sqlalchemy import make_url

from turnkeeper.store.dialects.postgres_news import PostgresNews
from turnkeeper.turns.takeover import OwnerTaken
from turnkeeper.turns.wakeups import LocalWakeups

pytestmark = pytest.mark.postgres
DEADLINE_S = 20


@asynccontextmanager
async def process(url: str, owner: str | None = None) -> AsyncGenerator[tuple[PostgresNews, LocalWakeups]]:
    wakeups = LocalWakeups()
    news = PostgresNews(make_url(url), wakeups, owner)
    async with news.opened():
        yield news, wakeups


def on_postgres(test: Callable[[str], Awaitable[None]]) -> Callable[[str], None]:
    async def scenario(url: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await test(url)

    def run(postgres_url: str) -> None:
        asyncio.run(scenario(postgres_url))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def seen_gone(news: PostgresNews, owner: str) -> None:
    while owner not in await news.gone({owner}):
        await asyncio.sleep(0)


def address(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@on_postgres
async def test_what_one_process_commits_is_news_in_another(url: str) -> None:
    async with process(url) as (_, ours), process(url) as (_, theirs):
        with theirs.watch("ses_1") as watch, theirs.watch("ses_2") as other:
            ours.notify("ses_1")
            assert await watch.wait(timeout_ms=DEADLINE_S * 1000)
            assert not await other.wait(timeout_ms=0)


@on_postgres
async def test_a_worker_that_lives_is_not_gone_however_often_it_is_looked_for(url: str) -> None:
    async with process(url, "one") as (news, _), process(url, "two"):
        for _ in range(4):
            assert await news.gone({"one", "two", "never heard of"}) == frozenset()


@on_postgres
async def test_a_worker_whose_connections_end_is_gone_at_the_second_look(url: str) -> None:
    async with AsyncExitStack() as dying, process(url, "one") as (news, _):
        await dying.enter_async_context(process(url, "dead"))
        await kill(url, dying)
        assert await news.gone({"dead"}) == frozenset()
        await seen_gone(news, "dead")


async def kill(url: str, dying: AsyncExitStack) -> None:
    """As `kill -9` does: the row stays, the lock goes."""
    async with await psycopg.AsyncConnection.connect(address(url), autocommit=True) as connection:
        found = await connection.execute("SELECT id, host, pid, hold, started_at FROM workers WHERE id = 'dead'")
        row = await found.fetchone()
        await dying.aclose()
        assert row is not None
        await connection.execute("INSERT INTO workers VALUES (%s, %s, %s, %s, %s)", row)


@on_postgres
async def test_two_processes_are_never_the_same_worker(url: str) -> None:
    async with process(url, "one"):
        with pytest.raises(OwnerTaken):
            await process(url, "one").__aenter__()


@on_postgres
async def test_a_cut_connection_is_made_again_with_its_lock_and_its_news(url: str) -> None:
    async with process(url, "one") as (_, ours), process(url, "two") as (news, theirs):
        await cut_everybody(url)
        with theirs.watch("ses_1") as watch:
            while not await watch.wait(timeout_ms=50):
                ours.notify("ses_1")
        await news.gone({"one"})
        assert await news.gone({"one"}) == frozenset()


async def cut_everybody(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(address(url), autocommit=True) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'turnkeeper news' AND datname = current_database()"
        )


@on_postgres
async def test_a_server_that_was_started_anew_makes_nobody_look_gone(url: str) -> None:
    async with process(url, "one") as (news, _):
        async with await psycopg.AsyncConnection.connect(address(url), autocommit=True) as connection:
            await connection.execute("INSERT INTO workers VALUES ('two', '\"h\"', 1, 'a start before this one', 1)")
        for _ in range(3):
            assert await news.gone({"two"}) == frozenset()
