"""Deliveries are written with their event, tried under a lease, and never lost (contract 12), on both databases."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import orjson
import pytest
from sqlalchemy import delete
from tests.contract.store_rig import ANSWER, BY_APP, Rig, has_started, open_store, with_store

from turnkeeper.clock import SystemClock
from turnkeeper.events.webhooks.endpoints import (
    MAX_ENDPOINTS,
    MAX_PER_ENDPOINT,
    MAX_SECRETS,
    Attempt,
    Claimed,
    DeliveryPending,
    DeliveryStatus,
    Endpoint,
    EndpointChange,
    NewEndpoint,
    TooManyEndpoints,
    TooManySecrets,
)
from turnkeeper.events.webhooks.ports import Listed, Replay
from turnkeeper.events.webhooks.schedule import Outcome, Verdict
from turnkeeper.store.engine import open_engines
from turnkeeper.store.fanout import WEBHOOK_TOPIC
from turnkeeper.store.tables import events
from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.turns.ports import NotFound

LEASE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DONE = Outcome(Verdict.DELIVERED)
AGAIN = Outcome(Verdict.RETRY, 5_000)
LOST = Outcome(Verdict.DEAD)
GONE = Outcome(Verdict.DEAD, gone=True)


async def an_endpoint(rig: Rig, **changes: object) -> Endpoint:
    new = replace(NewEndpoint("https://example.com/hook"), **changes)  # pyright: ignore[reportArgumentType]
    return await rig.store.webhooks().create_endpoint(new, secret="whsec_Zmlyc3Q=")


async def claimed(rig: Rig, owner: str = "one", limit: int = 100) -> tuple[Claimed, ...]:
    return await rig.store.webhooks().claim_deliveries(owner, limit=limit, lease_ms=LEASE_MS)


async def tried(rig: Rig, one: Claimed, outcome: Outcome, status: int | None = 500) -> bool:
    attempt = Attempt(one.delivery.attempts, rig.clock.now(), 5, status, None, "\x00 no")
    return await rig.store.webhooks().record_attempt(one, attempt, outcome)


def types_of(found: Sequence[Claimed]) -> list[str]:
    return [one.delivery.event_type for one in found]


@with_store
async def test_an_event_owes_a_delivery_to_each_endpoint_that_wants_it(rig: Rig) -> None:
    await an_endpoint(rig, types=("session.*",))
    await an_endpoint(rig, types=("turn.completed",))
    session = await rig.session()
    [found] = await claimed(rig)
    [event] = await rig.events(session.id)
    assert found.delivery.event_id == event.id
    assert orjson.loads(found.body)["data"]["session_id"] == session.id
    assert WEBHOOK_TOPIC in rig.heard.topics


@with_store
async def test_an_endpoint_of_one_agent_hears_nothing_of_another(rig: Rig) -> None:
    session = await rig.session()
    await an_endpoint(rig, agent_ids=(session.agent_id,))
    await rig.session()
    await rig.post(session.id)
    assert {one.delivery.session_id for one in await claimed(rig)} == {session.id}


@with_store
async def test_an_endpoint_that_is_off_gets_nothing(rig: Rig) -> None:
    await an_endpoint(rig, enabled=False)
    await rig.session()
    assert await claimed(rig) == ()


@with_store
async def test_a_transaction_that_fails_owes_nothing(rig: Rig) -> None:
    await an_endpoint(rig, types=("turn.*",))
    fence = await rig.running()
    before = len(await claimed(rig))
    with pytest.raises(Exception, match="no longer"):
        await rig.store.started(replace(fence, number=99), [has_started(fence.turn_id)])
    assert before == 3
    assert len(await claimed(rig, "another")) == 0


@with_store
async def test_two_workers_never_get_the_same_delivery(rig: Rig) -> None:
    await an_endpoint(rig)
    for _ in range(8):
        await rig.session()
    parts = await asyncio.gather(*(claimed(rig, f"worker {number}", 4) for number in range(4)))
    found = [one.delivery.id for part in parts for one in part]
    assert len(found) == len(set(found))
    rest = [one.delivery.id for one in await claimed(rig, "last")]
    assert len({*found, *rest}) == 8


@with_store
async def test_a_delivery_whose_worker_is_gone_is_claimed_again_after_its_lease(rig: Rig) -> None:
    await an_endpoint(rig)
    await rig.session()
    [first] = await claimed(rig)
    assert await claimed(rig, "two") == ()
    rig.clock.advance(LEASE_MS)
    [second] = await claimed(rig, "two")
    assert (second.delivery.id, second.delivery.attempts) == (first.delivery.id, 2)
    assert not await tried(rig, first, DONE, 200)
    assert await tried(rig, second, DONE, 200)


@with_store
async def test_a_failed_try_comes_back_after_its_delay_with_the_same_bytes(rig: Rig) -> None:
    await an_endpoint(rig)
    await rig.session()
    [first] = await claimed(rig)
    assert await tried(rig, first, AGAIN)
    rig.clock.advance(4_999)
    assert await claimed(rig) == ()
    rig.clock.advance(1)
    [second] = await claimed(rig)
    assert (second.body, second.tries) == (first.body, 2)


@with_store
async def test_a_clock_that_is_ahead_keeps_no_event_from_its_first_try(rig: Rig) -> None:
    await an_endpoint(rig)
    rig.clock.jump(DAY_MS)
    await rig.session()
    rig.clock.jump(-DAY_MS)
    [found] = await claimed(rig)
    assert found.delivery.next_attempt_at == found.delivery.created_at


async def _tried_a_day_ahead(url: str) -> None:
    rig = await open_store(url, FakeClock(SystemClock().now()), schedule_by_database=True)
    await an_endpoint(rig)
    await rig.session()
    rig.clock.jump(DAY_MS)
    [first] = await claimed(rig)
    assert await tried(rig, first, Outcome(Verdict.RETRY, 0))
    rig.clock.jump(-DAY_MS)
    [second] = await claimed(rig)
    await rig.store.close()
    assert second.delivery.attempts == 2


def test_the_next_try_is_due_by_the_databases_clock_and_not_by_that_of_who_tried(store_url: str) -> None:
    asyncio.run(_tried_a_day_ahead(store_url))


@with_store
async def test_fresh_events_go_before_repeated_ones(rig: Rig) -> None:
    await an_endpoint(rig)
    await rig.session()
    [old] = await claimed(rig)
    await tried(rig, old, Outcome(Verdict.RETRY, 0))
    session = await rig.session()
    [next_one] = await claimed(rig, limit=1)
    assert next_one.delivery.session_id == session.id


@with_store
async def test_an_endpoint_has_at_most_its_share_in_flight(rig: Rig) -> None:
    await an_endpoint(rig)
    for _ in range(MAX_PER_ENDPOINT + 2):
        await rig.session()
    other = await an_endpoint(rig)
    await rig.session()
    found = [*await claimed(rig, "one"), *await claimed(rig, "two")]
    slow = [one for one in found if one.endpoint.id != other.id]
    assert len(slow) == MAX_PER_ENDPOINT
    assert len(found) == MAX_PER_ENDPOINT + 1


@with_store
async def test_in_session_order_the_next_event_waits_for_the_one_before(rig: Rig) -> None:
    await an_endpoint(rig, ordering="session", types=("turn.*",))
    fence = await rig.running()
    [first] = await claimed(rig)
    assert types_of([first]) == ["turn.queued"]
    await tried(rig, first, AGAIN)
    assert await claimed(rig) == ()
    rig.clock.advance(5_000)
    [again] = await claimed(rig)
    await tried(rig, again, DONE, 200)
    assert types_of(await claimed(rig)) == ["turn.starting"]
    assert fence.turn_id == orjson.loads(again.body)["turn_id"]


@with_store
async def test_in_session_order_other_sessions_do_not_wait(rig: Rig) -> None:
    await an_endpoint(rig, ordering="session")
    first, second = await rig.session(), await rig.session()
    await rig.post(first.id)
    await rig.post(second.id)
    assert {one.delivery.session_id for one in await claimed(rig)} == {first.id, second.id}


@with_store
async def test_a_dead_delivery_is_told_to_others_and_can_be_sent_once_more(rig: Rig) -> None:
    endpoint = await an_endpoint(rig, types=("session.*",))
    watcher = await an_endpoint(rig, types=("webhook_delivery.*",))
    await rig.session()
    [one] = await claimed(rig)
    await tried(rig, one, LOST)
    [news] = await claimed(rig)
    assert news.endpoint.id == watcher.id
    assert orjson.loads(news.body)["data"]["delivery_id"] == one.delivery.id
    assert orjson.loads(news.body)["sequence"] is None
    again = await rig.store.webhooks().retry(one.delivery.id)
    assert again.status is DeliveryStatus.PENDING
    [more] = await claimed(rig)
    assert (more.endpoint.id, more.tries, more.delivery.attempts) == (endpoint.id, 1, 2)


@with_store
async def test_two_dead_endpoints_do_not_tell_each_other_for_ever(rig: Rig) -> None:
    await an_endpoint(rig)
    await an_endpoint(rig)
    await rig.session()
    for _ in range(5):
        for one in await claimed(rig):
            await tried(rig, one, LOST)
    assert await claimed(rig) == ()


@with_store
async def test_an_endpoint_that_says_it_is_gone_is_switched_off(rig: Rig) -> None:
    endpoint = await an_endpoint(rig, types=("session.*",))
    watcher = await an_endpoint(rig, types=("webhook_endpoint.*",))
    await rig.session()
    [one] = await claimed(rig)
    await tried(rig, one, GONE, 410)
    off = await rig.store.webhooks().endpoint(endpoint.id)
    assert (off.enabled, off.disabled_reason) == (False, "gone")
    [news] = await claimed(rig)
    assert (news.endpoint.id, news.delivery.event_type) == (watcher.id, "webhook_endpoint.disabled")


@with_store
async def test_an_endpoint_that_takes_nothing_for_five_days_is_switched_off(rig: Rig) -> None:
    endpoint = await an_endpoint(rig)
    await rig.session()
    [one] = await claimed(rig)
    await tried(rig, one, Outcome(Verdict.RETRY, 0))
    rig.clock.advance(5 * DAY_MS)
    [one] = await claimed(rig)
    await tried(rig, one, AGAIN)
    off = await rig.store.webhooks().endpoint(endpoint.id)
    assert off.disabled_reason == "failing"
    on = await rig.store.webhooks().change_endpoint(endpoint.id, EndpointChange(enabled=True))
    assert (on.enabled, on.disabled_reason, on.failing_since) == (True, None, None)


@with_store
async def test_one_success_ends_the_time_of_failing(rig: Rig) -> None:
    endpoint = await an_endpoint(rig)
    await rig.session()
    await rig.session()
    first, second = await claimed(rig)
    await tried(rig, first, AGAIN)
    assert (await rig.store.webhooks().endpoint(endpoint.id)).failing_since is not None
    await tried(rig, second, DONE, 200)
    assert (await rig.store.webhooks().endpoint(endpoint.id)).failing_since is None


@with_store
async def test_a_replay_sends_once_more_what_was_given_up_in_a_time(rig: Rig) -> None:
    endpoint = await an_endpoint(rig)
    await rig.session()
    await rig.session()
    first, second = await claimed(rig)
    await tried(rig, first, LOST)
    await tried(rig, second, DONE, 200)
    since, until = rig.clock.now() - timedelta(hours=1), rig.clock.now() + timedelta(hours=1)
    webhooks = rig.store.webhooks()
    assert await webhooks.replay(endpoint.id, Replay(until, until + timedelta(hours=1))) == 0
    assert await webhooks.replay(endpoint.id, Replay(since, until, types=("turn.*",))) == 0
    assert await webhooks.replay(endpoint.id, Replay(since, until)) == 1
    assert [one.delivery.id for one in await claimed(rig)] == [first.delivery.id]
    assert await webhooks.replay(endpoint.id, Replay(since, until, only="all")) == 1


@with_store
async def test_a_delivery_that_is_being_tried_cannot_be_sent_once_more(rig: Rig) -> None:
    await an_endpoint(rig)
    await rig.session()
    [one] = await claimed(rig)
    with pytest.raises(DeliveryPending):
        await rig.store.webhooks().retry(one.delivery.id)


@with_store
async def test_a_deleted_endpoint_gets_nothing_more_and_keeps_its_deliveries_readable(rig: Rig) -> None:
    endpoint = await an_endpoint(rig)
    await rig.session()
    [one] = await claimed(rig)
    webhooks = rig.store.webhooks()
    await webhooks.delete_endpoint(endpoint.id)
    assert not await tried(rig, one, DONE, 200)
    assert (await webhooks.delivery(one.delivery.id)).delivery.status is DeliveryStatus.CANCELED
    with pytest.raises(NotFound):
        await webhooks.endpoint(endpoint.id)


@with_store
async def test_a_rotation_signs_with_both_until_the_overlap_is_over(rig: Rig) -> None:
    endpoint = await an_endpoint(rig)
    await rig.store.webhooks().rotate_secret(endpoint.id, secret="whsec_c2Vjb25k", overlap_hours=2)
    await rig.session()
    [one] = await claimed(rig)
    assert one.secrets == ("whsec_c2Vjb25k", "whsec_Zmlyc3Q=")
    await tried(rig, one, AGAIN)
    rig.clock.advance(2 * HOUR_MS)
    [one] = await claimed(rig)
    assert one.secrets == ("whsec_c2Vjb25k",)


@with_store
async def test_a_rotation_without_overlap_ends_the_old_secret_at_once(rig: Rig) -> None:
    endpoint = await an_endpoint(rig)
    assert await rig.store.webhooks().rotate_secret(endpoint.id, secret="whsec_bmV3", overlap_hours=0) is None
    await rig.session()
    [one] = await claimed(rig)
    assert one.secrets == ("whsec_bmV3",)


@with_store
async def test_secrets_in_their_overlap_are_limited(rig: Rig) -> None:
    endpoint = await an_endpoint(rig)
    for _ in range(MAX_SECRETS - 1):
        await rig.store.webhooks().rotate_secret(endpoint.id, secret="whsec_bmV3", overlap_hours=72)
    with pytest.raises(TooManySecrets):
        await rig.store.webhooks().rotate_secret(endpoint.id, secret="whsec_bmV3", overlap_hours=72)


@with_store
async def test_endpoints_are_limited(rig: Rig) -> None:
    for _ in range(MAX_ENDPOINTS):
        await an_endpoint(rig)
    with pytest.raises(TooManyEndpoints):
        await an_endpoint(rig)


@with_store
async def test_a_test_event_reaches_its_endpoint_alone(rig: Rig) -> None:
    endpoint = await an_endpoint(rig, types=("turn.completed",))
    await an_endpoint(rig, types=("turn.*",))
    await rig.store.webhooks().send_test(endpoint.id)
    [one] = await claimed(rig)
    assert (one.endpoint.id, one.delivery.event_type) == (endpoint.id, "webhook_endpoint.test")


@with_store
async def test_a_delivery_shows_what_was_sent_and_what_came_back(rig: Rig) -> None:
    endpoint = await an_endpoint(rig)
    await rig.session()
    [one] = await claimed(rig)
    await tried(rig, one, AGAIN)
    view = await rig.store.webhooks().delivery(one.delivery.id)
    assert (view.url, view.body) == (endpoint.url, one.body)
    [attempt] = view.attempts
    assert (attempt.number, attempt.status, attempt.response_head) == (1, 500, "\x00 no")


@with_store
async def test_deliveries_are_listed_by_status_a_page_at_a_time(rig: Rig) -> None:
    endpoint = await an_endpoint(rig)
    for _ in range(3):
        await rig.session()
    found = await claimed(rig)
    await tried(rig, found[0], DONE, 200)
    webhooks = rig.store.webhooks()
    page, more = await webhooks.deliveries(endpoint.id, Listed(limit=1), DeliveryStatus.PENDING)
    assert more
    rest, more = await webhooks.deliveries(endpoint.id, Listed(limit=5, after=page[0].id), DeliveryStatus.PENDING)
    assert {one.id for one in (*page, *rest)} == {one.delivery.id for one in found[1:]}
    assert not more


@with_store
async def test_an_envelope_that_is_too_long_goes_without_its_data(rig: Rig) -> None:
    await an_endpoint(rig, types=("turn.completed",))
    fence = await rig.running()
    event = await rig.store.end(fence, replace(ANSWER, text="x" * 300_000))
    [one] = await claimed(rig)
    assert orjson.loads(one.body)["data"] is None
    assert orjson.loads(one.body)["data_url"] == f"/v1/events/{event.id}"


@with_store
async def test_a_delivery_whose_event_was_erased_is_canceled_and_holds_no_other(rig: Rig) -> None:
    await an_endpoint(rig)
    lost, kept = await rig.session(), await rig.session()
    engines = open_engines(rig.url)
    with engines.writer.begin() as connection:
        connection.execute(delete(events).where(events.c.session_id == lost.id))
    engines.dispose()
    [one] = await claimed(rig)
    assert one.delivery.session_id == kept.id
    page, _ = await rig.store.webhooks().deliveries(one.endpoint.id, Listed(), DeliveryStatus.CANCELED)
    assert [delivery.session_id for delivery in page] == [lost.id]
    with pytest.raises(NotFound):
        await rig.store.webhooks().delivery(page[0].id)


@with_store
async def test_a_deleted_session_leaves_nothing_to_deliver_from_the_first_part_of_its_erasure_on(rig: Rig) -> None:
    await an_endpoint(rig, types=("session.created",))
    session = await rig.session()
    await rig.store.retention().delete_session(session.id, by=BY_APP)
    await rig.store.close_ended(session.id, "cancelled", None)
    await rig.store.retention().erase(1)
    assert await claimed(rig) == ()
