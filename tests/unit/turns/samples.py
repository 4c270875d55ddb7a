"""A turn and an ending with everything filled in, to be changed where a test looks."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from turnkeeper.turns.model import Budget, CanceledBy, Ending, StopReason, Turn, TurnError, TurnStatus, Usage

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
TURN_ID = "trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
SESSION_ID = "ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AC"
SCHEMA = '{"type":"object"}'
BY_APP = CanceledBy("api_key", "key_01KBC3Y5M8Q2V7R9T4W6X1Z0AD")

_TURN = Turn(
    id=TURN_ID,
    session_id=SESSION_ID,
    agent_id="agt_01KBC3Y5M8Q2V7R9T4W6X1Z0AE",
    agent_version=1,
    seq=1,
    status=TurnStatus.RUNNING,
    stop_reason=None,
    input_text="hello",
    input_json='"hello"',
    output_schema_json=None,
    metadata_json="{}",
    idempotency_key=None,
    budget=Budget(max_model_calls=5),
    max_repair_attempts=3,
    attempt=1,
    tries=1,
    fence=1,
    text=None,
    result_json=None,
    result_error=None,
    error=None,
    usage=Usage(),
    canceled_by=None,
    cancel_mode=None,
    cancel_requested_at=None,
    created_at=NOON,
    started_at=NOON,
    ended_at=None,
    duration_ms=None,
    first_sequence=2,
    last_sequence=4,
    terminal_event_id=None,
    terminal_data=None,
)

_COMPLETED = Ending(
    happening="report_completed",
    status=TurnStatus.COMPLETED,
    stop_reason=StopReason.END_TURN,
    source="sandbox",
    text="done",
    result_json=None,
    result_error=None,
    duration_ms=10,
    turn_outcome="completed",
)


def a_turn(**changes: Any) -> Turn:
    """A running turn without an output schema."""
    return replace(_TURN, **changes)


def an_ending(**changes: Any) -> Ending:
    """The agent finished."""
    return replace(_COMPLETED, **changes)


def a_failure(reason: StopReason, *, retryable: bool, **changes: Any) -> Ending:
    """A failed ending of a running turn; nothing is published."""
    error = TurnError(reason.value, "some_code", "What went wrong.", retryable)
    failed = {"status": TurnStatus.FAILED, "stop_reason": reason, "source": "platform", "turn_outcome": "error"}
    return replace(_COMPLETED, **{**failed, "text": "", "error": error, **changes})


def a_cancel(**changes: Any) -> Ending:
    """A running turn was killed after the grace."""
    canceled = {
        "happening": "cancel_grace_over",
        "status": TurnStatus.CANCELED,
        "stop_reason": StopReason.CANCELED,
        "source": "platform",
        "turn_outcome": "interrupted",
        "text": "",
        "canceled_by": BY_APP,
    }
    return replace(_COMPLETED, **{**canceled, **changes})
