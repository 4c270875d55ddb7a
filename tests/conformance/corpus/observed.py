"""Questions about the Observed Agent: the client library is put in the same place, and what it does is compared.

A Guardian is scripted to answer as the question says: silence, a page of a gateway, an error, or a decision.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

import orjson
from tests.conformance.corpus.answers import SIGNATURE_INVALID, Question, Said, agreed, allowed, as_uuid, denied
from tests.unit.client.rig import KEYRING, SESSION, Rig

from turnkeeper.acs import HANDSHAKE_METHOD, AcsErrorCode, ObservedSession, Verdict, build_error, sign_response
from turnkeeper.client import (
    Abilities,
    Allowed,
    AuditRecord,
    ClientSettings,
    GuardianClient,
    PostureRules,
    SessionNotStarted,
    StepDenied,
    TransportFailed,
)
from turnkeeper.client.answers import read_answer
from turnkeeper.client.posture import Judgement
from turnkeeper.client.posture import Question as Asked
from turnkeeper.client.verdicts import judge_verdict
from turnkeeper.testing.scripted_guardian import deny

TOOL_CALL: Final = "steps/toolCallRequest"
FAILURE_EVENT: Final = "acs.decision.failure"
GATEWAY_PAGE: Final = b"<html>504</html>"

_REFUSALS: Final = {code: code.name for code in AcsErrorCode}

Wire = Callable[[bytes], Awaitable[bytes]]


def _rig(negotiated: str, **settings: Any) -> Rig:
    rig = Rig(ClientSettings(**settings))
    rig.scripted.on_decision_failure = negotiated
    return rig


async def _tool_call(guardian: GuardianClient) -> bool:
    """Whether a tool runs."""
    async with guardian.session() as session, session.turn() as turn:
        try:
            async with turn.tool_call("shell", {"command": "ls"}) as call:
                await call.result("")
        except StepDenied:
            return False
    return True


def _broken(rig: Rig, method: str, fault: Wire) -> None:
    """From now on a method's requests get what `fault` makes of them."""

    async def answer(body: bytes) -> bytes:
        if orjson.loads(body)["method"] == method:
            return await fault(body)
        return await rig.scripted.exchange(body, timeout_ms=0)

    rig.answer = answer


async def _silent(_: bytes) -> bytes:
    return await asyncio.get_running_loop().create_future()


async def _unreachable(_: bytes) -> bytes:
    raise TransportFailed("nobody listens")


async def _page(_: bytes) -> bytes:
    return GATEWAY_PAGE


def _erring(code: int, data: Mapping[str, Any] | None = None) -> Wire:
    """Signed errors."""

    async def answer(body: bytes) -> bytes:
        request = orjson.loads(body)
        session_id = request["params"]["metadata"]["session_id"]
        document = build_error(request["id"], code, "error", dict(data or {"reason": "scripted"}))
        return orjson.dumps(sign_response(document, KEYRING.session_key("default", session_id)))

    return answer


_FAULTS: Final[Mapping[str, Wire]] = {
    "timeout": _silent,
    "unreachable": _unreachable,
    "malformed_response": _page,
    "guardian_error": _erring(AcsErrorCode.INTERNAL_ERROR),
}


def _failures(rig: Rig, method: str = TOOL_CALL) -> list[AuditRecord]:
    return [record for record in rig.records if record.document["method"] == method and record.failure_event]


def undecided(question: Question) -> Said:
    """A step that nobody decided, and what the deployment recorded of it."""
    return _compared(question["on_decision_failure"], "timeout", question["audit_events"])


def failed(question: Question) -> Said:
    """A decision failure of some class, and what the deployment recorded of it."""
    record = question["record"]
    failure = record["decision_failure"]
    return _compared(failure["posture"], failure["class"], record["deployment_audit_log"])


def _compared(posture: str, kind: str, told: list[Mapping[str, Any]]) -> Said:
    rig = _rig(posture)
    _broken(rig, TOOL_CALL, _FAULTS[kind])
    ran = rig.run(_tool_call)
    ours = [(cast("Any", one.failure_event)["acs.failure.class"], one.document["posture"]) for one in _failures(rig)]
    theirs = [(one.get("failure_class"), one.get("posture")) for one in told]
    return agreed(same=ours == theirs, why=f"the tool {'ran' if ran else 'did not run'}, and the log has {ours}")


def no_answer(question: Question) -> Said:
    """A body where a decision belongs."""
    session = ObservedSession.open(agent_id="agent", session_id=SESSION, keyring=KEYRING, key_id="default")
    request_id = as_uuid(str(question["request"]["request_id"]))
    read = read_answer(session, str(question["guardian_response"]["body"]).encode(), request_id)
    if isinstance(read, Verdict):
        return allowed("the answer holds")
    return denied(SIGNATURE_INVALID, "nothing that was received is signed by the Guardian")


def acted(question: Question) -> Said:
    """An action that left the reasoning, and the hooks that were sent for it."""
    rig = _rig("deny")
    rig.run(_tool_call)
    ours = {hook for hook in rig.sent() if hook == "toolCallRequest"}
    theirs = {str(hook).rpartition("/")[2] for hook in question["hooks_fired"]}
    return agreed(same=ours <= theirs, why=f"our client sends {', '.join(ours)} for any action")


def traced(question: Question) -> Said:
    """A decision that was received while nobody took the trace."""
    rig = _rig("deny")
    if question["guardian_decision"] == "deny":
        rig.scripted.always(TOOL_CALL, deny("no", "no"))
    ours = "allow" if rig.run(_tool_call) else "deny"
    return agreed(same=ours == question["observed_disposition"], why=f"our client: {ours}")


def started(question: Question) -> Said:
    """A handshake, what came back, whether the session started, and what the deployment recorded of it."""
    answer = question["handshake_answer"]
    rig = _rig("proceed", posture=PostureRules(startup=question["startup_posture"]))
    code = None if answer is None else int(answer.get("error", {}).get("code", 0))
    if question.get("server_hello") is None:
        _broken(rig, HANDSHAKE_METHOD, _silent if code is None else _erring(code))

    async def work(guardian: GuardianClient) -> bool:
        try:
            async with guardian.session():
                return True
        except SessionNotStarted:
            return False

    started = rig.run(work)
    ours = (started, any(record.event == "unguarded_start" for record in rig.records))
    log = question["deployment_audit_log"]
    theirs = (question["session_started"], any(entry.get("started_unguarded") for entry in log))
    refused = None if code is None or started else _REFUSALS.get(AcsErrorCode(code))
    return agreed(same=ours == theirs, why=f"started and recorded as unguarded: {ours}", code=refused)


def modified(question: Question) -> Said:
    """A MODIFY, what the agent made of it, and what it recorded."""
    ours = _judged(question)
    applied, theirs = question["applied"], question["deployment_audit_log"]
    outcome = _outcome(ours)
    same = (
        applied["outcome"] == outcome
        and applied.get("action_executed", outcome != "deny") == (outcome != "deny")
        and len(theirs) == len(ours.notes)
        and all(_tells(entry, note.applied, note.reason_codes) for entry, note in zip(theirs, ours.notes, strict=False))
        and not _shown_as_failure(question.get("trace", {}))
    )
    return agreed(same=same, why=f"{outcome}, recorded as {[note.reason_codes for note in ours.notes]}")


def _judged(question: Question) -> Judgement:
    params = question["request"]["params"]
    request_id, session_id = params["request_id"], as_uuid(params["metadata"]["session_id"])
    session = ObservedSession.open(agent_id="agent", session_id=session_id, keyring=KEYRING, key_id="default")
    response = sign_response(question["response"] | {"id": request_id}, session.key)
    verdict = read_answer(session, orjson.dumps(response), request_id)
    if not isinstance(verdict, Verdict):
        raise TypeError(f"the answer is no decision: {verdict}")
    asked = Asked(question["request"]["method"], params["payload"], request_id, session_id)
    return judge_verdict(asked, verdict, Abilities(modify=question["observed_agent"]["modify_capable"]), 0)


def _outcome(ours: Judgement) -> str:
    if not isinstance(ours.outcome, Allowed):
        return "deny"
    if any(note.effect == "original_kept" for note in ours.notes):
        return "original_kept"
    return "proceed_modified" if ours.outcome.modified else "proceed_original"


def _tells(entry: Mapping[str, Any], applied: str | None, codes: tuple[str, ...]) -> bool:
    return entry.get("applied") == applied and set(codes) <= set(entry.get("reason_codes", ()))


def _shown_as_failure(trace: Mapping[str, Any]) -> bool:
    """Our client makes a failure event of nothing that is no decision failure."""
    spans = trace.get("observed_agent", [])
    return any(event["name"] == FAILURE_EVENT for span in spans for event in span.get("events", []))


def detailed(question: Question) -> Said:
    """The detail of a failure event, beside the error that it is about."""
    record = question["record"]
    error = record["guardian_error"]
    rig = _rig("proceed")
    _broken(rig, TOOL_CALL, _erring(int(error["code"]), error["data"]))
    rig.run(_tool_call)
    (event,) = [cast("Mapping[str, Any]", one.failure_event) for one in _failures(rig)]
    theirs = record["event"]["attributes"].get("acs.failure.detail", "")
    leaks = (_copies(event["acs.failure.detail"], error["data"]), _copies(theirs, error["data"]))
    return agreed(same=leaks[0] == leaks[1], why=f"our detail: {event['acs.failure.detail']}")


def _copies(detail: str, data: object) -> bool:
    return any(text and text in detail for text in [json.dumps(data), *_texts(data)])


def _texts(node: Any) -> list[str]:
    if isinstance(node, str):
        return [node]
    nodes: list[Any] = []
    if isinstance(node, dict | list):
        nodes = list(cast("dict[str, Any]", node).values()) if isinstance(node, dict) else cast("list[Any]", node)
    return [text for inner in nodes for text in _texts(inner)]


def validated(question: Question) -> Said:
    """An answer that an agent took, or refused, for its shape."""
    result = question["response"]["result"]
    session = ObservedSession.open(agent_id="agent", session_id=SESSION, keyring=KEYRING, key_id="default")
    response = sign_response(question["response"] | {"id": result["request_id"]}, session.key)
    read = read_answer(session, orjson.dumps(response), result["request_id"])
    ours = "accepted" if isinstance(read, Verdict) else "rejected"
    return agreed(same=ours == question["record"]["observed_agent_validation"], why=f"our client: {ours}")
