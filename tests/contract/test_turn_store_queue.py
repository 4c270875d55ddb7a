"""Accepting turns and their order (contract 7 and 9)."""

import asyncio
from dataclasses import replace

import orjson
import pytest
from tests.contract.store_rig import ANSWER, BY_APP, UNPAID, Rig, open_store, with_store

from turnkeeper.store.tx import StoreLimits
from turnkeeper.turns.idempotency import IdempotencyKeyReused
from turnkeeper.turns.model import Budget, TurnStatus
from turnkeeper.turns.ports import NotFound, QueueFull, SessionClosed


@with_store
async def test_an_accepted_turn_is_queued_with_its_event(rig: Rig) -> None:
    session = await rig.session()

    accepted = await rig.accept(session.id, metadata_json='{"z":1.50,"a":"\\u0000"}')

    assert (accepted.turn.status, accepted.turn.queue_position, accepted.replayed) == (TurnStatus.QUEUED, 0, False)
    event, busy = await rig.store.events(session.id, after=accepted.events_after, limit=9)
    assert (busy.type, accepted.turn.last_sequence) == ("session.busy", event.sequence)
    assert (event.type, event.sequence, event.turn_id) == ("turn.queued", 2, accepted.turn.id)
    assert '"metadata":{"z":1.50,"a":"\\u0000"}' in event.data


@with_store
async def test_a_text_with_nul_comes_back_as_it_was(rig: Rig) -> None:
    session = await rig.session(title="a\0b", metadata_json='{"k":"\\u0000"}')

    turn = await rig.post(session.id, input_text="c\0d \u2028 \U0001f600", input_json='"c\\u0000d"')

    assert (await rig.store.session(session.id)).title == "a\0b"
    assert (await rig.store.turn(turn.id)).input_text == "c\0d \u2028 \U0001f600"


@with_store
async def test_turns_of_a_session_run_one_after_the_other_in_the_order_of_their_posts(rig: Rig) -> None:
    session = await rig.session()
    posted = [(await rig.post(session.id)).id for _ in range(4)]

    ran: list[str] = []
    for _ in posted:
        fence = (await rig.claim()).fence
        assert await rig.store.claim("other", slot=True) is None
        ran.append(fence.turn_id)
        await rig.store.end(fence, UNPAID)

    assert ran == posted


@with_store
async def test_the_oldest_front_is_claimed_first(rig: Rig) -> None:
    sessions = [await rig.session() for _ in range(3)]
    posted = [(await rig.post(sessions[number].id)).id for number in (2, 0, 1, 2)]

    claimed = [(await rig.claim()).turn.id for _ in range(3)]

    assert claimed == posted[:3]
    assert await rig.store.claim("worker", slot=True) is None


@with_store
async def test_a_waiting_turn_says_what_it_waits_for(rig: Rig) -> None:
    fence = await rig.running()

    second, third = [await rig.post(fence.session_id) for _ in range(2)]

    assert (second.queue_position, third.queue_position) == (0, 1)
    queued = [event for event in await rig.events(fence.session_id) if event.type == "turn.queued"]
    told = orjson.loads(queued[1].data)
    assert told["blocked_by"] == {"turn_id": fence.turn_id, "reason": "running", "approval_ids": []}
    session = await rig.store.session(fence.session_id)
    assert (session.active_turn_id, session.queue_depth) == (fence.turn_id, 2)


def test_a_full_queue_takes_no_more(store_url: str) -> None:
    async def scenario() -> None:
        rig = await open_store(store_url, limits=StoreLimits(queue_depth=2))
        session = await rig.session()
        for _ in range(2):
            await rig.post(session.id, idempotency_key=f"{_}", fingerprint="f")
        with pytest.raises(QueueFull):
            await rig.post(session.id, idempotency_key="k", fingerprint="f")
        assert (await rig.accept(session.id, idempotency_key="1", fingerprint="f")).replayed
        await rig.store.cancel_turn((await rig.claim()).turn.id, mode="graceful", by=BY_APP)
        assert len(await rig.types(session.id)) == 4
        await rig.store.close()

    asyncio.run(scenario())


@with_store
async def test_the_same_key_and_body_are_the_same_turn_as_it_is_now(rig: Rig) -> None:
    session = await rig.session()
    first = await rig.accept(session.id, idempotency_key="invoice-4711", fingerprint="f")
    await rig.store.cancel_turn(first.turn.id, mode="graceful", by=BY_APP)

    again = await rig.accept(session.id, idempotency_key="invoice-4711", fingerprint="f")

    assert (again.replayed, again.turn.id, again.turn.status) == (True, first.turn.id, TurnStatus.CANCELED)
    assert again.events_after == first.events_after
    assert (await rig.types(session.id)).count("turn.queued") == 1


@with_store
async def test_a_key_used_for_another_request_names_the_first_turn(rig: Rig) -> None:
    session, other = await rig.session(), await rig.session()
    first = await rig.post(session.id, idempotency_key="k", fingerprint="one")

    with pytest.raises(IdempotencyKeyReused) as refused:
        await rig.post(other.id, idempotency_key="k", fingerprint="two")

    assert refused.value.detail == {"turn_id": first.id}
    assert await rig.types(other.id) == ["session.created"]


@with_store
async def test_a_refused_post_leaves_its_key_unused(rig: Rig) -> None:
    closed, session = await rig.session(), await rig.session()
    await rig.store.close_session(closed.id, mode="drain", by=BY_APP)
    with pytest.raises(SessionClosed):
        await rig.post(closed.id, idempotency_key="k", fingerprint="one")

    assert not (await rig.accept(session.id, idempotency_key="k", fingerprint="two")).replayed


@with_store
async def test_a_session_that_is_not_there_takes_no_turn(rig: Rig) -> None:
    with pytest.raises(NotFound):
        await rig.post("ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB")


@with_store
async def test_a_worker_without_a_slot_gets_only_what_cannot_be_paid(rig: Rig) -> None:
    for budget in (None, Budget(max_total_tokens=256), Budget(max_model_calls=1)):
        await rig.post((await rig.session()).id, budget=budget)
    assert await rig.store.claim("worker", slot=False) is None
    poor = await rig.post((await rig.session(budget=Budget(max_output_tokens=255))).id)

    claim = await rig.store.claim("worker", slot=False)

    assert claim is not None
    assert claim.turn.id == poor.id


@with_store
async def test_the_next_turn_may_start_as_soon_as_the_one_before_has_ended(rig: Rig) -> None:
    fence = await rig.running()
    second = await rig.post(fence.session_id)
    rig.heard.topics.clear()

    await rig.store.end(fence, replace(ANSWER, text="first"))

    assert set(rig.heard.topics) == {fence.session_id, "queue"}
    assert (await rig.claim()).turn.id == second.id
