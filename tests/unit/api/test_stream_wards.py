"""Streams that end with their key or their session, and one look for all of a key."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from turnkeeper.api.stream_wards import Over, StreamWards
from turnkeeper.clock import Clock, SystemClock
from turnkeeper.turns.access import Admission, Named
from turnkeeper.turns.model import PROJECT_ID, ApiKey
from turnkeeper.turns.ports import deletion_topic
from turnkeeper.turns.wakeups import LocalWakeups

AT = datetime(2026, 12, 1, tzinfo=UTC)
KEY = ApiKey("key_1", "k", "sha", AT, None)
DEADLINE_S = 20
NEVER_MS = 600_000


@dataclass
class Source:
    """Keys and sessions, with a count of the looks."""

    news: LocalWakeups = field(default_factory=LocalWakeups)
    clock: Clock = field(default_factory=SystemClock)
    known: bool = True
    deleted: set[str] = field(default_factory=set[str])
    failure: Exception | None = None
    looks: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    @property
    def access(self) -> "Source":
        return self

    async def admit(self, secret_sha256: str, ids: Collection[str]) -> Admission | None:
        assert secret_sha256 == "sha"
        self.looks.append(tuple(sorted(ids)))
        if self.failure is not None:
            raise self.failure
        named = {one: Named(PROJECT_ID, None, one, AT if one in self.deleted else None) for one in ids}
        return Admission(KEY, named) if self.known else None


def run(work: Callable[[StreamWards, Source], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work(StreamWards(), Source())

    asyncio.run(main())


def guarded(stack: ExitStack, wards: StreamWards, source: Source, *sessions: str, look_ms: int) -> list[Over]:
    loop = asyncio.get_running_loop()
    overs: list[Over] = [loop.create_future() for _ in sessions]
    for session_id, over in zip(sessions, overs, strict=True):
        stack.enter_context(wards.guard(source, "sha", session_id, over, look_ms=look_ms))
    return overs


def test_streams_of_a_key_are_looked_after_together_and_end_with_it() -> None:
    async def work(wards: StreamWards, source: Source) -> None:
        source.known = False
        with ExitStack() as stack:
            overs = guarded(stack, wards, source, "a", "b", "b", look_ms=5)
            assert await asyncio.gather(*overs) == ["unauthorized"] * 3
        assert set(source.looks) == {("a", "b")}

    run(work)


def test_a_deletion_ends_the_streams_of_its_session_at_once_and_no_others() -> None:
    async def work(wards: StreamWards, source: Source) -> None:
        with ExitStack() as stack:
            kept, gone = guarded(stack, wards, source, "a", "b", look_ms=NEVER_MS)
            await asyncio.sleep(0)
            source.deleted.add("b")
            source.news.notify(deletion_topic("b"))
            assert await gone == "session_deleted"
            assert not kept.done()

    run(work)


def test_a_look_that_fails_ends_every_stream_and_the_next_one_gets_another_ward() -> None:
    async def work(wards: StreamWards, source: Source) -> None:
        with ExitStack() as stack:
            source.failure = ValueError("no")
            (over,) = guarded(stack, wards, source, "a", look_ms=5)
            with pytest.raises(ValueError, match="no"):
                await over
            source.failure, source.known = None, False
            (over,) = guarded(stack, wards, source, "a", look_ms=5)
            assert await over == "unauthorized"

    run(work)


def test_nobody_looks_once_the_last_stream_has_ended() -> None:
    async def work(wards: StreamWards, source: Source) -> None:
        with ExitStack() as stack:
            guarded(stack, wards, source, "a", "a", look_ms=NEVER_MS)
            await asyncio.sleep(0)
        source.news.notify(deletion_topic("a"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert source.looks == []

    run(work)
