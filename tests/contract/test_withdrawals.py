"""Questions that nobody waits for, on both databases: noted in the transaction that stops the wait (contract 2.5)."""

from tests.contract.store_rig import BY_APP, Rig, a_step, with_store
from tests.contract.test_turn_store_pauses import NO, YES, Paused, paused

from turnkeeper.turns.approvals import AskedStep
from turnkeeper.turns.model import StepAnswer


def question_of(waiting: Paused) -> AskedStep:
    """The step whose question the turn waits for."""
    assert waiting.pause.call.request_id is not None
    return AskedStep(waiting.fence.session_id, waiting.pause.call.request_id)


@with_store
async def test_a_turn_that_is_canceled_while_it_waits_takes_its_question_back(rig: Rig) -> None:
    """Row 27."""
    waiting = await paused(rig)
    assert await rig.store.withdrawals(10) == ()
    await rig.store.cancel_turn(waiting.turn_id, mode="graceful", by=BY_APP)
    assert await rig.store.withdrawals(10) == (question_of(waiting),)
    await rig.store.forget_withdrawal(question_of(waiting))
    assert await rig.store.withdrawals(10) == ()


@with_store
async def test_a_session_that_is_closed_takes_the_question_back(rig: Rig) -> None:
    waiting = await paused(rig)
    await rig.store.close_session(waiting.fence.session_id, mode="cancel", by=BY_APP)
    assert await rig.store.withdrawals(10) == (question_of(waiting),)


@with_store
async def test_a_session_that_is_deleted_takes_the_question_back_before_it_is_erased(rig: Rig) -> None:
    waiting = await paused(rig)
    session_id = waiting.fence.session_id
    await rig.store.retention().delete_session(session_id, by=BY_APP)
    await rig.store.close_ended(session_id, "completed", None)
    assert await rig.store.retention().erase(10) == 1
    assert await rig.store.withdrawals(10) == (question_of(waiting),)
    await rig.store.forget_withdrawal(question_of(waiting))


@with_store
async def test_a_question_whose_time_is_over_here_may_be_open_there(rig: Rig) -> None:
    """Row 25: the agent's limit may be shorter than the Guardian's."""
    waiting = await paused(rig, wait_ms=1_000)
    rig.clock.advance(1_000)
    await rig.store.expire_pauses(10)
    assert await rig.store.withdrawals(10) == (question_of(waiting),)


@with_store
async def test_a_deferral_that_becomes_a_question_stays_open(rig: Rig) -> None:
    """Row 25a."""
    await paused(rig, kind="deferral", wait_ms=1_000, timeout="ask")
    rig.clock.advance(1_000)
    await rig.store.expire_pauses(10)
    assert await rig.store.withdrawals(10) == ()


@with_store
async def test_an_answered_question_is_not_taken_back(rig: Rig) -> None:
    for answer in (YES, NO):
        waiting = await paused(rig)
        await rig.store.decide_approval(waiting.approval.id, answer)
        await rig.store.cancel_turn(waiting.turn_id, mode="graceful", by=BY_APP)
    assert await rig.store.withdrawals(10) == ()


@with_store
async def test_a_step_that_is_asked_about_while_nobody_will_wait_is_taken_back(rig: Rig) -> None:
    fence = await rig.running()
    for decision in ("allow", "ask", "ask"):
        step = a_step(rig.ids, fence.turn_id)
        await rig.store.ask_step(fence.session_id, step, fence, ())
        answer = StepAnswer("answered", decision, "c" * 64)
        for _ in range(2):
            await rig.store.answer_step(fence.session_id, step.request_id, answer, None, ())
    found = await rig.store.withdrawals(10)
    assert len(found) == 2
    assert AskedStep(fence.session_id, step.request_id) in found
    assert len(await rig.store.withdrawals(1)) == 1
