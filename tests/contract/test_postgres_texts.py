"""Texts while they are written, from one process to another over one PostgreSQL (contract 11)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy import make_url

from turnkeeper.clock import SystemClock
from turnkeeper.store.dialects.postgres_news import PostgresNews
from turnkeeper.store.dialects.postgres_texts import PostgresTexts
from turnkeeper.turns.open_texts import OpenText, OpenTexts, text_topic
from turnkeeper.turns.wakeups import LocalWakeups

pytestmark = pytest.mark.postgres
DEADLINE_S = 60
BEGUN = OpenText("ses_1", "trn_1", "msg_1", 1, 7)


class Process:
    """The texts that a process knows of."""

    def __init__(self) -> None:
        self.wakeups = LocalWakeups()
        self.texts = OpenTexts(self.wakeups)

    async def until(self, *wanted: str) -> None:
        with self.wakeups.watch(text_topic("ses_1")) as watch:
            while tuple(text.text for text in self.texts.of_session("ses_1")) != wanted:
                await watch.wait(timeout_ms=DEADLINE_S * 1000)


@asynccontextmanager
async def process(url: str, *, shows: bool) -> AsyncGenerator[Process]:
    made = Process()
    texts = PostgresTexts(made.texts, SystemClock(), shows=shows)
    async with PostgresNews(make_url(url), made.wakeups, None, texts).opened():
        yield made


def on_postgres(test: Callable[[str], Awaitable[None]]) -> Callable[[str], None]:
    async def scenario(url: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await test(url)

    def run(postgres_url: str) -> None:
        asyncio.run(scenario(postgres_url))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@on_postgres
async def test_what_a_worker_hears_is_shown_by_an_api_elsewhere_until_it_ends(url: str) -> None:
    async with process(url, shows=False) as worker, process(url, shows=True) as api:
        worker.texts.write(BEGUN, "Hel")
        worker.texts.write(replace(BEGUN, text="Hel"), "lo")
        await api.until("Hello")
        worker.texts.close("msg_1")
        await api.until()


@on_postgres
async def test_a_text_of_any_length_and_of_any_characters_arrives_whole(url: str) -> None:
    whole = '\0\u2028\U0001f600"\\\n' * 5_000
    async with process(url, shows=False) as worker, process(url, shows=True) as api:
        worker.texts.write(BEGUN, whole)
        await api.until(whole)


@on_postgres
async def test_a_process_that_came_late_asks_for_what_it_missed(url: str) -> None:
    async with process(url, shows=False) as worker:
        worker.texts.write(BEGUN, "Hel")
        async with process(url, shows=True) as api:
            worker.texts.write(replace(BEGUN, text="Hel"), "lo")
            await api.until("Hello")


@on_postgres
async def test_a_worker_is_not_told_what_others_write(url: str) -> None:
    async with process(url, shows=False) as worker, process(url, shows=False) as other, process(url, shows=True) as api:
        worker.texts.write(BEGUN, "Hello")
        await api.until("Hello")
        assert other.texts.of_session("ses_1") == ()
