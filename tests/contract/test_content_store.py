"""The contract of a content store: whole or not at all, by its hash, and gone when nobody wants it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.content_rig import LATER, Opened, held, opened, pieces

from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.turns.contents import ContentMissing, ContentStore, ContentTooLarge

__all__ = ["opened"]

MAX_BYTES = 10_000_000
Body = Callable[[ContentStore, FakeClock], Awaitable[None]]


def on(opened: Opened, body: Body) -> None:
    async def main() -> None:
        async with opened() as (contents, clock):
            await body(contents, clock)

    asyncio.run(main())


class CutOff(Exception):
    """A sender that went away."""


async def cut_off(first: bytes) -> AsyncIterator[bytes]:
    yield first
    raise CutOff


@settings(max_examples=5, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=300_000), max_size=4))
def test_what_was_put_comes_back_under_its_hash(opened: Opened, parts: list[bytes]) -> None:
    async def body(contents: ContentStore, _: FakeClock) -> None:
        made = await contents.put(pieces(*parts), max_bytes=MAX_BYTES)
        whole = b"".join(parts)
        assert (made.sha256, made.size_bytes) == (hashlib.sha256(whole).hexdigest(), len(whole))
        assert await held(contents, made.sha256) == whole

    on(opened, body)


def test_a_content_over_the_limit_leaves_nothing(opened: Opened) -> None:
    async def body(contents: ContentStore, clock: FakeClock) -> None:
        with pytest.raises(ContentTooLarge):
            await contents.put(pieces(b"x" * 600_000, b"y" * 600_000), max_bytes=1_000_000)
        assert await contents.older_than(clock.now() + LATER, after="", limit=10) == []

    on(opened, body)


def test_a_content_whose_sender_went_away_is_never_seen(opened: Opened) -> None:
    async def body(contents: ContentStore, clock: FakeClock) -> None:
        with pytest.raises(CutOff):
            await contents.put(cut_off(b"half" * 100_000), max_bytes=MAX_BYTES)
        assert await contents.older_than(clock.now() + LATER, after="", limit=10) == []
        with pytest.raises(ContentMissing):
            await held(contents, hashlib.sha256(b"half" * 100_000).hexdigest())

    on(opened, body)


def test_putting_the_same_twice_keeps_it_once_and_young(opened: Opened) -> None:
    async def body(contents: ContentStore, clock: FakeClock) -> None:
        made = await contents.put(pieces(b"same"), max_bytes=MAX_BYTES)
        start = clock.now()
        clock.advance(60_000)
        assert await contents.put(pieces(b"sa", b"me"), max_bytes=MAX_BYTES) == made
        assert await contents.older_than(clock.now() + LATER, after="", limit=10) == [made.sha256]
        assert not await contents.remove(made.sha256, before=start + LATER / 1000)
        assert await held(contents, made.sha256) == b"same"

    on(opened, body)


def test_what_is_old_is_listed_in_order_and_removed_once(opened: Opened) -> None:
    async def body(contents: ContentStore, clock: FakeClock) -> None:
        made = [await contents.put(pieces(bytes([n])), max_bytes=MAX_BYTES) for n in range(5)]
        names = sorted(content.sha256 for content in made)
        before = clock.now() + LATER
        first = await contents.older_than(before, after="", limit=2)
        assert [*first, *await contents.older_than(before, after=first[-1], limit=10)] == names
        assert await contents.remove(names[0], before=before)
        assert not await contents.remove(names[0], before=before)
        with pytest.raises(ContentMissing):
            await held(contents, names[0])

    on(opened, body)


def test_puts_at_the_same_time_agree(opened: Opened) -> None:
    async def body(contents: ContentStore, clock: FakeClock) -> None:
        puts = (contents.put(pieces(b"z" * 300_000), max_bytes=MAX_BYTES) for _ in range(4))
        assert len(set(await asyncio.gather(*puts))) == 1
        assert len(await contents.older_than(clock.now() + LATER, after="", limit=10)) == 1

    on(opened, body)


def test_tidying_leaves_what_is_whole(opened: Opened) -> None:
    async def body(contents: ContentStore, clock: FakeClock) -> None:
        made = await contents.put(pieces(b"whole"), max_bytes=MAX_BYTES)
        await contents.tidy(clock.now() + LATER)
        assert await held(contents, made.sha256) == b"whole"

    on(opened, body)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 64, "0" * 63 + "/"])
def test_a_name_that_is_no_hash_of_anything_is_not_there(opened: Opened, name: str) -> None:
    async def body(contents: ContentStore, clock: FakeClock) -> None:
        with pytest.raises(ContentMissing):
            await held(contents, name)

    on(opened, body)
