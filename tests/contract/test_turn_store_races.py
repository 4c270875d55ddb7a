"""Many at once: one order, one owner, one ending (contract 6 and 7)."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tests.contract.store_rig import ANSWER, BY_APP, LOST, UNPAID, Rig, open_store, with_store

from turnkeeper.turns.idempotency import IdempotencyKeyReused
from turnkeeper.turns.model import Fence
from turnkeeper.turns.ports import StaleFence


def with_two_stores(test: Callable[[Rig, Rig], Awaitable[None]]) -> Callable[[str], None]:
    """Two stores on one database, as two processes have them."""

    async def scenario(url: str) -> None:
        one, other = await open_store(url), await open_store(url)
        try:
            await test(one, other)
        finally:
            await one.store.close()
            await other.store.close()

    def run(store_url: str) -> None:
        asyncio.run(scenario(store_url))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@with_two_stores
async def test_posts_at_the_same_time_are_numbered_without_gaps(one: Rig, other: Rig) -> None:
    session = await one.session()

    posted = await asyncio.gather(*[rig.post(session.id) for rig in (one, other) for _ in range(12)])

    assert sorted(turn.seq for turn in posted) == list(range(1, 25))
    events = await one.events(session.id)
    assert [event.sequence for event in events] == list(range(1, 27))
    in_order = sorted(posted, key=lambda turn: turn.seq)
    assert [event.turn_id for event in events if event.type == "turn.queued"] == [turn.id for turn in in_order]


@with_two_stores
async def test_one_key_posted_at_the_same_time_is_one_turn(one: Rig, other: Rig) -> None:
    session = await one.session()

    posts = [rig.accept(session.id, idempotency_key="k", fingerprint="f") for rig in (one, other) for _ in range(4)]
    accepted = await asyncio.gather(*posts)

    assert len({found.turn.id for found in accepted}) == 1
    assert sum(not found.replayed for found in accepted) == 1


@with_two_stores
async def test_one_key_posted_to_two_sessions_at_the_same_time_is_one_turn(one: Rig, other: Rig) -> None:
    sessions = [await one.session() for _ in range(4)]

    posts = [
        rig.accept(session.id, idempotency_key="k", fingerprint=session.id)
        for session in sessions
        for rig in (one, other)
    ]
    found = await asyncio.gather(*posts, return_exceptions=True)

    turns = {answer.turn.id for answer in found if not isinstance(answer, BaseException)}
    refused = [answer for answer in found if isinstance(answer, BaseException)]
    assert len(turns) == 1
    assert len(refused) == 6
    assert all(isinstance(answer, IdempotencyKeyReused) for answer in refused)


@with_two_stores
async def test_no_turn_is_claimed_twice_and_no_session_has_two_owners(one: Rig, other: Rig) -> None:
    for _ in range(4):
        session = await one.session()
        for _ in range(2):
            await one.post(session.id)

    claims = [rig.store.claim(f"worker {number}", slot=True) for rig in (one, other) for number in range(4)]
    found = [claim for claim in await asyncio.gather(*claims) if claim is not None]

    assert len({claim.turn.id for claim in found}) == len(found) == 4
    assert len({claim.session.id for claim in found}) == 4


@with_two_stores
async def test_whoever_ends_a_turn_first_has_ended_it(one: Rig, other: Rig) -> None:
    fence = await one.running()

    tries = ((one, ANSWER), (other, LOST), (one, LOST), (other, ANSWER))
    ends = [rig.store.end(fence, ending) for rig, ending in tries]
    found = await asyncio.gather(*ends, return_exceptions=True)

    assert sum(isinstance(answer, StaleFence) for answer in found) == 3
    terminal = [
        event for event in await one.events(fence.session_id) if event.type in {"turn.completed", "turn.failed"}
    ]
    assert len(terminal) == 1
    assert (await other.store.turn(fence.turn_id)).terminal_event_id == terminal[0].id
    assert len(await one.store.pending_steps(fence.session_id)) == 1


@with_two_stores
async def test_a_cancel_and_a_claim_at_the_same_time_leave_one_truth(one: Rig, other: Rig) -> None:
    turns = [await one.post((await one.session()).id) for _ in range(6)]

    cancels = [one.store.cancel_turn(turn.id, mode="graceful", by=BY_APP) for turn in turns]
    claims = [other.store.claim("worker", slot=True) for _ in turns]
    found, _ = await asyncio.gather(asyncio.gather(*claims), asyncio.gather(*cancels))

    claimed = {claim.turn.id for claim in found if claim is not None}
    for turn in turns:
        now = await one.store.turn(turn.id)
        assert now.status.terminal != (turn.id in claimed)
        assert (await one.types(turn.session_id)).count("turn.canceled") == (0 if turn.id in claimed else 1)


async def work(rig: Rig, owner: str, ran: list[Fence]) -> None:
    """A worker that ends whatever it is given, until there is nothing left."""
    while True:
        claim = await rig.store.claim(owner, slot=True)
        if claim is None:
            return
        with suppress(StaleFence):
            await rig.store.end(claim.fence, UNPAID)
            ran.append(claim.fence)


@with_two_stores
async def test_workers_posts_and_cancels_at_the_same_time_leave_nothing_behind(one: Rig, other: Rig) -> None:
    sessions = [await one.session() for _ in range(3)]
    turns = [await one.post(session.id) for session in sessions for _ in range(4)]
    ran: list[Fence] = []

    workers = [work(rig, f"worker {number}", ran) for number, rig in enumerate((one, other, one, other))]
    cancels = [other.store.cancel_turn(turn.id, mode="immediate", by=BY_APP) for turn in turns[::3]]
    await asyncio.gather(*workers, *cancels)
    await work(one, "the last", ran)

    ends = Counter[str | None]()
    for session in sessions:
        events = await one.events(session.id)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        ends.update(event.turn_id for event in events if event.type in {"turn.completed", "turn.canceled"})
        order = [event.turn_id for event in events if event.type == "turn.completed"]
        assert order == sorted(order, key=lambda turn_id: next(turn.seq for turn in turns if turn.id == turn_id))
    assert ends == Counter({turn.id: 1 for turn in turns})


@with_store
async def test_news_is_told_although_nobody_waits_for_the_answer_any_more(rig: Rig) -> None:
    session = await rig.session()
    rig.heard.topics.clear()

    posting = asyncio.create_task(rig.post(session.id))
    await asyncio.sleep(0)
    posting.cancel()
    with suppress(asyncio.CancelledError):
        await posting
    await rig.store.close()

    again = await open_store(rig.url)
    queued = (await again.types(session.id)).count("turn.queued")
    assert rig.heard.topics.count("queue") == queued
    await again.store.close()
