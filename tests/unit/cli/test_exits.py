"""The one table of exit codes."""

import dataclasses
from datetime import UTC, datetime

import pytest

from turnkeeper.cli.exits import Exit, UsageRefused, exit_of_error, exit_of_turn
from turnkeeper.config import ConfigInvalid
from turnkeeper.datadir import DataDirInUse, DataDirUnusable
from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.model import StopReason, Turn, TurnStatus, Usage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TURN = Turn(
    id="trn_0",
    session_id="ses_0",
    agent_id="agt_0",
    agent_version=1,
    seq=1,
    status=TurnStatus.COMPLETED,
    stop_reason=StopReason.END_TURN,
    input_text="",
    input_json="[]",
    output_schema_json=None,
    metadata_json="{}",
    idempotency_key=None,
    budget=None,
    max_repair_attempts=3,
    attempt=1,
    tries=1,
    fence=1,
    text="",
    result_json=None,
    result_error=None,
    error=None,
    usage=Usage(),
    canceled_by=None,
    cancel_mode=None,
    cancel_requested_at=None,
    created_at=NOW,
    started_at=NOW,
    ended_at=NOW,
    duration_ms=0,
    first_sequence=1,
    last_sequence=2,
    terminal_event_id=None,
    terminal_data=None,
)


@pytest.mark.parametrize(
    ("status", "stop_reason", "code"),
    [
        (TurnStatus.COMPLETED, StopReason.END_TURN, Exit.DONE),
        (TurnStatus.COMPLETED, StopReason.BUDGET_REACHED, Exit.DONE),
        (TurnStatus.FAILED, StopReason.MODEL_ERROR, Exit.FAILED),
        (TurnStatus.FAILED, StopReason.GUARDIAN_UNAVAILABLE, Exit.FAILED),
        (TurnStatus.FAILED, StopReason.DENIED_BEFORE_START, Exit.DENIED),
        (TurnStatus.FAILED, StopReason.DENIED_AT_START, Exit.DENIED),
        (TurnStatus.FAILED, StopReason.DENIED_INPUT, Exit.DENIED),
        (TurnStatus.FAILED, StopReason.DENIED_OUTPUT, Exit.DENIED),
        (TurnStatus.CANCELED, StopReason.CANCELED, Exit.CANCELED),
    ],
)
def test_a_shell_can_tell_how_a_turn_ended(status: TurnStatus, stop_reason: StopReason, code: Exit) -> None:
    """0 completed (also at its budget), 1 failed, 3 denied, 130 canceled."""
    assert exit_of_turn(dataclasses.replace(TURN, status=status, stop_reason=stop_reason)) is code


def test_what_was_typed_wrongly_is_told_from_what_failed() -> None:
    """2 for the person at the keyboard, 1 for the rest."""
    assert exit_of_error(UsageRefused("x")) is Exit.USAGE
    assert exit_of_error(ConfigInvalid("x")) is Exit.USAGE
    assert exit_of_error(DataDirUnusable("x")) is Exit.USAGE
    assert exit_of_error(DataDirInUse("x")) is Exit.FAILED
    assert exit_of_error(TurnkeeperError("x")) is Exit.FAILED
