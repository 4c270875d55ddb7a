from datetime import UTC, datetime
from functools import cache

import jsonschema_rs
import orjson
import pytest
from tests.unit.turns.samples import SESSION_ID, TURN_ID, a_cancel, a_failure, a_turn, an_ending
from tests.unit.turns.test_usage import CALL

from turnkeeper.events import administration, budgets, catalogue, files, pauses, skills, subagents, texts
from turnkeeper.events.catalogue import EPHEMERAL_TYPES, EVENT_TYPES, MAX_SUBMISSION_ERRORS, event_schema_text
from turnkeeper.events.envelope import NewEvent
from turnkeeper.events.founding import USAGE_URI, schema_text
from turnkeeper.turns.model import StopReason, Usage
from turnkeeper.turns.results import render_terminal
from turnkeeper.turns.usage import model_document, sum_usage, usage_document

AT = datetime(2026, 12, 1, 12, tzinfo=UTC)
SBX, MSG, TCL, APR = (f"{prefix}_01KBC3Y5M8Q2V7R9T4W6X1Z0AB" for prefix in ("sbx", "msg", "tcl", "apr"))
BUD = "bud_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
WHE, WHD, EVT, KEY = (f"{prefix}_01KBC3Y5M8Q2V7R9T4W6X1Z0AB" for prefix in ("whe", "whd", "evt", "key"))
SES, AGENT = "ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB", "agt_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
FILE_ID, ARTIFACT_ID = (f"{prefix}_01KBC3Y5M8Q2V7R9T4W6X1Z0AB" for prefix in ("fil", "art"))
THR = "thr_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
SHA256 = "0" * 64
REQUEST = "01a22d15-b1da-60d6-a182-be3d96e05dfc"
ERROR = {"instance_path": "/a", "schema_path": "/type", "keyword": "type", "message": "is not a string"}
USAGE = usage_document(sum_usage([CALL], tool_calls=0, sandbox_ms=0))


def ended(event_type: str, data: str) -> NewEvent:
    return catalogue.turn_ended(event_type=event_type, turn_id=TURN_ID, source="sandbox", attempt=1, data=data)


FAILURE = a_failure(StopReason.TIMEOUT, retryable=True, happening="time_over")
EVENTS = [
    catalogue.session_created(session_id=SESSION_ID, agent_id=AGENT, agent_version=1, metadata_json='{"b":1,"a":2.0}'),
    catalogue.session_closed(session_id=SESSION_ID, reason="cancelled"),
    catalogue.session_updated(session_id=SESSION_ID, changed=["title", "retention_days"]),
    administration.session_deleted(session_id=SESSION_ID),
    *(administration.api_key_changed(name, key_id=KEY, actor_id=KEY) for name in administration.KEY_TYPES),
    administration.api_key_changed("api_key.created", key_id=KEY, actor_id=None),
    *(files.file_changed(name, file_id=FILE_ID, size_bytes=0, sha256=SHA256) for name in files.FILE_TYPES[:2]),
    files.artifact_deleted(artifact_id=ARTIFACT_ID, size_bytes=5, sha256=SHA256),
    files.artifact_created(
        turn_id=TURN_ID,
        attempt=1,
        artifact_id=ARTIFACT_ID,
        name="a.txt",
        path=None,
        media_type="text/plain",
        size_bytes=5,
        sha256=SHA256,
        kind="tool_output",
        content="hello",
    ),
    catalogue.turn_queued(
        turn_id=TURN_ID,
        idempotency_key="k",
        metadata_json="{}",
        position=0,
        blocked_by=None,
        on_busy="enqueue",
        has_output_schema=False,
        budget=None,
    ),
    catalogue.turn_queued(
        turn_id=TURN_ID,
        idempotency_key=None,
        metadata_json="{}",
        position=3,
        blocked_by={"turn_id": TURN_ID, "reason": "paused", "approval_ids": ["apr_1"]},
        on_busy="interrupt",
        has_output_schema=True,
        budget={"max_model_calls": 3},
    ),
    subagents.subagent_started(turn_id=TURN_ID, attempt=1, thread_id=THR, name="reader", tool_call_id=TCL),
    subagents.subagent_ended(turn_id=TURN_ID, attempt=1, thread_id=THR, outcome="budget_reached", usage=USAGE),
    skills.skill_loaded(turn_id=TURN_ID, attempt=1, name="folding", version=1, sha256="0" * 64),
    catalogue.session_activity(session_id=SES, activity="busy", active_turn_id=TURN_ID, queue_depth=1),
    catalogue.session_activity(session_id=SES, activity="idle", active_turn_id=None, queue_depth=0),
    catalogue.session_activity(session_id=SES, activity="paused", active_turn_id=TURN_ID, queue_depth=0),
    catalogue.message_started(turn_id=TURN_ID, attempt=1, message_id=MSG),
    catalogue.turn_starting(turn_id=TURN_ID, queue_ms=1, try_number=1, sandbox_kind="bwrap"),
    catalogue.turn_retrying(turn_id=TURN_ID, failed_attempt=1, delay_ms=1_000),
    catalogue.model_retrying(turn_id=TURN_ID, attempt=1, provider="p", model="m", status=503, delay_ms=5, try_number=1),
    catalogue.turn_started(turn_id=TURN_ID, attempt=1, sandbox_id=SBX, start_ms=5, warm=True),
    catalogue.turn_cancel_requested(
        turn_id=TURN_ID,
        mode="graceful",
        canceled_by={"type": "api_key", "id": None, "reason": None},
        deadline=AT,
        attempt=None,
    ),
    catalogue.turn_result_submitted(
        turn_id=TURN_ID, attempt=1, submission=1, valid=False, size_bytes=2, errors=[ERROR] * 30, attempts_left=2
    ),
    ended("turn.completed", render_terminal(a_turn(), an_ending(), Usage())),
    ended("turn.failed", render_terminal(a_turn(), FAILURE, Usage())),
    ended("turn.canceled", render_terminal(a_turn(), a_cancel(), Usage())),
    catalogue.message_received(turn_id=TURN_ID, message_id=MSG, parts=[{"type": "text", "text": "hi"}]),
    catalogue.message_completed(turn_id=TURN_ID, attempt=1, message_id=MSG, text="hi\0", final=True),
    catalogue.tool_requested(
        turn_id=TURN_ID, attempt=1, tool_call_id=TCL, name="shell", input_json='{"a":1.0}', input_hash="0" * 64
    ),
    catalogue.tool_decided(
        turn_id=TURN_ID,
        attempt=1,
        tool_call_id=TCL,
        decision="deny",
        decided_by="guardian",
        reasons=["no"],
        request_id=REQUEST,
    ),
    catalogue.tool_decided(
        turn_id=TURN_ID,
        attempt=1,
        tool_call_id=TCL,
        decision="modify",
        decided_by="guardian",
        reasons=[],
        request_id=None,
        modified_input_json="{}",
    ),
    catalogue.tool_started(turn_id=TURN_ID, attempt=1, tool_call_id=TCL),
    catalogue.tool_completed(
        turn_id=TURN_ID,
        attempt=1,
        tool_call_id=TCL,
        status="unknown",
        output="",
        modified=False,
        truncated=False,
        duration_ms=0,
        source="platform",
    ),
    catalogue.model_called(
        turn_id=TURN_ID,
        attempt=1,
        call=1,
        provider="stub",
        model="m",
        latency_ms=1,
        first_token_ms=None,
        finish_reason="stop",
        usage=model_document(sum_usage([CALL], tool_calls=0, sandbox_ms=0).by_model[0]),
        retries=0,
    ),
    catalogue.sandbox_ready(turn_id=TURN_ID, sandbox_id=SBX, kind="bwrap", start_ms=5, warm=False),
    catalogue.sandbox_lost(turn_id=TURN_ID, sandbox_id=SBX, reason="lease_expired", last_beat_at=AT),
    catalogue.sandbox_lost(turn_id=None, sandbox_id=SBX, reason="killed"),
    catalogue.sandbox_suspended(turn_id=TURN_ID, sandbox_id=SBX),
    catalogue.sandbox_resumed(turn_id=TURN_ID, sandbox_id=SBX, resume_ms=0),
    catalogue.sandbox_released(turn_id=TURN_ID, sandbox_id=SBX, lifetime_ms=9),
    catalogue.context_compacted(turn_id=TURN_ID, attempt=1, before_tokens=9, after_tokens=1),
    catalogue.sandbox_egress_denied(turn_id=TURN_ID, sandbox_id=SBX, host="evil.test", port=443, count=1),
    budgets.budget_reached(
        turn_id=TURN_ID,
        attempt=None,
        scope="session",
        scope_id=SESSION_ID,
        dimension="max_total_tokens",
        limit=9,
        used=9,
    ),
    budgets.budget_reached(
        turn_id=TURN_ID,
        attempt=1,
        scope="project",
        scope_id="prj_1",
        dimension="max_cost",
        limit={"amount": "1.5", "currency": "USD"},
        used={"amount": "1.6", "currency": "USD"},
        budget_id=BUD,
        resets_at=AT,
    ),
    budgets.budget_warning(
        turn_id=TURN_ID,
        attempt=1,
        budget_id=BUD,
        scope="session",
        scope_id=SESSION_ID,
        dimension="max_tool_calls",
        limit=10,
        used=8,
        ratio=0.8,
    ),
    budgets.budget_updated(budget_id=BUD, limits={"max_active_ms": 9}, previous_limits={"max_active_ms": 8}),
    catalogue.usage_mismatch(turn_id=TURN_ID, attempt=1, reported={"anything": [1]}, ledger=USAGE),
    catalogue.report_normalized(turn_id=TURN_ID, attempt=1, fields=["result"], reason="no output_schema"),
    catalogue.guardian_unavailable(turn_id=None, hook="sessionEnd", since=AT),
    catalogue.guardian_proceeded(turn_id=TURN_ID, hook="turnStart", request_id=REQUEST),
    catalogue.guardian_dead_letter(turn_id=TURN_ID, hook="turnEnd", request_id=REQUEST, error_code=-32602, reason=None),
    administration.webhook_endpoint_disabled(endpoint_id=WHE, reason="gone", failing_since=AT),
    administration.webhook_endpoint_disabled(endpoint_id=WHE, reason="operator", failing_since=None),
    administration.webhook_endpoint_test(endpoint_id=WHE),
    administration.webhook_delivery_dead(delivery_id=WHD, endpoint_id=WHE, event_id=EVT, attempts=10, last_status=500),
    administration.webhook_delivery_dead(delivery_id=WHD, endpoint_id=WHE, event_id=EVT, attempts=1, last_status=None),
    pauses.turn_paused(turn_id=TURN_ID, attempt=1, reason="client_tool", waits_for=[TCL], expires_at=AT),
    pauses.turn_deferred(
        turn_id=TURN_ID,
        attempt=1,
        tool_call_id=TCL,
        deferral=pauses.Deferral("low_confidence", "human_approval", 5, "ask"),
        approval_id=APR,
        deferrals=1,
    ),
    pauses.turn_resumed(
        turn_id=TURN_ID, attempt=1, status="starting", resolved=(APR, "expired"), cause="expiry", paused_ms=0
    ),
    pauses.approval_requested(
        turn_id=TURN_ID,
        attempt=1,
        approval_id=APR,
        tool_call_id=TCL,
        kind="policy",
        origin="agent_policy",
        question="May it?",
        tool={"name": "shell", "kind": "builtin", "server": None, "input_preview": {"a": 1}, "input_hash": "0" * 64},
        expires_at=AT,
    ),
    pauses.approval_resolved(
        turn_id=TURN_ID,
        attempt=1,
        approval_id=APR,
        outcome="approved",
        decided_by=("api_key", None),
        note=None,
        modified=True,
    ),
    texts.message_delta(turn_id=TURN_ID, attempt=1, message_id=MSG, offset=0, text="h\0"),
    texts.message_snapshot(turn_id=TURN_ID, attempt=1, message_id=MSG, text="hi"),
    texts.reasoning_delta(turn_id=TURN_ID, attempt=1, message_id=MSG, offset=2, text="hm"),
]


@cache
def validator(event_type: str) -> jsonschema_rs.Validator:
    usage = orjson.loads(schema_text("usage.json"))
    known = jsonschema_rs.Registry([(uri, usage) for uri in (USAGE_URI, usage["$id"])])
    return jsonschema_rs.validator_for(orjson.loads(event_schema_text(event_type)), registry=known)


def subschemas(node: object) -> list[dict[str, object]]:
    if isinstance(node, dict):
        return [node, *(found for value in node.values() for found in subschemas(value))]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] (any JSON)
    if isinstance(node, list):
        return [found for value in node for found in subschemas(value)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] (any JSON)
    return []


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_an_event_is_what_its_schema_says(event: NewEvent) -> None:
    validator(event.type).validate(orjson.loads(event.data))


def test_every_event_type_is_rendered_here() -> None:
    assert {event.type for event in EVENTS} == {*EVENT_TYPES, *EPHEMERAL_TYPES}
    assert len(set(EVENT_TYPES)) == len(EVENT_TYPES)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_no_event_lacks_a_key_or_has_one_more(event: NewEvent) -> None:
    data, check = orjson.loads(event.data), validator(event.type)

    assert not check.is_valid({**data, "surprise": 1})
    assert not any(check.is_valid({key: value for key, value in data.items() if key != gone}) for gone in data)


@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_every_object_of_ours_in_a_schema_is_closed(event_type: str) -> None:
    schema = orjson.loads(event_schema_text(event_type))
    ours = [node for node in subschemas(schema) if "properties" in node and node.get("type") == "object"]

    assert ours
    assert schema["title"] == event_type
    assert all(node["additionalProperties"] is False for node in ours)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_an_event_about_a_turn_names_it_in_the_envelope(event: NewEvent) -> None:
    stated = orjson.loads(event.data).get("turn_id")

    assert stated is None or event.turn_id == stated


def test_an_event_is_one_line() -> None:
    assert not any("\n" in event.data for event in EVENTS)


def test_metadata_and_arguments_keep_their_tokens() -> None:
    assert '{"b":1,"a":2.0}' in EVENTS[0].data
    assert any('"input":{"a":1.0}' in event.data for event in EVENTS)


def test_a_submission_lists_a_bounded_number_of_errors() -> None:
    submitted = next(event for event in EVENTS if event.type == "turn.result_submitted")

    assert len(orjson.loads(submitted.data)["errors"]) == MAX_SUBMISSION_ERRORS


def test_a_type_that_is_not_written_has_no_schema() -> None:
    with pytest.raises(KeyError):
        event_schema_text("../usage")
