"""ASK and DEFER: a step waits, is asked for again, and ends as the Guardian said it should."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.client.rig import SESSION, Rig

from turnkeeper.acs import Decision, Disposition, RequestEnvelope
from turnkeeper.client import (
    Allowed,
    ClientSettings,
    Denied,
    GuardianClient,
    Pending,
    StepDenied,
    StepPending,
    TransportFailed,
)
from turnkeeper.client.steps import tool_call_request
from turnkeeper.testing.scripted_guardian import deny

TOOL = "steps/toolCallRequest"


def ask(**details: Any) -> Decision:
    """An ASK of ten minutes."""
    approver = {"type": "human", "id": "operators"}
    told = {"approver": approver, "question": "Delete?", "timeout_seconds": 600, **details}
    return Decision(Disposition.ASK, "an operator must agree", ask_details=told)


def defer(**details: Any) -> Decision:
    """A DEFER of ten minutes."""
    told = {
        "reason": "insufficient_context",
        "resolution_method": "human_approval",
        "resolution_timeout_ms": 600_000,
        "timeout_decision": "deny",
        **details,
    }
    return Decision(Disposition.DEFER, "not now", defer_details=told)


async def one_tool_call(guardian: GuardianClient) -> Mapping[str, object]:
    """The arguments a tool call was allowed with, however long that took."""
    async with guardian.session(session_id=SESSION) as session, session.turn() as turn:
        return await turn.tool_call_request("shell", {"command": "ls"})


def asked(rig: Rig) -> list[RequestEnvelope]:
    """Every time the tool call was asked for."""
    return [envelope for envelope in rig.scripted.received if envelope.method == TOOL]


def test_a_step_that_is_approved_goes_on() -> None:
    rig = Rig()
    rig.scripted.next(TOOL, ask(), ask())
    assert rig.run(one_tool_call) == {"command": "ls"}
    assert len(asked(rig)) == 3
    assert rig.records == []


def test_a_step_is_sent_again_under_a_new_id_with_the_first_one_as_reference() -> None:
    rig = Rig()
    rig.scripted.next(TOOL, ask(), ask())
    rig.run(one_tool_call)
    first, *again = asked(rig)
    assert len({envelope.request_id for envelope in asked(rig)}) == 3
    assert [envelope.payload["request_id_ref"] for envelope in again] == [first.request_id] * 2
    assert all(
        {name: member for name, member in envelope.payload.items() if name != "request_id_ref"} == first.payload
        for envelope in again
    )
    assert {envelope.turn_id for envelope in asked(rig)} == {first.turn_id}


def test_every_try_counts_as_the_step_it_is_in_the_chain() -> None:
    rig = Rig()
    rig.scripted.next(TOOL, ask(), ask())
    rig.run(one_tool_call)
    end = rig.scripted.received[-2]
    assert (end.payload["step_count"], end.payload["tool_call_count"]) == rig.scripted.window_counts(end.turn_id or "")


def test_a_step_that_is_turned_down_is_denied() -> None:
    rig = Rig()
    rig.scripted.next(TOOL, ask(), deny("no", "approval_denied"))
    with pytest.raises(StepDenied) as denied:
        rig.run(one_tool_call)
    assert denied.value.reason_codes == ("approval_denied",)


@pytest.mark.parametrize(("disposition", "runs"), [("deny", False), ("allow", True)])
def test_when_nobody_answers_the_guardians_disposition_applies_and_is_recorded(disposition: str, runs: bool) -> None:
    """CORE-ASK-07."""
    rig = Rig()
    rig.scripted.always(TOOL, ask(timeout_disposition=disposition))
    before = rig.clock.monotonic_ms()
    if runs:
        assert rig.run(one_tool_call) == {"command": "ls"}
    else:
        with pytest.raises(StepDenied):
            rig.run(one_tool_call)
    assert rig.audited() == [("pending_expired", "proceeded" if runs else "blocked")]
    assert rig.clock.monotonic_ms() - before >= 600_000


def test_an_end_that_means_allow_is_not_asked_about_once_it_has_come() -> None:
    """A Guardian that forgot the question would deny it then."""
    rig = Rig()

    def patient(envelope: RequestEnvelope) -> Decision:
        over = rig.clock.monotonic_ms() >= 600_000
        return deny("over", "approval_expired") if over else ask(timeout_disposition="allow")

    rig.scripted.always(TOOL, patient)
    assert rig.run(one_tool_call) == {"command": "ls"}


def test_asking_again_does_not_move_the_end() -> None:
    rig = Rig()
    rig.scripted.always(TOOL, ask())
    before = rig.clock.monotonic_ms()
    with pytest.raises(StepDenied):
        rig.run(one_tool_call)
    assert rig.clock.monotonic_ms() - before < 700_000


def test_a_wire_that_breaks_while_a_step_waits_lets_nothing_through() -> None:
    """The Guardian negotiated `proceed`, but it did decide: the step waits."""
    rig = Rig()
    rig.scripted.on_decision_failure = "proceed"
    rig.scripted.always(TOOL, ask(timeout_seconds=2))

    async def breaks_after_the_ask(body: bytes) -> bytes:
        if b"request_id_ref" in body:
            raise TransportFailed("gone")
        return await rig.scripted.exchange(body, timeout_ms=0)

    rig.answer = breaks_after_the_ask
    with pytest.raises(StepDenied):
        rig.run(one_tool_call)
    assert rig.audited()[-1] == ("pending_expired", "blocked")
    assert {outcome for _, outcome in rig.audited()} == {"blocked"}


def test_a_deferral_that_ends_in_an_ask_is_asked_once_more() -> None:
    """CORE-DISP-04."""
    rig = Rig()
    rig.scripted.next(TOOL, defer(resolution_method="timeout", timeout_decision="ask"), ask())
    assert rig.run(one_tool_call) == {"command": "ls"}
    assert len(asked(rig)) == 3


def test_a_deferral_that_should_end_in_an_ask_and_does_not_is_denied() -> None:
    rig = Rig()
    rig.scripted.always(TOOL, defer(resolution_method="timeout", timeout_decision="ask"))
    with pytest.raises(StepDenied):
        rig.run(one_tool_call)
    assert len(asked(rig)) == 2


def test_a_deferral_that_only_time_resolves_is_not_asked_again() -> None:
    rig = Rig()
    rig.scripted.always(TOOL, defer(resolution_method="timeout"))
    with pytest.raises(StepDenied):
        rig.run(one_tool_call)
    assert len(asked(rig)) == 1


def test_an_agent_may_leave_the_turn_deferred_and_resolve_the_step_later() -> None:
    rig = Rig(ClientSettings(pending="raise"))
    rig.scripted.next(TOOL, defer())

    async def work(guardian: GuardianClient) -> tuple[Pending, object]:
        async with guardian.session(session_id=SESSION) as session:
            with pytest.raises(StepPending) as waiting:
                async with session.turn() as turn:
                    await turn.tool_call_request("shell", {"command": "ls"})
            return waiting.value.pending, await guardian.resolve(waiting.value.pending)

    pending, outcome = rig.run(work)
    assert (pending.question, pending.kind) == ("not now", "defer")
    assert isinstance(outcome, Allowed)
    # Its turn is over, so that it belongs to none.
    assert [envelope.turn_id for envelope in asked(rig)] == [pending.turn_id, None]
    assert [
        envelope.payload["outcome"] for envelope in rig.scripted.received if envelope.method == "steps/turnEnd"
    ] == ["deferred"]


def test_a_turn_left_while_an_approver_is_asked_was_interrupted() -> None:
    """Nothing was deferred, so the turn must not say so."""
    rig = Rig(ClientSettings(pending="raise"))
    rig.scripted.next(TOOL, ask())
    with pytest.raises(StepPending):
        rig.run(one_tool_call)
    assert rig.scripted.received[-2].payload["outcome"] == "interrupted"


def test_a_deferred_step_can_be_gone_on_with_in_its_turn_begun_again() -> None:
    rig = Rig(ClientSettings(pending="raise"))
    rig.scripted.next(TOOL, defer(), defer())

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session(session_id=SESSION) as session:
            with pytest.raises(StepPending) as waiting:
                async with session.turn() as turn:
                    await turn.tool_call_request("shell", {"command": "ls"})
            pending = waiting.value.pending
            async with session.turn("auto_continuation", turn_id=pending.turn_id) as turn:
                assert await turn.resubmit(pending) == pending
                assert isinstance(await turn.resolve(pending), Allowed)

    rig.run(work)
    assert len({envelope.turn_id for envelope in asked(rig)}) == 1
    assert rig.scripted.received[-2].payload["step_count"] == 2


def test_a_waiting_step_can_be_asked_for_once() -> None:
    rig = Rig()
    rig.scripted.next(TOOL, ask(), ask(), deny("no"))

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session(session_id=SESSION) as session, session.turn() as turn:
            first = await turn.ask(tool_call_request(turn.marks(), "shell", {"command": "ls"}))
            assert isinstance(first, Pending)
            assert await session.resubmit(first) == first
            assert isinstance(await session.resubmit(first), Denied)

    rig.run(work)


def test_another_kind_of_wait_has_an_end_and_a_reference_of_its_own() -> None:
    rig = Rig()
    rig.scripted.next(TOOL, defer(), ask(timeout_seconds=5))

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session(session_id=SESSION) as session, session.turn() as turn:
            first = await turn.ask(tool_call_request(turn.marks(), "shell", {"command": "ls"}))
            assert isinstance(first, Pending)
            second = await session.resubmit(first)
            assert isinstance(second, Pending)
            assert (second.kind, second.request_id == first.request_id) == ("ask", False)
            assert second.expires_at_ms < first.expires_at_ms

    rig.run(work)
