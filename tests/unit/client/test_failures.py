"""No decision: what the wire can do to an agent, what the agent does then, and what its own log says of it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from tests.unit.client.rig import KEYRING, SESSION, Rig

from turnkeeper.acs import AcsErrorCode, Decision, Disposition, HandshakeRefused, RequestEnvelope, sign_response
from turnkeeper.client import (
    AuditFailed,
    ClientSettings,
    GuardianClient,
    PostureRules,
    SessionNotStarted,
    SessionRefused,
    StepDenied,
    StepInvalid,
    Timing,
    TransportFailed,
)
from turnkeeper.testing.scripted_guardian import Fault, SignedError, deny

TOOL = "steps/toolCallRequest"


def echo(command: str) -> str:
    """A tool."""
    return command


async def one_tool_call(guardian: GuardianClient) -> dict[str, object]:
    """The arguments a tool call was allowed with."""
    async with guardian.session() as session, session.turn() as turn:
        return await turn.tool_call_request("shell", {"command": "ls"})


def proceeding(**settings: Any) -> Rig:
    """A rig whose Guardian negotiates `proceed`."""
    rig = Rig(ClientSettings(**settings))
    rig.scripted.on_decision_failure = "proceed"
    return rig


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.LOSE_REQUEST, "transport"),
        (Fault.LOSE_ANSWER, "transport"),
        (Fault.GARBAGE, "malformed_response"),
        (Fault.UNSIGNED, "signature_invalid"),
        (Fault.OTHER_ANSWER, "malformed_response"),
    ],
)
@pytest.mark.parametrize("posture", ["proceed", "deny"])
def test_a_wire_that_stays_broken_leaves_the_step_to_the_posture(fault: Fault, kind: str, posture: str) -> None:
    rig = Rig()
    rig.scripted.on_decision_failure = posture
    rig.scripted.fail(TOOL, *[fault] * 3)
    if posture == "proceed":
        assert rig.run(one_tool_call) == {"command": "ls"}
    else:
        with pytest.raises(StepDenied):
            rig.run(one_tool_call)
    (record,) = rig.records
    assert record.document["failure"] == record.document["failure"] | {"kind": kind}  # type: ignore[operator]
    assert (record.outcome, record.document["posture"], record.document["posture_source"]) == (
        "proceeded" if posture == "proceed" else "blocked",
        posture,
        "negotiated",
    )


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.GARBAGE, Fault.UNSIGNED, Fault.DOUBLE])
def test_a_wire_that_breaks_once_costs_nothing(fault: Fault) -> None:
    """CORE-HON-06: the decision comes, one entry is written, and the counts are known."""
    rig = Rig()
    rig.scripted.fail(TOOL, fault)
    assert rig.run(one_tool_call) == {"command": "ls"}
    assert rig.records == []
    assert rig.scripted.written().count(TOOL) == 1
    assert rig.scripted.received[-2].payload["tool_call_count"] == 1


def test_a_denial_whose_answer_was_lost_is_still_a_denial() -> None:
    """The recorded decision is obeyed."""
    rig = proceeding()
    rig.scripted.next(TOOL, deny("no", "forbidden"))
    rig.scripted.fail(TOOL, Fault.LOSE_ANSWER)
    with pytest.raises(StepDenied):
        rig.run(one_tool_call)
    assert rig.scripted.written().count(TOOL) == 1


def test_a_guardian_that_shows_no_record_is_asked_anew_under_another_id() -> None:
    """CORE-RPL-07; two entries stand then, so the agent gives no count."""
    rig = Rig()
    rig.scripted = type(rig.scripted)(KEYRING, shows_recorded=False)
    rig.__post_init__()
    rig.scripted.fail(TOOL, Fault.LOSE_ANSWER)
    assert rig.run(one_tool_call) == {"command": "ls"}
    asked = [envelope.request_id for envelope in rig.scripted.received if envelope.method == TOOL]
    assert (len(asked), len(set(asked))) == (3, 2)
    assert "tool_call_count" not in rig.scripted.received[-2].payload


def test_every_send_has_a_nonce_of_its_own() -> None:
    rig = Rig()
    rig.scripted.fail(TOOL, Fault.LOSE_ANSWER)
    rig.run(one_tool_call)
    nonces = [envelope.nonce for envelope in rig.scripted.received]
    assert len(set(nonces)) == len(nonces)


@pytest.mark.parametrize(
    "code",
    [
        AcsErrorCode.INVALID_PARAMS,
        AcsErrorCode.CAPABILITY_NOT_NEGOTIATED,
        AcsErrorCode.CHAIN_MISMATCH,
        AcsErrorCode.SESSION_REFUSED,
    ],
)
def test_a_refusal_blocks_and_is_not_tried_again(code: AcsErrorCode) -> None:
    """CORE-HON-07: refusals can be provoked, so they do not fall to `proceed`."""
    rig = proceeding()
    rig.scripted.always(TOOL, SignedError(code))
    with pytest.raises(StepDenied, match="refused"):
        rig.run(one_tool_call)
    assert rig.sent().count("toolCallRequest") == 1
    assert rig.audited() == [("decision_failure", "blocked")]


def test_a_deployment_may_leave_refusals_to_the_posture() -> None:
    rig = proceeding(posture=PostureRules(refusals="posture"))
    rig.scripted.always(TOOL, SignedError(AcsErrorCode.INVALID_PARAMS))
    assert rig.run(one_tool_call) == {"command": "ls"}
    assert rig.records[0].document["failure"] == {
        "kind": "guardian_error",
        "message": "the Guardian answered with error -32602",
        "code": -32602,
        "reason": "scripted",
    }


def test_an_internal_error_is_tried_again_and_then_left_to_the_posture() -> None:
    rig = proceeding()
    rig.scripted.always(TOOL, SignedError(AcsErrorCode.INTERNAL_ERROR))
    assert rig.run(one_tool_call) == {"command": "ls"}
    assert rig.sent().count("toolCallRequest") == ClientSettings().timing.max_attempts


def stalling(rig: Rig, method: str, until: asyncio.Event) -> Callable[[bytes], Awaitable[bytes]]:
    """A wire on which one method is answered only once the event is set."""

    async def answer(body: bytes) -> bytes:
        raw = await rig.scripted.exchange(body, timeout_ms=0)
        if f'"method":"{method}"'.encode() in body:
            await until.wait()
        return raw

    return answer


def test_an_answer_that_comes_too_late_changes_nothing_and_is_recorded() -> None:
    """CORE-HON-10."""
    rig = proceeding()
    late = asyncio.Event()
    rig.answer = stalling(rig, TOOL, late)
    rig.scripted.next(TOOL, deny("no"))

    async def work(guardian: GuardianClient) -> None:
        assert await one_tool_call(guardian) == {"command": "ls"}
        late.set()
        while len(rig.records) < 2:
            await asyncio.sleep(0)

    rig.run(work)
    failed, told = (record.document for record in rig.records)
    assert failed["failure"] == {"kind": "timeout", "message": "no answer within 1000 ms"}
    assert (told["event"], told["received"], told["outcome"]) == ("late_decision", "deny", "observed")
    assert told["request_id"] == failed["request_id"]


@pytest.mark.parametrize("posture", ["proceed", "deny"])
def test_a_decision_that_comes_in_time_is_honored_whatever_the_posture(posture: str) -> None:
    """CORE-HON-05."""
    rig = Rig()
    rig.scripted.on_decision_failure = posture
    rig.scripted.next(TOOL, deny("no"), Decision(Disposition.ALLOW))
    with pytest.raises(StepDenied):
        rig.run(one_tool_call)
    assert rig.run(one_tool_call) == {"command": "ls"}
    assert rig.records == []


def test_a_decision_is_waited_for_as_long_as_was_negotiated() -> None:
    """CORE-HON-01: on a clock that jumps, the time that passed is the budget."""
    rig = proceeding()
    rig.scripted.default_timeout_ms = 7_000
    rig.answer = stalling(rig, TOOL, asyncio.Event())
    before = rig.clock.monotonic_ms()
    rig.run(one_tool_call)
    assert 7_000 <= rig.clock.monotonic_ms() - before < 8_000


def test_no_guardian_can_make_an_agent_wait_longer_than_the_agent_allows() -> None:
    rig = proceeding(timing=Timing(max_decision_ms=500))
    rig.scripted.default_timeout_ms = 10**9
    rig.answer = stalling(rig, TOOL, asyncio.Event())
    rig.run(one_tool_call)
    assert rig.records[0].document["failure"] == {"kind": "timeout", "message": "no answer within 500 ms"}


def test_a_step_too_large_to_be_shown_is_blocked_whatever_the_posture() -> None:
    rig = proceeding(max_payload_bytes=3_000)

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            with pytest.raises(StepDenied, match="more than 3000 bytes") as denied:
                await turn.tool_call_request("shell", {"command": "x" * 3_000})
            assert denied.value.reason_codes == ("step_not_sendable",)

    rig.run(work)


def test_a_step_the_standard_refuses_is_a_bug_and_is_not_sent() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            with pytest.raises(StepInvalid):
                await turn.tool_call_result("shell", "x", exit_status="maybe")  # type: ignore[arg-type]

    rig.run(work)
    assert "toolCallResult" not in rig.sent()


def test_a_step_whose_record_cannot_be_written_does_not_go_on() -> None:
    """CORE-HON-04."""
    rig = proceeding()
    rig.scripted.fail(TOOL, *[Fault.LOSE_REQUEST] * 3)

    def full(_: object) -> None:
        raise AuditFailed("the disk is full")

    rig.sink = full
    with pytest.raises(AuditFailed):
        rig.run(one_tool_call)


def modified_twice(rig: Rig) -> Callable[[bytes], Awaitable[bytes]]:
    """A wire whose Guardian sends content together with a redaction, properly signed."""

    async def answer(body: bytes) -> bytes:
        raw = await rig.scripted.exchange(body, timeout_ms=0)
        if f'"method":"{TOOL}"'.encode() not in body:
            return raw
        document = orjson.loads(raw)
        document["result"] |= {
            "decision": "modify",
            "reasoning": "both",
            "modifications": {"modified_content": "x", "redactions": [{"path": "/arguments/command/value"}]},
        }
        session_id = RequestEnvelope.of(orjson.loads(body)).session_id
        return orjson.dumps(sign_response(document, KEYRING.session_key("default", session_id)))

    return answer


def test_a_modification_of_two_meanings_is_a_denial_and_no_decision_failure() -> None:
    """CORE-MOD-03 and 04, although the answer breaks the response schema too."""
    rig = proceeding()
    rig.answer = modified_twice(rig)
    with pytest.raises(StepDenied) as denied:
        rig.run(one_tool_call)
    assert denied.value.reason_codes == ("modify_composition",)
    assert rig.audited() == [("modify_not_applied", "blocked")]
    assert rig.records[0].failure_event is None


def test_a_modification_is_what_the_agent_acts_with() -> None:
    rig = Rig()
    modified = Decision(Disposition.MODIFY, "safer", modifications={"parameter_overrides": {"command": "ls -l"}})
    rig.scripted.next(TOOL, modified)
    assert rig.run(one_tool_call) == {"command": "ls -l"}


def test_an_empty_policy_reference_makes_an_answer_malformed() -> None:
    """CORE-WIRE-19."""
    rig = proceeding()

    async def answer(body: bytes) -> bytes:
        raw = await rig.scripted.exchange(body, timeout_ms=0)
        if f'"method":"{TOOL}"'.encode() not in body:
            return raw
        document = orjson.loads(raw)
        member = "result" if "result" in document else "error"
        if member == "result":
            document["result"]["policy_references"] = [{"policy_id": ""}]
        session_id = RequestEnvelope.of(orjson.loads(body)).session_id
        return orjson.dumps(sign_response(document, KEYRING.session_key("default", session_id)))

    rig.answer = answer
    rig.settings = replace(rig.settings, timing=Timing(max_attempts=1))
    rig.run(one_tool_call)
    assert rig.records[0].document["failure"] == {
        "kind": "malformed_response",
        "message": "the answer is malformed",
    }


def test_a_method_the_guardian_does_not_evaluate_is_not_sent_but_recorded() -> None:
    """CORE-HS-04."""
    rig = Rig()
    rig.scripted.methods = rig.scripted.methods - {TOOL}
    assert rig.run(one_tool_call) == {"command": "ls"}
    assert "toolCallRequest" not in rig.sent()
    assert rig.audited() == [("not_evaluated", "proceeded")]


async def unreachable(_: bytes) -> bytes:
    """A wire with nobody at its end."""
    raise TransportFailed("nobody there")


def test_a_session_may_start_without_its_guardian_and_every_step_of_it_is_recorded() -> None:
    """CORE-HS-14 and 16."""
    rig = Rig(answer=unreachable)

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session(session_id=SESSION) as session, session.turn() as turn:
            assert not session.guarded
            assert await turn.call_tool("shell", {"command": "ls"}, echo) == "ls"

    rig.run(work)
    assert [record.document["method"] for record in rig.records] == [
        "handshake/hello",
        "steps/sessionStart",
        "steps/turnStart",
        "steps/toolCallRequest",
        "steps/toolCallResult",
        "steps/turnEnd",
        "steps/sessionEnd",
    ]
    assert rig.records[0].event == "unguarded_start"
    assert {record.document["posture_source"] for record in rig.records} == {"default"}
    assert {record.document["session_failure"]["kind"] for record in rig.records} == {"handshake_failed"}  # type: ignore[index]


def test_a_deployment_may_refuse_to_start_without_its_guardian() -> None:
    rig = Rig(ClientSettings(posture=PostureRules(startup="refuse")), answer=unreachable)
    with pytest.raises(SessionNotStarted):
        rig.run(one_tool_call)
    assert rig.audited() == [("session_not_started", "blocked")]
    assert rig.records[0].document["posture_source"] == "configured"


@pytest.mark.parametrize(
    "code", [AcsErrorCode.SESSION_REFUSED, AcsErrorCode.UNSUPPORTED_VERSION, AcsErrorCode.PROVENANCE_REQUIRED]
)
def test_a_refused_session_never_starts(code: AcsErrorCode) -> None:
    """CORE-HS-15: a refusal is a decision, and no posture applies."""
    rig = proceeding()
    rig.scripted.greeting = HandshakeRefused(code, "scripted", "no")
    with pytest.raises(SessionRefused):
        rig.run(one_tool_call)
    assert rig.audited() == [("session_not_started", "blocked")]


def test_a_failure_is_shown_to_the_trace_as_the_mapping_wants_it() -> None:
    """TRACE-08."""
    rig = proceeding()
    rig.scripted.fail(TOOL, *[Fault.LOSE_REQUEST] * 3)
    rig.run(one_tool_call)
    assert rig.records[0].failure_event == {
        "acs.failure.class": "unreachable",
        "acs.failure.posture": "fail_open",
        "acs.failure.reported_by": "observed_agent",
        "acs.failure.detail": "the Guardian failed in process: GuardianUnreachable",
    }
