"""Every event type written so far (contract 10.2 to 10.4): one function per type, one closed schema per type.

Pure. A function takes what is known and gives the event a transaction will number; who may say it is fixed here, so
that no caller can state a source. Names ending in `_json` are JSON texts that go in token for token.
The terminal events have their own author (`turns/results.py`), because their data is rendered from a checked ending.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias

import orjson

from turnkeeper.clock import render_time
from turnkeeper.events.administration import ADMINISTRATION_TYPES
from turnkeeper.events.budgets import BUDGET_TYPES
from turnkeeper.events.envelope import EventSource, NewEvent
from turnkeeper.events.files import ARTIFACT_CREATED
from turnkeeper.events.pauses import PAUSE_TYPES
from turnkeeper.events.skills import SKILL_TYPES
from turnkeeper.events.subagents import SUBAGENT_TYPES
from turnkeeper.events.texts import EPHEMERAL_TYPES

TERMINAL_TYPES: Final = ("turn.completed", "turn.failed", "turn.canceled")

EVENT_TYPES: Final = (
    "session.created",
    "session.closed",
    "session.updated",
    "session.busy",
    "session.idle",
    "session.paused",
    "turn.queued",
    "turn.starting",
    "turn.started",
    "turn.retrying",
    *PAUSE_TYPES,
    "turn.cancel_requested",
    "turn.result_submitted",
    *TERMINAL_TYPES,
    "message.received",
    "message.started",
    "message.completed",
    "tool.requested",
    "tool.decided",
    "tool.started",
    "tool.completed",
    *SUBAGENT_TYPES,
    *SKILL_TYPES,
    ARTIFACT_CREATED,
    "context.compacted",
    "model.called",
    "model.retrying",
    "sandbox.ready",
    "sandbox.lost",
    "sandbox.suspended",
    "sandbox.resumed",
    "sandbox.released",
    "sandbox.egress_denied",
    *BUDGET_TYPES,
    "usage.mismatch",
    "report.normalized",
    "guardian.unavailable",
    "guardian.proceeded",
    "guardian.dead_letter",
    *ADMINISTRATION_TYPES,
)

MAX_SUBMISSION_ERRORS: Final = 20
MAX_INLINE_BYTES: Final = 16_384
"""Longer tool input and output is cut, and says so (`truncated`)."""

ToolDecision: TypeAlias = Literal["allow", "deny", "modify", "ask", "defer"]
DecidedBy: TypeAlias = Literal["guardian", "agent_policy", "approval", "rule"]
ToolEnd: TypeAlias = Literal["ok", "error", "denied", "canceled", "timeout", "unknown"]
LossReason: TypeAlias = Literal["lease_expired", "oom", "killed", "host_lost"]


@cache
def event_schema_text(event_type: str) -> bytes:
    """The schema of an event type's `data`, as shipped. Raises `KeyError` for a type that is not written."""
    if event_type not in EVENT_TYPES and event_type not in EPHEMERAL_TYPES:
        raise KeyError(event_type)
    return files("turnkeeper.events").joinpath("schemas", f"{event_type}.json").read_bytes()


def session_created(
    *, session_id: str, agent_id: str, agent_version: int, metadata_json: str, ephemeral: bool = False
) -> NewEvent:
    """A session was opened."""
    data: dict[str, object] = {
        "session_id": session_id,
        "agent_id": agent_id,
        "agent_version": agent_version,
        "workspace": {"mode": "ephemeral" if ephemeral else "persistent"},
        "metadata": orjson.Fragment(metadata_json),
    }
    return _event("session.created", data)


def session_updated(*, session_id: str, changed: Sequence[str]) -> NewEvent:
    """An app changed what it says about a session, or how long it is kept."""
    return _event("session.updated", {"session_id": session_id, "changed": list(changed)})


def session_activity(
    *, session_id: str, activity: Literal["idle", "busy", "paused"], active_turn_id: str | None, queue_depth: int
) -> NewEvent:
    """An open session does something else from now on."""
    data: dict[str, object] = {
        "session_id": session_id,
        "active_turn_id": active_turn_id,
        "queue_depth": queue_depth,
    }
    return NewEvent(f"session.{activity}", "platform", orjson.dumps(data).decode())


def session_closed(*, session_id: str, reason: str) -> NewEvent:
    """A session was closed; `reason` is a word of ACS sessionEnd."""
    return _event("session.closed", {"session_id": session_id, "reason": reason})


def turn_queued(
    *,
    turn_id: str,
    idempotency_key: str | None,
    metadata_json: str,
    position: int,
    blocked_by: Mapping[str, object] | None,
    on_busy: str,
    has_output_schema: bool,
    retry_of: str | None = None,
    budget: Mapping[str, object] | None,
) -> NewEvent:
    """A turn was accepted. `blocked_by` is what it waits for, `position` counts the turns before it."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "idempotency_key": idempotency_key,
        "metadata": orjson.Fragment(metadata_json),
        "status": "queued",
        "position": position,
        "blocked_by": blocked_by,
        "on_busy": on_busy,
        "has_output_schema": has_output_schema,
        "budget": budget,
        "retry_of": retry_of,
    }
    return _event("turn.queued", data)


def turn_starting(*, turn_id: str, queue_ms: int, try_number: int, sandbox_kind: str) -> NewEvent:
    """A turn left the queue for a sandbox. Written once, with its first try."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "status": "starting",
        "queue_ms": queue_ms,
        "try": try_number,
        "sandbox_kind": sandbox_kind,
    }
    return _event("turn.starting", data)


def turn_started(*, turn_id: str, attempt: int, sandbox_id: str, start_ms: int, warm: bool) -> NewEvent:
    """Agent code runs; `attempt` is the one that begins here."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "status": "running",
        "sandbox_id": sandbox_id,
        "start_ms": start_ms,
        "warm": warm,
    }
    return _event("turn.started", data, source="sandbox", attempt=attempt)


def turn_retrying(*, turn_id: str, failed_attempt: int, delay_ms: int) -> NewEvent:
    """An attempt was lost with its sandbox; the next one begins after `delay_ms` at the earliest."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "status": "starting",
        "failed_attempt": failed_attempt,
        "reason": "sandbox_lost",
        "delay_ms": delay_ms,
    }
    return _event("turn.retrying", data, attempt=failed_attempt)


def turn_cancel_requested(
    *, turn_id: str, mode: str, canceled_by: Mapping[str, str | None], deadline: datetime, attempt: int | None
) -> NewEvent:
    """A turn was asked to stop; after `deadline` its sandbox is killed."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "mode": mode,
        "canceled_by": canceled_by,
        "deadline": render_time(deadline),
    }
    return _event("turn.cancel_requested", data, attempt=attempt)


def turn_result_submitted(
    *,
    turn_id: str,
    attempt: int,
    submission: int,
    valid: bool,
    size_bytes: int,
    errors: Sequence[Mapping[str, str]],
    attempts_left: int,
) -> NewEvent:
    """The agent submitted a value. The value itself is not here: nobody has allowed it yet."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "submission": submission,
        "valid": valid,
        "bytes": size_bytes,
        "errors": [dict(error) for error in errors[:MAX_SUBMISSION_ERRORS]],
        "attempts_left": attempts_left,
    }
    return _event("turn.result_submitted", data, source="sandbox", attempt=attempt)


def turn_ended(*, event_type: str, turn_id: str, source: EventSource, attempt: int | None, data: str) -> NewEvent:
    """A terminal event around `data`, which a checked ending was rendered to."""
    return NewEvent(event_type, source, data, turn_id, attempt)


def message_received(*, turn_id: str, message_id: str, parts: Sequence[Mapping[str, object]]) -> NewEvent:
    """The turn's input, once the Guardian has allowed it."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "message_id": message_id,
        "role": "user",
        "kind": "input",
        "parts": [dict(part) for part in parts],
    }
    return _event("message.received", data)


def message_started(*, turn_id: str, attempt: int, message_id: str) -> NewEvent:
    """The agent has begun to write a message."""
    data: dict[str, object] = {"turn_id": turn_id, "message_id": message_id, "role": "agent"}
    return _event("message.started", data, source="sandbox", attempt=attempt)


def message_completed(*, turn_id: str, attempt: int, message_id: str, text: str, final: bool) -> NewEvent:
    """A text of the agent, once the Guardian has allowed it."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "message_id": message_id,
        "role": "agent",
        "text": text,
        "final": final,
    }
    return _event("message.completed", data, source="sandbox", attempt=attempt)


def tool_requested(
    *,
    turn_id: str,
    attempt: int,
    tool_call_id: str,
    name: str,
    input_json: str,
    input_hash: str,
    truncated: bool = False,
    kind: Literal["builtin", "client", "mcp", "subagent"] = "builtin",
    server: str | None = None,
) -> NewEvent:
    """The agent wants to call a tool. With `truncated` the input is a string holding the beginning of its text."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "tool_call_id": tool_call_id,
        "name": name,
        "kind": kind,
        "server": server,
        "input": orjson.Fragment(input_json),
        "input_hash": input_hash,
        "truncated": truncated,
    }
    return _event("tool.requested", data, source="sandbox", attempt=attempt)


def tool_decided(
    *,
    turn_id: str,
    attempt: int,
    tool_call_id: str,
    decision: ToolDecision,
    decided_by: DecidedBy,
    reasons: Sequence[str],
    request_id: str | None,
    modified_input_json: str | None = None,
) -> NewEvent:
    """What was decided about a tool call; `request_id` is the ACS step's."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "tool_call_id": tool_call_id,
        "decision": decision,
        "decided_by": decided_by,
        "reasons": list(reasons),
        "request_id": request_id,
        "modified_input": None if modified_input_json is None else orjson.Fragment(modified_input_json),
    }
    return _event("tool.decided", data, attempt=attempt)


def tool_started(*, turn_id: str, attempt: int, tool_call_id: str) -> NewEvent:
    """A tool runs."""
    return _event("tool.started", {"turn_id": turn_id, "tool_call_id": tool_call_id}, source="sandbox", attempt=attempt)


def tool_completed(
    *,
    turn_id: str,
    attempt: int,
    tool_call_id: str,
    status: ToolEnd,
    output: str,
    modified: bool,
    truncated: bool,
    duration_ms: int,
    artifact_id: str | None = None,
    source: EventSource = "sandbox",
) -> NewEvent:
    """A tool call is over; `output` is what the agent got, or its beginning where an artifact has all of it.

    The platform says so for denials and lost sandboxes.
    """
    data: dict[str, object] = {
        "turn_id": turn_id,
        "tool_call_id": tool_call_id,
        "status": status,
        "output": output,
        "modified": modified,
        "truncated": truncated,
        "artifact_id": artifact_id,
        "duration_ms": duration_ms,
    }
    return _event("tool.completed", data, source=source, attempt=attempt)


def model_called(
    *,
    turn_id: str,
    attempt: int | None,
    call: int,
    provider: str,
    model: str,
    latency_ms: int,
    first_token_ms: int | None,
    finish_reason: str | None,
    usage: Mapping[str, object],
    retries: int,
) -> NewEvent:
    """A model call was settled; `usage` is one `by_model` entry of usage.json."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "call": call,
        "provider": provider,
        "model": model,
        "latency_ms": latency_ms,
        "first_token_ms": first_token_ms,
        "finish_reason": finish_reason,
        "usage": usage,
        "retries": retries,
    }
    return _event("model.called", data, attempt=attempt)


def model_retrying(
    *, turn_id: str, attempt: int | None, provider: str, model: str, status: int | None, delay_ms: int, try_number: int
) -> NewEvent:
    """A provider did not answer; the call is sent again after `delay_ms`."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "provider": provider,
        "model": model,
        "status": status,
        "delay_ms": delay_ms,
        "try": try_number,
    }
    return _event("model.retrying", data, attempt=attempt)


def sandbox_ready(*, turn_id: str | None, sandbox_id: str, kind: str, start_ms: int, warm: bool) -> NewEvent:
    """A sandbox waits for its turn."""
    data: dict[str, object] = {
        "sandbox_id": sandbox_id,
        "kind": kind,
        "image_digest": None,
        "start_ms": start_ms,
        "warm": warm,
    }
    return _event("sandbox.ready", data, turn_id=turn_id)


def sandbox_lost(
    *, turn_id: str | None, sandbox_id: str, reason: LossReason, last_beat_at: datetime | None = None
) -> NewEvent:
    """A sandbox went away without being told to."""
    beat = None if last_beat_at is None else render_time(last_beat_at)
    return _event("sandbox.lost", {"sandbox_id": sandbox_id, "reason": reason, "last_beat_at": beat}, turn_id=turn_id)


def sandbox_suspended(*, turn_id: str, sandbox_id: str) -> NewEvent:
    """Every process of the sandbox stands still while its turn waits."""
    return _event("sandbox.suspended", {"sandbox_id": sandbox_id, "reason": "pause"}, turn_id=turn_id)


def sandbox_resumed(*, turn_id: str, sandbox_id: str, resume_ms: int) -> NewEvent:
    """They go on. `resume_ms` is what that took."""
    return _event("sandbox.resumed", {"sandbox_id": sandbox_id, "resume_ms": resume_ms}, turn_id=turn_id)


def sandbox_released(*, turn_id: str | None, sandbox_id: str, lifetime_ms: int) -> NewEvent:
    """Every process of the sandbox is gone."""
    return _event("sandbox.released", {"sandbox_id": sandbox_id, "lifetime_ms": lifetime_ms}, turn_id=turn_id)


def sandbox_egress_denied(*, turn_id: str, sandbox_id: str, host: str, port: int, count: int) -> NewEvent:
    """Something in a sandbox wanted to reach a host that it may not, `count` times since this was last said."""
    data: dict[str, object] = {
        "sandbox_id": sandbox_id,
        "turn_id": turn_id,
        "host": host,
        "port": port,
        "count": count,
    }
    return _event("sandbox.egress_denied", data, turn_id=turn_id)


def usage_mismatch(
    *, turn_id: str, attempt: int | None, reported: Mapping[str, object], ledger: Mapping[str, object]
) -> NewEvent:
    """A harness counted otherwise than the ledger, which is what the turn is charged."""
    return _event("usage.mismatch", {"turn_id": turn_id, "reported": reported, "ledger": ledger}, attempt=attempt)


def report_normalized(*, turn_id: str, attempt: int | None, fields: Sequence[str], reason: str) -> NewEvent:
    """A report was not taken as it came."""
    return _event("report.normalized", {"turn_id": turn_id, "fields": list(fields), "reason": reason}, attempt=attempt)


def guardian_unavailable(*, turn_id: str | None, hook: str, since: datetime) -> NewEvent:
    """No decision came for a step."""
    data: dict[str, object] = {"turn_id": turn_id, "hook": hook, "since": render_time(since)}
    return _event("guardian.unavailable", data, turn_id=turn_id)


def context_compacted(*, turn_id: str, attempt: int, before_tokens: int, after_tokens: int) -> NewEvent:
    """An agent's context was summarized: the tokens its model read for that, and those of the summary it wrote.

    The summary is the message just before.
    """
    data: dict[str, object] = {"turn_id": turn_id, "before_tokens": before_tokens, "after_tokens": after_tokens}
    return _event("context.compacted", data, source="sandbox", attempt=attempt)


def guardian_proceeded(*, turn_id: str | None, hook: str, request_id: str) -> NewEvent:
    """A step went on without a decision, because the operator said so."""
    data: dict[str, object] = {"turn_id": turn_id, "hook": hook, "request_id": request_id}
    return _event("guardian.proceeded", data, turn_id=turn_id)


def guardian_dead_letter(
    *, turn_id: str | None, hook: str, request_id: str, error_code: int | None, reason: str | None
) -> NewEvent:
    """A Guardian refused a step for good; somebody has to look at it."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "hook": hook,
        "request_id": request_id,
        "error_code": error_code,
        "reason": reason,
    }
    return _event("guardian.dead_letter", data, turn_id=turn_id)


def _event(
    event_type: str,
    data: Mapping[str, object],
    *,
    source: EventSource = "platform",
    turn_id: str | None = None,
    attempt: int | None = None,
) -> NewEvent:
    owner = turn_id if turn_id is not None else data.get("turn_id")
    return NewEvent(event_type, source, orjson.dumps(data).decode(), None if owner is None else str(owner), attempt)
