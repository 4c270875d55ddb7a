"""One terminal event, whatever happens (contract 5 and 6)."""

from dataclasses import replace

import orjson
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError
from tests.contract.store_rig import ANSWER, BY_APP, CALL, LOST, UNPAID, Rig, a_note, a_step, has_started, with_store

from turnkeeper.events import catalogue
from turnkeeper.events.founding import check_founding
from turnkeeper.ids import uuid_of
from turnkeeper.turns.lifecycle import IllegalTransition
from turnkeeper.turns.model import Budget, StopReason, Submission, TurnStatus
from turnkeeper.turns.ports import StaleFence
from turnkeeper.turns.results import IllegalEnding

SCHEMA = '{"type":"object"}'


@with_store
async def test_an_ended_turn_says_what_its_event_says_byte_for_byte(rig: Rig) -> None:
    fence = await rig.running(
        metadata_json='{"b":1.0,"a":null}', output_schema_json=SCHEMA, idempotency_key="k", fingerprint="f"
    )
    await rig.store.submit(fence, Submission(1, True, '{"n":1e2}', ()), [])

    event = await rig.store.end(fence, replace(ANSWER, result_json='{"n":1e2}'))

    turn = await rig.store.turn(fence.turn_id)
    assert (turn.terminal_data, turn.terminal_event_id) == (event.data, event.id)
    assert (turn.status, turn.stop_reason, turn.text) == (TurnStatus.COMPLETED, StopReason.END_TURN, "done")
    assert '"result":{"n":1e2}' in event.data
    assert '"metadata":{"b":1.0,"a":null}' in event.data
    assert check_founding(orjson.loads(event.data)) == []
    assert (await rig.store.submissions(fence.turn_id))[0].published


@with_store
async def test_a_turn_before_its_end_says_nothing_about_it(rig: Rig) -> None:
    turn = await rig.store.turn((await rig.running()).turn_id)

    told = (turn.text, turn.result_json, turn.result_error, turn.stop_reason, turn.duration_ms, turn.terminal_data)
    assert told == (None,) * 6
    assert (turn.status, turn.attempt, turn.tries) == (TurnStatus.RUNNING, 1, 1)


@with_store
async def test_a_turn_ends_once(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.end(fence, ANSWER)

    with pytest.raises(StaleFence):
        await rig.store.end(fence, LOST)

    assert (await rig.types(fence.session_id)).count("turn.completed") == 1
    assert "turn.failed" not in await rig.types(fence.session_id)


@with_store
async def test_an_illegal_ending_writes_nothing(rig: Rig) -> None:
    fence = await rig.running()
    before = await rig.types(fence.session_id)

    with pytest.raises(IllegalEnding):
        await rig.store.end(fence, replace(ANSWER, result_json="1"), before=[a_note(fence.turn_id)])

    assert await rig.types(fence.session_id) == before
    assert (await rig.store.turn(fence.turn_id)).status is TurnStatus.RUNNING


@with_store
async def test_the_turn_end_step_is_in_the_transaction_that_ends_the_turn(rig: Rig) -> None:
    fence = await rig.running()

    event = await rig.store.end(fence, ANSWER)

    (step,) = await rig.store.pending_steps(fence.session_id)
    assert (step.method, step.outcome, step.payload_json) == ("steps/turnEnd", "completed", None)
    assert (step.request_id, step.turn_id, step.in_window) == (uuid_of(event.id), fence.turn_id, False)


@with_store
async def test_an_ending_without_an_outcome_sends_no_turn_end(rig: Rig) -> None:
    session = await rig.session()
    turn = await rig.post(session.id)

    ended, effect = await rig.store.cancel_turn(turn.id, mode="graceful", by=BY_APP)

    assert (effect, ended.status, ended.canceled_by) == ("ended", TurnStatus.CANCELED, BY_APP)
    assert await rig.store.pending_steps(session.id) == ()


@with_store
async def test_what_was_left_open_is_closed_before_the_ending(rig: Rig) -> None:
    fence = await rig.running()

    event = await rig.store.end(fence, LOST, before=[a_note(fence.turn_id)])

    assert (await rig.types(fence.session_id))[-2:] == ["sandbox.released", "turn.failed"]
    turn = await rig.store.turn(fence.turn_id)
    assert turn.last_sequence == event.sequence
    assert turn.error == LOST.error


@with_store
async def test_usage_and_duration_are_the_ledgers(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.reserve(fence, input_tokens=100, max_output_tokens=500)
    await rig.store.settle(fence, CALL)
    await rig.store.tool_ran(fence)

    data = orjson.loads((await rig.store.end(fence, ANSWER)).data)

    used = data["usage"]
    assert (used["total_tokens"], used["model_calls"], used["tool_calls"], used["sandbox_ms"]) == (150, 1, 1, 10)
    assert (used["cost"], used["estimated"]) == (None, False)
    assert (await rig.store.turn(fence.turn_id)).usage.tool_calls == 1


@with_store
async def test_a_call_nobody_will_settle_is_charged_as_reserved(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.reserve(fence, input_tokens=100, max_output_tokens=500)

    data = orjson.loads((await rig.store.end(fence, LOST)).data)

    assert (data["usage"]["input_tokens"], data["usage"]["output_tokens"]) == (100, 500)
    assert data["usage"]["estimated"] is True
    assert (await rig.types(fence.session_id))[-2:] == ["model.called", "turn.failed"]


@with_store
async def test_a_turn_that_cannot_be_paid_ends_by_the_platform_and_says_which_budget(rig: Rig) -> None:
    session = await rig.session(budget=Budget(max_total_tokens=100))
    await rig.post(session.id)
    fence = (await rig.claim()).fence

    event = await rig.store.end(fence, UNPAID)

    assert (event.source, event.attempt) == ("platform", None)
    assert (await rig.types(session.id))[-2:] == ["budget.reached", "turn.completed"]
    whole = {"type": event.type, "source": event.source, "turn_id": event.turn_id, "data": orjson.loads(event.data)}
    assert check_founding(whole) == []


@with_store
async def test_a_terminal_event_cannot_be_slipped_in_beside_a_state(rig: Rig) -> None:
    fence = await rig.running()
    fake = catalogue.turn_ended(
        event_type="turn.completed", turn_id=fence.turn_id, source="sandbox", attempt=1, data="{}"
    )

    with pytest.raises(Exception, match="written by the transaction that ends the turn"):
        await rig.store.record(fence, [fake])


@with_store
async def test_a_state_without_its_event_is_refused(rig: Rig) -> None:
    session = await rig.session()
    await rig.post(session.id)
    fence = (await rig.claim()).fence

    with pytest.raises(Exception, match=r"together with turn\.starting"):
        await rig.store.starting(fence, [a_note(fence.turn_id)])
    with pytest.raises(IllegalTransition):
        await rig.store.started(fence, [has_started(fence.turn_id)])


@with_store
async def test_the_database_itself_refuses_a_second_terminal_event(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.end(fence, ANSWER)
    copied = (
        "INSERT INTO events (session_id, sequence, id, project_id, type, source, turn_id, created_at, data)"
        " SELECT session_id, sequence + 100, 'evt_other', project_id, 'turn.failed', source, turn_id, 0, data"
        " FROM events WHERE type = 'turn.completed'"
    )
    engine = create_engine(rig.url)
    try:
        with pytest.raises(IntegrityError), engine.begin() as connection:
            connection.execute(text(copied))
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE turns SET front_of = session_id, owner = 'x' WHERE status = 'queued'",
        "UPDATE turns SET status = 'completed' WHERE status = 'running'",
        "UPDATE turns SET owner = NULL WHERE status = 'running'",
        "UPDATE turns SET status = 'parked' WHERE status = 'running'",
        "UPDATE turns SET seq = 1 WHERE status = 'queued'",
    ],
)
def test_the_database_itself_refuses_a_state_that_cannot_be(store_url: str, change: str) -> None:
    async def scenario(rig: Rig) -> None:
        fence = await rig.running()
        await rig.post(fence.session_id)

    with_store(scenario)(store_url)
    engine = create_engine(store_url)
    try:
        with pytest.raises(IntegrityError), engine.begin() as connection:
            connection.execute(text(change))
    finally:
        engine.dispose()


@with_store
async def test_an_unclaimed_turn_whose_turn_start_was_sent_is_closed_towards_the_guardian(rig: Rig) -> None:
    """Amendment 2: a window that was opened is closed, also when its worker gave the turn back."""
    session = await rig.session()
    turn = await rig.post(session.id)
    fence = (await rig.claim()).fence
    await rig.store.ask_step(session.id, a_step(rig.ids, turn.id, "steps/turnStart", in_window=False), fence, [])
    await rig.store.release(fence)

    await rig.store.cancel_turn(turn.id, mode="graceful", by=BY_APP)

    steps = await rig.store.pending_steps(session.id)
    assert [(step.method, step.outcome) for step in steps] == [
        ("steps/turnStart", None),
        ("steps/turnEnd", "interrupted"),
    ]


@with_store
async def test_a_withheld_result_stays_unpublished(rig: Rig) -> None:
    fence = await rig.running(output_schema_json=SCHEMA)
    await rig.store.submit(fence, Submission(1, True, "{}", ()), [])

    event = await rig.store.end(fence, replace(LOST, result_error="withheld"))

    assert orjson.loads(event.data)["result"] is None
    assert [kept.published for kept in await rig.store.submissions(fence.turn_id)] == [False]
