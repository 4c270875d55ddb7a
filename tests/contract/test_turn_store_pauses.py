"""Pauses and approvals on both databases (contract 2.5 and 6, rows 15, 16 and 23 to 27)."""

import asyncio
from dataclasses import dataclass, replace

import pytest
from tests.contract.pause_samples import DAY_MS, INPUT, a_pause
from tests.contract.store_rig import BY_APP, Rig, has_started, with_store

from turnkeeper.turns.approvals import (
    Approval,
    ApprovalAnswer,
    ApprovalDecided,
    ApprovalInputChanged,
    DecidedBy,
    ToolResultConflict,
)
from turnkeeper.turns.lifecycle import IllegalTransition
from turnkeeper.turns.model import Fence, StepAnswer
from turnkeeper.turns.pausing import NewPause, ToolAnswer, hash_of
from turnkeeper.turns.ports import NotFound, PageRequest, StaleFence

YES = ApprovalAnswer("approve", DecidedBy("api_key", "key_1"))
NO = replace(YES, word="deny", note="no")


@dataclass(frozen=True)
class Paused:
    """A turn that waits, and the hand that paused it."""

    fence: Fence
    pause: NewPause

    @property
    def turn_id(self) -> str:
        return self.fence.turn_id

    @property
    def approval(self) -> Approval:
        assert self.pause.approval is not None
        return self.pause.approval


async def paused(
    rig: Rig, *, parked: bool = True, kind: str = "ask", wait_ms: int = DAY_MS, timeout: str = "deny"
) -> Paused:
    fence = await rig.running()
    pause = a_pause(rig.clock, rig.ids, fence, kind=kind, wait_ms=wait_ms, timeout=timeout)
    await rig.store.pause(fence, pause, ())
    if parked:
        await rig.store.park(fence, ())
    return Paused(fence, pause)


@with_store
async def test_a_turn_that_waits_is_nobodys_and_nobody_can_claim_it(rig: Rig) -> None:
    waiting = await paused(rig)
    turn = await rig.store.turn(waiting.turn_id)
    assert (turn.status, turn.active_ms) == ("paused", 40)
    assert await rig.store.claim("another", slot=True) is None
    assert await rig.store.held_by_others("another") == ()
    session = await rig.store.session(turn.session_id)
    assert (session.active_turn_id, session.active_status) == (turn.id, "paused")


@with_store
async def test_an_answer_sends_a_parked_turn_back_to_starting_with_its_events(rig: Rig) -> None:
    """Row 24."""
    waiting = await paused(rig)
    await rig.store.decide_approval(waiting.approval.id, YES)
    claim = await rig.claim("another")
    assert (claim.turn.id, claim.turn.status, claim.turn.tries) == (waiting.turn_id, "starting", 0)
    types = await rig.types(claim.turn.session_id)
    assert types[-4:] == ["approval.requested", "turn.paused", "approval.resolved", "turn.resumed"]
    await rig.store.started(claim.fence, [has_started(waiting.turn_id)], resumed=True)
    turn = await rig.store.turn(waiting.turn_id)
    assert (turn.status, turn.attempt, await rig.store.open_pause(turn.id)) == ("running", 1, None)


@with_store
async def test_a_held_turn_goes_on_by_its_workers_hand_alone(rig: Rig) -> None:
    """Row 23."""
    waiting = await paused(rig, parked=False)
    with pytest.raises(NotFound):
        await rig.store.resume(waiting.fence)
    await rig.store.decide_approval(waiting.approval.id, YES)
    assert (await rig.store.turn(waiting.turn_id)).status == "paused"
    with pytest.raises(StaleFence):
        await rig.store.resume(replace(waiting.fence, number=99))
    assert (await rig.store.resume(waiting.fence)).status == "running"


@with_store
async def test_a_turn_that_was_answered_while_it_was_let_go_of_goes_on_at_once(rig: Rig) -> None:
    waiting = await paused(rig, parked=False)
    await rig.store.decide_approval(waiting.approval.id, NO)
    await rig.store.park(waiting.fence, ())
    assert (await rig.claim("another")).turn.status == "starting"


@with_store
async def test_a_deferral_closes_its_window_with_the_pause_itself(rig: Rig) -> None:
    """Row 16."""
    waiting = await paused(rig, kind="deferral")
    ends = [step for step in await rig.store.steps(waiting.fence.session_id) if step.method == "steps/turnEnd"]
    assert [(step.outcome, step.turn_id) for step in ends] == [("deferred", waiting.turn_id)]
    session = await rig.store.session(waiting.fence.session_id)
    assert session.deferrals == 1
    canceled, effect = await rig.store.cancel_turn(waiting.turn_id, mode="graceful", by=BY_APP)
    assert (canceled.status, canceled.duration_ms, effect) == ("canceled", 40, "ended")
    ends = [step for step in await rig.store.steps(waiting.fence.session_id) if step.method == "steps/turnEnd"]
    assert len(ends) == 1


@with_store
async def test_a_question_is_answered_once(rig: Rig) -> None:
    waiting = await paused(rig)
    first = await rig.store.decide_approval(waiting.approval.id, YES)
    assert await rig.store.decide_approval(waiting.approval.id, replace(YES, note="again")) == first
    for other in (NO, replace(YES, remember="session"), replace(YES, modified_input_json="{}")):
        with pytest.raises(ApprovalDecided):
            await rig.store.decide_approval(waiting.approval.id, other)
    assert (await rig.types(waiting.fence.session_id)).count("approval.resolved") == 1


@with_store
async def test_two_who_answer_at_once_make_one_answer(rig: Rig) -> None:
    waiting = await paused(rig)
    answers = [rig.store.decide_approval(waiting.approval.id, answer) for answer in (YES, NO, YES, NO)]
    got = await asyncio.gather(*answers, return_exceptions=True)
    refused = [one for one in got if isinstance(one, ApprovalDecided)]
    assert len(refused) == 2
    assert (await rig.types(waiting.fence.session_id)).count("turn.resumed") == 1


@with_store
async def test_an_answer_about_another_input_is_refused(rig: Rig) -> None:
    waiting = await paused(rig)
    with pytest.raises(ApprovalInputChanged):
        await rig.store.decide_approval(waiting.approval.id, replace(YES, input_hash="0" * 64))
    approved = await rig.store.decide_approval(waiting.approval.id, replace(YES, input_hash=hash_of(INPUT)))
    assert approved.status == "approved"


@with_store
async def test_a_question_that_is_over_denies_its_step_and_takes_no_answer(rig: Rig) -> None:
    """Row 25."""
    waiting = await paused(rig, wait_ms=1_000)
    assert await rig.store.expire_pauses(10) == 0
    rig.clock.advance(1_000)
    with pytest.raises(ApprovalDecided):
        await rig.store.decide_approval(waiting.approval.id, YES)
    assert await rig.store.expire_pauses(10) == 1
    assert (await rig.store.approval(waiting.approval.id)).status == "expired"
    assert (await rig.claim("another")).turn.id == waiting.turn_id


@with_store
async def test_a_deferral_that_is_over_is_asked_about_where_the_guardian_says_so(rig: Rig) -> None:
    """Row 25a."""
    waiting = await paused(rig, kind="deferral", wait_ms=1_000, timeout="ask")
    rig.clock.advance(1_000)
    assert await rig.store.expire_pauses(10) == 1
    pause = await rig.store.open_pause(waiting.turn_id)
    assert pause is not None
    assert pause.approval is not None
    assert (pause.reason, pause.approval.kind, pause.window_closed, pause.deferrals) == ("approval", "ask", True, 1)
    assert (await rig.types(waiting.fence.session_id))[-3:] == [
        "approval.resolved",
        "approval.requested",
        "turn.paused",
    ]


@with_store
async def test_an_app_answers_its_tool_once(rig: Rig) -> None:
    waiting = await paused(rig, kind="client")
    call_id = waiting.pause.call.tool_call_id
    answer = ToolAnswer("rain\0", None)
    assert (await rig.store.answer_tool(waiting.turn_id, call_id, answer)).status == "starting"
    await rig.store.answer_tool(waiting.turn_id, call_id, answer)
    with pytest.raises(ToolResultConflict):
        await rig.store.answer_tool(waiting.turn_id, call_id, ToolAnswer(None, "sunshine"))
    with pytest.raises(NotFound):
        await rig.store.answer_tool(waiting.turn_id, rig.ids.new("tcl"), answer)
    pause = await rig.store.open_pause(waiting.turn_id)
    assert pause is not None
    assert pause.answer == answer


@with_store
async def test_an_app_that_is_late_finds_its_turn_failed(rig: Rig) -> None:
    """Row 26."""
    waiting = await paused(rig, kind="client", wait_ms=1_000)
    rig.clock.advance(1_000)
    assert await rig.store.expire_pauses(10) == 1
    turn = await rig.store.turn(waiting.turn_id)
    assert (turn.status, turn.stop_reason) == ("failed", "pause_expired")
    with pytest.raises(ToolResultConflict):
        await rig.store.answer_tool(turn.id, waiting.pause.call.tool_call_id, ToolAnswer("late", None))


@with_store
async def test_a_step_and_the_pause_it_begins_are_one_transaction(rig: Rig) -> None:
    fence = await rig.running()
    pause = a_pause(rig.clock, rig.ids, fence, kind="deferral")
    answer = StepAnswer("answered", "defer", "c" * 64)
    with pytest.raises(NotFound):
        await rig.store.answer_step(fence.session_id, rig.ids.uuid(), answer, fence, (), pause=pause)
    turn = await rig.store.turn(fence.turn_id)
    assert (turn.status, (await rig.store.approvals(PageRequest())).items) == ("running", ())


@with_store
async def test_a_turn_cannot_wait_twice_nor_after_its_end(rig: Rig) -> None:
    waiting = await paused(rig, parked=False)
    with pytest.raises(IllegalTransition):
        await rig.store.pause(waiting.fence, a_pause(rig.clock, rig.ids, waiting.fence), ())
    await rig.store.park(waiting.fence, ())
    await rig.store.cancel_turn(waiting.turn_id, mode="graceful", by=BY_APP)
    assert (await rig.store.approval(waiting.approval.id)).status == "canceled"
    with pytest.raises(ApprovalDecided):
        await rig.store.decide_approval(waiting.approval.id, YES)
    types = await rig.types(waiting.fence.session_id)
    assert types[-3:] == ["approval.resolved", "tool.completed", "turn.canceled"]


@with_store
async def test_closing_a_session_ends_the_turn_that_waits_in_it(rig: Rig) -> None:
    """Row 27."""
    waiting = await paused(rig)
    await rig.store.close_session(waiting.fence.session_id, mode="cancel", by=BY_APP)
    turn = await rig.store.turn(waiting.turn_id)
    assert (turn.status, turn.stop_reason) == ("canceled", "session_closed")


@with_store
async def test_a_remembered_answer_can_be_seen_and_taken_back(rig: Rig) -> None:
    waiting = await paused(rig)
    await rig.store.decide_approval(waiting.approval.id, replace(YES, remember="session"))
    rule = (await rig.store.approval_rules(waiting.fence.session_id))[0]
    assert (rule.approval_id, rule.tool, rule.input_hash) == (waiting.approval.id, "shell", hash_of(INPUT))
    other = await rig.session()
    with pytest.raises(NotFound):
        await rig.store.remove_approval_rule(other.id, rule.approval_id)
    await rig.store.remove_approval_rule(waiting.fence.session_id, rule.approval_id)
    assert await rig.store.approval_rules(waiting.fence.session_id) == ()


@with_store
async def test_approvals_are_listed_by_status_and_session(rig: Rig) -> None:
    first, second = await paused(rig), await paused(rig)
    await rig.store.decide_approval(first.approval.id, NO)
    pending = await rig.store.approvals(PageRequest(), status="pending")
    of_first = await rig.store.approvals(PageRequest(), session_id=first.fence.session_id)
    assert [one.id for one in pending.items] == [second.approval.id]
    assert [(one.id, one.status, one.question) for one in of_first.items] == [
        (first.approval.id, "denied", "May it?\0")
    ]
