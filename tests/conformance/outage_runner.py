"""Judges a host's step during an outage by what this client does in the same outage.

`python tests/conformance/outage_runner.py CASE.json --json` is a verifier as `agent-evidence-vectors-acs-outage` runs
it. The step is taken again: the client gets the session's terms (or none) and the environment of the case, and asks a
Guardian whose port is closed. What the case recorded has to agree with what came out. Names of cases are never read.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from uuid import NAMESPACE_URL, uuid4, uuid5

import orjson

from turnkeeper.acs import Keyring, build_result, sign_response
from turnkeeper.client import (
    Allowed,
    AuditRecord,
    GuardianClient,
    HttpTransport,
    Identity,
    MemoryTerms,
    SavedTerms,
)
from turnkeeper.client.steps import tool_call_request

EXITS: Final = {"supported": 0, "contradicted": 1, "not_established": 1, "no_verdict": 2}
KEYRING: Final = Keyring({"default": b"outage" * 8})

Answer = tuple[str, str]
Step = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Enacted:
    """What this client did in an outage: its decision, what its host then did, and what was recorded of the step."""

    allowed: bool
    executed: int
    record: AuditRecord

    @property
    def decision(self) -> str:
        """In the words of a hook."""
        return "allow" if self.allowed else "deny"

    def as_step(self, step: Step) -> dict[str, object]:
        """The same step as a host of ours would have reported it."""
        return {
            **step,
            "hook_decision": self.decision,
            "marker_delta": self.executed,
            "audit": [{**self.record.document, "session_id": step["session_id"]}],
            "otlp": [_exported(self.record)],
        }


async def enact(step: Step) -> Enacted:
    """Takes the step of a case again. The environment is the process's own by then."""
    session_id = str(uuid5(NAMESPACE_URL, str(step["session_id"])))
    records: list[AuditRecord] = []
    executed = 0
    client = GuardianClient(
        HttpTransport(f"http://127.0.0.1:{_closed_port()}/acs"),
        Identity("host", KEYRING),
        audit=records.append,
        terms=_saved(session_id, step.get("session_cache")),
    )
    async with client as guardian:
        session = await guardian.attach(session_id)
        outcome = await session.ask(tool_call_request(session.marks(), "marker", {"by": 1}))
    if isinstance(outcome, Allowed):
        executed += 1
    (record,) = [found for found in records if found.document["method"] == "steps/toolCallRequest"]
    return Enacted(isinstance(outcome, Allowed), executed, record)


def judge(case: object) -> Answer:
    """The decision on a case, and its reason: the first thing that disagrees."""
    step = _step_of(case)
    if step is None:
        return "no_verdict", "malformed_step"
    os.environ.update(_wishes(step))
    ours = asyncio.run(enact(step))
    disagreement = _decided(step, ours) or _done(step, ours) or _audited(step, ours) or _shown(step, ours)
    if disagreement is not None:
        return disagreement
    if ours.record.document["posture_source"] == "default":
        return "supported", f"startup_default_{ours.record.document['posture']}_audited"
    return "supported", f"cached_{ours.record.document['posture']}_applied_and_audited"


def _step_of(case: object) -> Step | None:
    step = cast("Step", case).get("step") if isinstance(case, dict) else None
    if not isinstance(step, dict):
        return None
    members = cast("Step", step)
    readable = (
        members.get("guardian") == "unreachable"
        and members.get("hook_decision") in ("allow", "deny")
        and isinstance(members.get("marker_delta"), int)
        and isinstance(members.get("session_id"), str)
    )
    return members if readable else None


def _wishes(step: Step) -> Mapping[str, str]:
    return cast("Mapping[str, str]", step.get("hook_env") or {})


def _decided(step: Step, ours: Enacted) -> Answer | None:
    if step["hook_decision"] == ours.decision:
        return None
    wished = _wishes(step).get("ACS_ON_DECISION_FAILURE")
    obeyed = "deny" if wished == "deny" else "allow"
    if ours.record.document["posture_source"] == "default" and wished and step["hook_decision"] == obeyed:
        return "contradicted", "unnegotiated_posture_applied"
    return "contradicted", "posture_not_applied"


def _done(step: Step, ours: Enacted) -> Answer | None:
    if step["marker_delta"] == ours.executed:
        return None
    return (
        ("not_established", "allowed_step_not_executed") if ours.allowed else ("contradicted", "blocked_step_executed")
    )


def _audited(step: Step, ours: Enacted) -> Answer | None:
    records = [found for found in step.get("audit") or () if found.get("session_id") == step["session_id"]]
    if len(records) != 1:
        return "contradicted", "outage_step_not_audited"
    told, document = cast("Step", records[0]), ours.record.document
    for member, reason in (
        ("posture", "audit_posture_mismatch"),
        ("posture_source", "posture_source_misreported"),
        ("outcome", "audit_outcome_mismatch"),
    ):
        if told.get(member) != document[member]:
            return "contradicted", reason
    owed = cast("Mapping[str, object]", document.get("session_failure", {})).get("kind")
    shown = cast("Step", told.get("session_failure") or {}).get("kind")
    if owed is not None and shown != owed:
        return "contradicted", "unguarded_startup_not_audited"
    return None


def _shown(step: Step, ours: Enacted) -> Answer | None:
    (told,) = [found for found in step["audit"] if found.get("session_id") == step["session_id"]]
    events = _events(step.get("otlp") or [], str(told.get("rpc_id")))
    if not events:
        return "contradicted", "audit_not_exported"
    owed = ours.record.failure_event or {}
    for attribute, reason in (
        ("acs.failure.class", "failure_class_mismatch"),
        ("acs.failure.posture", "failure_posture_mismatch"),
        ("acs.failure.reported_by", "reporter_mismatch"),
    ):
        if events[0].get(attribute) != owed[attribute]:
            return "contradicted", reason
    return None


def _events(batches: list[Any], request_id: str) -> list[dict[str, object]]:
    spans = [
        span
        for batch in batches
        for resource in batch.get("resourceSpans", [])
        for scope in resource.get("scopeSpans", [])
        for span in scope.get("spans", [])
        if _attributes(span.get("attributes", [])).get("acs.request_id") == request_id
    ]
    return [
        _attributes(event.get("attributes", []))
        for span in spans
        for event in span.get("events", [])
        if event.get("name") == "acs.decision.failure"
    ]


def _attributes(items: list[Mapping[str, Any]]) -> dict[str, object]:
    return {str(item["key"]): next(iter(item["value"].values()), None) for item in items}


def _exported(record: AuditRecord) -> dict[str, object]:
    """The record as a trace would carry it."""

    def texts(members: Mapping[str, object]) -> list[object]:
        return [{"key": key, "value": {"stringValue": str(value)}} for key, value in members.items()]

    span = {
        "attributes": texts({"acs.request_id": record.document["request_id"]}),
        "events": [{"name": "acs.decision.failure", "attributes": texts(record.failure_event or {})}],
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def _saved(session_id: str, terms: object) -> MemoryTerms:
    """The terms of a case, signed as its Guardian had signed them."""
    saved = MemoryTerms()
    if isinstance(terms, dict):
        request_id = str(uuid4())
        answer = build_result(request_id, cast("Mapping[str, object]", terms))
        signed = sign_response(answer, KEYRING.session_key("default", session_id))
        saved.save(session_id, SavedTerms(request_id, orjson.dumps(signed)))
    return saved


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(arguments: list[str]) -> int:
    """Prints the answer on a case and returns its exit code."""
    decision, reason = judge(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    print(json.dumps({"decision": decision, "reason": reason}))
    return EXITS[decision]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
