"""ACS steps: the journal of what was asked, and the outbox (contract, amendments 2 to 4)."""

from dataclasses import replace

import pytest
from tests.contract.store_rig import ANSWER, BY_APP, LOST, Rig, a_note, a_step, with_store

from turnkeeper.turns.model import StepAnswer, StepCounts
from turnkeeper.turns.ports import NotFound

ALLOWED = StepAnswer("answered", "allow", "hash-1", "fine", ("ok",))
REFUSED = StepAnswer("refused", error_code=-32602)


@with_store
async def test_a_step_is_kept_before_it_is_sent_with_its_event(rig: Rig) -> None:
    fence = await rig.running()

    step = await rig.store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id), fence, [a_note(fence.turn_id)])

    assert await rig.store.pending_steps(fence.session_id) == (step,)
    assert (step.state, step.attempts, step.ordinal) == ("pending", 0, 1)
    assert (await rig.types(fence.session_id))[-1] == "sandbox.released"


@with_store
async def test_the_same_request_id_is_the_same_step(rig: Rig) -> None:
    fence = await rig.running()
    new = a_step(rig.ids, fence.turn_id)
    first = await rig.store.ask_step(fence.session_id, new, fence, [a_note(fence.turn_id)])

    assert await rig.store.ask_step(fence.session_id, new, fence, [a_note(fence.turn_id)]) == first
    assert (await rig.types(fence.session_id)).count("sandbox.released") == 1


@with_store
async def test_steps_are_sent_in_the_order_they_were_asked(rig: Rig) -> None:
    fence = await rig.running()
    asked = [
        (await rig.store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id), fence, [])).request_id
        for _ in range(3)
    ]
    await rig.store.end(fence, LOST)

    pending = await rig.store.pending_steps(fence.session_id)

    assert [step.request_id for step in pending[:3]] == asked
    assert [step.method for step in pending[3:]] == ["steps/turnEnd"]
    assert [step.ordinal for step in pending] == [1, 2, 3, 4]


@with_store
async def test_steps_are_read_backwards_a_page_at_a_time(rig: Rig) -> None:
    fence = await rig.running()
    for _ in range(5):
        await rig.store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id), fence, [])

    async def page(before: int | None) -> list[int]:
        found = await rig.store.steps(fence.session_id, turn_id=fence.turn_id, before=before, limit=2)
        return [step.ordinal for step in found]

    assert [await page(before) for before in (None, 4, 2, 1)] == [[4, 5], [2, 3], [1], []]


@with_store
async def test_an_answer_is_kept_with_its_events_and_the_head_is_witnessed(rig: Rig) -> None:
    fence = await rig.running()
    step = await rig.store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id), fence, [])

    await rig.store.answer_step(fence.session_id, step.request_id, ALLOWED, fence, [a_note(fence.turn_id)])

    assert await rig.store.pending_steps(fence.session_id) == ()
    (kept,) = await rig.store.steps(fence.session_id, turn_id=fence.turn_id)
    told = (kept.state, kept.decision, kept.chain_hash, kept.reasoning, kept.reason_codes)
    assert told == ("answered", "allow", "hash-1", "fine", ("ok",))
    assert (await rig.store.session(fence.session_id)).witnessed_head == "hash-1"


@with_store
async def test_a_second_answer_changes_nothing(rig: Rig) -> None:
    fence = await rig.running()
    step = await rig.store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id), fence, [])
    await rig.store.answer_step(fence.session_id, step.request_id, ALLOWED, fence, [])

    denied = replace(ALLOWED, decision="deny", chain_hash="hash-2")
    await rig.store.answer_step(fence.session_id, step.request_id, denied, fence, [a_note(fence.turn_id)])

    assert (await rig.store.steps(fence.session_id))[0].decision == "allow"
    assert (await rig.store.session(fence.session_id)).witnessed_head == "hash-1"
    assert "sandbox.released" not in await rig.types(fence.session_id)


@with_store
async def test_a_hostile_guardians_words_come_back_as_they_were(rig: Rig) -> None:
    fence = await rig.running()
    step = await rig.store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id), fence, [])
    hostile = StepAnswer("answered", "allow", "a\0b", "\0'\";--\u2028", ("\0",))

    await rig.store.answer_step(fence.session_id, step.request_id, hostile, fence, [])

    (kept,) = await rig.store.steps(fence.session_id)
    assert (kept.chain_hash, kept.reasoning, kept.reason_codes) == ("a\0b", "\0'\";--\u2028", ("\0",))


@with_store
async def test_the_first_send_freezes_the_payload_of_a_turn_end(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.end(fence, ANSWER)
    (step,) = await rig.store.pending_steps(fence.session_id)

    first = await rig.store.attempt_step(fence.session_id, step.request_id, payload_json='{"step_count":3}')
    second = await rig.store.attempt_step(fence.session_id, step.request_id, payload_json='{"step_count":4}')

    assert (first.attempts, first.payload_json) == (1, '{"step_count":3}')
    assert (second.attempts, second.payload_json) == (2, '{"step_count":3}')


@with_store
async def test_counts_are_of_answers_that_are_in_the_chain(rig: Rig) -> None:
    fence = await rig.running()
    answers = {
        "steps/userMessage": ALLOWED,
        "steps/toolCallRequest": replace(ALLOWED, decision="deny", chain_hash="hash-2"),
        "steps/toolCallResult": StepAnswer("answered", error_code=-32005),
        "steps/agentResponse": REFUSED,
    }
    for method, answer in answers.items():
        step = await rig.store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id, method), fence, [])
        await rig.store.answer_step(fence.session_id, step.request_id, answer, fence, [])
    outside = a_step(rig.ids, fence.turn_id, "steps/turnStart", in_window=False)
    await rig.store.ask_step(fence.session_id, outside, fence, [])

    assert await rig.store.step_counts(fence.session_id, fence.turn_id) == StepCounts(3, 1)


@with_store
async def test_a_count_is_left_out_where_a_fate_is_unknown(rig: Rig) -> None:
    fence = await rig.running()
    message = a_step(rig.ids, fence.turn_id, "steps/agentResponse")
    await rig.store.ask_step(fence.session_id, message, fence, [])
    assert await rig.store.step_counts(fence.session_id, fence.turn_id) == StepCounts(None, 0)

    await rig.store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id), fence, [])

    assert await rig.store.step_counts(fence.session_id, fence.turn_id) == StepCounts(None, None)


@with_store
async def test_the_outbox_leaves_alone_what_a_live_worker_is_sending(rig: Rig) -> None:
    fence, done = await rig.running(), await rig.running()
    await rig.store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id), fence, [])
    await rig.store.end(done, ANSWER)

    assert await rig.store.sessions_with_pending_steps(10) == (done.session_id,)
    await rig.store.end(fence, LOST)
    assert set(await rig.store.sessions_with_pending_steps(10)) == {done.session_id, fence.session_id}
    assert len(await rig.store.sessions_with_pending_steps(1)) == 1


@with_store
async def test_a_dead_letter_is_to_be_seen_and_no_longer_in_the_way(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.end(fence, ANSWER)
    (step,) = await rig.store.pending_steps(fence.session_id)

    dead = StepAnswer("dead", error_code=-32602)
    await rig.store.answer_step(fence.session_id, step.request_id, dead, None, [a_note(fence.turn_id)])

    assert [letter.request_id for letter in await rig.store.dead_letters(10)] == [step.request_id]
    assert await rig.store.pending_steps(fence.session_id) == ()
    assert (await rig.store.turn(fence.turn_id)).terminal_event_id is not None


@with_store
async def test_a_step_that_is_not_there_cannot_be_answered_or_sent(rig: Rig) -> None:
    session = await rig.session()

    with pytest.raises(NotFound):
        await rig.store.answer_step(session.id, rig.ids.uuid(), ALLOWED, None, [])
    with pytest.raises(NotFound):
        await rig.store.attempt_step(session.id, rig.ids.uuid(), payload_json=None)


@with_store
async def test_a_session_is_closed_when_nothing_is_left_of_it(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.set_acs_state(fence.session_id, "started")
    waiting = await rig.post(fence.session_id)

    closing = await rig.store.close_session(fence.session_id, mode="cancel", by=BY_APP)

    assert (closing.status, closing.queue_depth) == ("closing", 0)
    assert (await rig.store.turn(waiting.id)).stop_reason == "session_closed"
    asked = await rig.store.turn(fence.turn_id)
    assert (asked.cancel_mode, asked.cancel_stop_reason) == ("graceful", "session_closed")
    assert await rig.store.sessions_to_end(10) == ()
    await rig.store.end(fence, LOST)
    assert await rig.store.sessions_to_end(10) == ()
    (step,) = await rig.store.pending_steps(fence.session_id)
    await rig.store.answer_step(fence.session_id, step.request_id, ALLOWED, None, [])
    assert await rig.store.sessions_to_end(10) == (fence.session_id,)


@with_store
async def test_the_end_of_a_session_is_one_event_and_one_step(rig: Rig) -> None:
    session = await rig.session()
    await rig.store.set_acs_state(session.id, "started")
    await rig.store.close_session(session.id, mode="drain", by=BY_APP)

    for _ in range(2):
        end = a_step(rig.ids, None, "steps/sessionEnd", in_window=False)
        await rig.store.close_ended(session.id, "completed", end)

    closed = await rig.store.session(session.id)
    assert (closed.status, closed.acs_state, closed.closed_at) == ("closed", "ended", rig.clock.now())
    assert [step.method for step in await rig.store.pending_steps(session.id)] == ["steps/sessionEnd"]
    assert await rig.types(session.id) == ["session.created", "session.closed"]


@with_store
async def test_a_session_the_guardian_never_heard_of_is_closed_without_a_step(rig: Rig) -> None:
    session = await rig.session()
    await rig.store.close_session(session.id, mode="drain", by=BY_APP)

    await rig.store.close_ended(session.id, "completed", None)

    assert await rig.store.steps(session.id) == ()
    assert (await rig.store.session(session.id)).acs_state == "new"


@with_store
async def test_a_session_with_a_turn_in_it_is_not_closed(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.close_session(fence.session_id, mode="drain", by=BY_APP)

    with pytest.raises(Exception, match="has turns or unsent steps"):
        await rig.store.close_ended(fence.session_id, "completed", None)

    assert (await rig.store.session(fence.session_id)).status == "closing"


@with_store
async def test_a_session_the_guardian_refused_takes_no_more_turns(rig: Rig) -> None:
    """Row 4a: a denied session is closed."""
    session = await rig.session()

    await rig.store.set_acs_state(session.id, "refused")

    found = await rig.store.session(session.id)
    assert (found.status, found.acs_state) == ("closing", "refused")
    assert await rig.store.sessions_to_end(10) == (session.id,)
