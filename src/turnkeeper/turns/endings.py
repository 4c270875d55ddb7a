"""The endings a worker can come to, as values (contract 5.4, 6): one function per way.

Pure. Text and result appear only where the Guardian allowed an answer that carried them (amendment 7); every other
ending says `""` and, for a turn with an output schema, why there is no result.
"""

from dataclasses import dataclass, replace
from typing import Final

from turnkeeper.turns.lifecycle import Happening
from turnkeeper.turns.model import (
    CanceledBy,
    Ending,
    ResultError,
    Source,
    StopReason,
    Turn,
    TurnError,
    TurnOutcome,
    TurnStatus,
)
from turnkeeper.turns.results import SubmissionTally, turn_error, unpublished
from turnkeeper.turns.rulings import Ruling

_NOTHING: Final = SubmissionTally()


@dataclass(frozen=True, slots=True)
class Ran:
    """What is known of a turn's run when it ends: how long it took and what was submitted."""

    duration_ms: int = 0
    tally: SubmissionTally = _NOTHING


NEVER_RAN: Final = Ran()


def canceled(turn: Turn, happening: Happening, outcome: TurnOutcome | None, ran: Ran = NEVER_RAN) -> Ending:
    """Rows 2, 12, 18 and 19: somebody asked for the end."""
    by = turn.canceled_by or CanceledBy("system", None)
    return Ending(
        happening=happening,
        status=TurnStatus.CANCELED,
        stop_reason=turn.cancel_stop_reason or StopReason.CANCELED,
        source="sandbox" if happening is Happening.CANCEL_ACKNOWLEDGED else "platform",
        text="",
        result_json=None,
        result_error=unpublished(turn, ran.tally),
        duration_ms=ran.duration_ms,
        turn_outcome=outcome,
        canceled_by=by,
    )


def queue_expired(turn: Turn, *, turn_started: bool) -> Ending:
    """Row 3: the turn did not start in time. `turn_started`: a worker that is gone had opened a window."""
    error = turn_error(StopReason.QUEUE_EXPIRED, "queue_expired", "the turn was still waiting at its start_by")
    outcome = "error" if turn_started else None
    return _failed(turn, Happening.START_EXPIRED, StopReason.QUEUE_EXPIRED, error, outcome)


def denied_before_start(turn: Turn, code: str, ruling: Ruling) -> Ending:
    """Row 4a: the Guardian said no before there was a turnStart; `code` says to what."""
    error = turn_error(StopReason.DENIED_BEFORE_START, code, _why(ruling))
    return _failed(turn, Happening.DENIED_BEFORE_START, StopReason.DENIED_BEFORE_START, error, None)


def denied_at_start(turn: Turn, ruling: Ruling) -> Ending:
    """Rows 4 and 5: the Guardian denied turnStart, or answered with something it may not answer there."""
    if ruling.kind == "unapplicable":
        error = turn_error(StopReason.DENIED_AT_START, "disposition_not_permitted", _why(ruling))
        happening, outcome = Happening.DISPOSITION_NOT_PERMITTED, "error"
        return _failed(turn, happening, StopReason.DENIED_AT_START, error, outcome)
    error = turn_error(StopReason.DENIED_AT_START, "turn_start_denied", _why(ruling))
    return _failed(turn, Happening.DENIED_AT_START, StopReason.DENIED_AT_START, error, "denied_at_start")


def denied_input(turn: Turn, ruling: Ruling) -> Ending:
    """Row 4b: the Guardian denied userMessage."""
    error = turn_error(StopReason.DENIED_INPUT, "user_message_denied", _why(ruling))
    return _failed(turn, Happening.INPUT_DENIED, StopReason.DENIED_INPUT, error, "error")


def no_decision_at_front(turn: Turn, hook: str, *, turn_started: bool) -> Ending:
    """Row 6: no decision, and none means no. `turn_started`: a turnStart may be in the Guardian's chain."""
    error = turn_error(StopReason.GUARDIAN_UNAVAILABLE, "no_decision", f"no decision from the Guardian on {hook}")
    outcome = "error" if turn_started else None
    return _failed(turn, Happening.GUARDIAN_SILENT_AT_FRONT, StopReason.GUARDIAN_UNAVAILABLE, error, outcome)


def unpaid(turn: Turn) -> Ending:
    """Row 7: the front of the queue with no budget left. The platform's own completion (C9, C10)."""
    return Ending(
        happening=Happening.BUDGET_GONE_AT_FRONT,
        status=TurnStatus.COMPLETED,
        stop_reason=StopReason.BUDGET_REACHED,
        source="platform",
        text="",
        result_json=None,
        result_error=unpublished(turn, _NOTHING),
        duration_ms=0,
        turn_outcome="completed",
    )


def no_sandbox(turn: Turn) -> Ending:
    """Row 11: no sandbox came up in the given tries."""
    error = turn_error(StopReason.SANDBOX_UNAVAILABLE, "sandbox_unavailable", "no sandbox could be started")
    return _failed(turn, Happening.TRIES_USED, StopReason.SANDBOX_UNAVAILABLE, error, "error")


def completed(
    ran: Ran, *, budget_reached: bool, text: str, result_json: str | None, result_error: ResultError | None
) -> Ending:
    """Row 13: an allowed answer."""
    return Ending(
        happening=Happening.REPORT_COMPLETED,
        status=TurnStatus.COMPLETED,
        stop_reason=StopReason.BUDGET_REACHED if budget_reached else StopReason.END_TURN,
        source="sandbox",
        text=text,
        result_json=result_json,
        result_error=result_error,
        duration_ms=ran.duration_ms,
        turn_outcome="completed",
    )


def denied_output(turn: Turn, ran: Ran, ruling: Ruling) -> Ending:
    """Row 13b: the Guardian denied the answer and no repair is left."""
    error = turn_error(StopReason.DENIED_OUTPUT, "agent_response_denied", _why(ruling))
    return _withheld(turn, Happening.REPAIRS_USED, StopReason.DENIED_OUTPUT, error, ran)


def no_decision_at_end(turn: Turn, ran: Ran) -> Ending:
    """Row 13c: no decision on the answer, so it is withheld."""
    message = "no decision from the Guardian on agentResponse"
    error = turn_error(StopReason.GUARDIAN_UNAVAILABLE, "no_decision", message)
    return _withheld(turn, Happening.GUARDIAN_SILENT_AT_END, StopReason.GUARDIAN_UNAVAILABLE, error, ran)


def agent_failed(turn: Turn, ran: Ran, reason: StopReason, code: str, message: str, *, retryable: bool) -> Ending:
    """Row 14: the sandbox reported a failure. `message` is ours: the agent's own words were not allowed by anybody."""
    error = turn_error(reason, code, message, retryable=retryable)
    return _failed(turn, Happening.REPORT_FAILED, reason, error, "error", ran=ran, source="sandbox")


def sandbox_lost(turn: Turn, ran: Ran, code: str, message: str) -> Ending:
    """Row 20: the sandbox is gone, or was taken away because it broke the protocol or ignored a budget stop."""
    error = turn_error(StopReason.SANDBOX_LOST, code, message)
    return _failed(turn, Happening.SANDBOX_LOST, StopReason.SANDBOX_LOST, error, "error", ran=ran)


def workspace_lost(turn: Turn, ran: Ran, *, turn_started: bool) -> Ending:
    """Row 24a: the turn may go on, and what its tools had made is gone."""
    message = "the workspace that the turn had worked in is not there any more"
    error = turn_error(StopReason.SANDBOX_LOST, "workspace_lost", message)
    outcome = "error" if turn_started else None
    return _failed(turn, Happening.WORKSPACE_LOST, StopReason.SANDBOX_LOST, error, outcome, ran=ran)


def timed_out(turn: Turn, ran: Ran, timeout_ms: int) -> Ending:
    """Row 22: the agent's time limit and the grace passed."""
    error = turn_error(StopReason.TIMEOUT, "timeout", f"the turn took longer than {timeout_ms} ms")
    return _failed(turn, Happening.TIME_OVER, StopReason.TIMEOUT, error, "error", ran=ran)


def internal_error(turn: Turn, ran: Ran, reference: str, *, turn_started: bool) -> Ending:
    """Row 28: our fault. `reference` is what the log knows it by."""
    message = f"Turnkeeper failed; its log has the reason under {reference}"
    error = turn_error(StopReason.INTERNAL_ERROR, "internal_error", message)
    outcome = "error" if turn_started else None
    return _failed(turn, Happening.INTERNAL_FAULT, StopReason.INTERNAL_ERROR, error, outcome, ran=ran)


def failed_by_operator(turn: Turn, ran: Ran, reason: str | None, *, turn_started: bool) -> Ending:
    """Row 28: an operator ended the turn, which nothing else did. `reason` is the operator's own."""
    message = "an operator failed the turn" if reason is None else f"an operator failed the turn: {reason}"
    error = turn_error(StopReason.INTERNAL_ERROR, "operator", message)
    outcome = "error" if turn_started else None
    return _failed(turn, Happening.INTERNAL_FAULT, StopReason.INTERNAL_ERROR, error, outcome, ran=ran)


def having_run(ending: Ending, turn: Turn, ran: Ran) -> Ending:
    """The ending of a turn that stops before it runs again; what it did before counts."""
    return replace(ending, duration_ms=ran.duration_ms, result_error=unpublished(turn, ran.tally))


def _withheld(turn: Turn, happening: Happening, reason: StopReason, error: TurnError, ran: Ran) -> Ending:
    ending = _failed(turn, happening, reason, error, "error", ran=ran)
    return ending if turn.output_schema_json is None else replace(ending, result_error="withheld")


def _failed(
    turn: Turn,
    happening: Happening,
    reason: StopReason,
    error: TurnError,
    outcome: TurnOutcome | None,
    *,
    ran: Ran = NEVER_RAN,
    source: Source = "platform",
) -> Ending:
    return Ending(
        happening=happening,
        status=TurnStatus.FAILED,
        stop_reason=reason,
        source=source,
        text="",
        result_json=None,
        result_error=unpublished(turn, ran.tally),
        duration_ms=ran.duration_ms,
        turn_outcome=outcome,
        error=error,
    )


def _why(ruling: Ruling) -> str:
    codes = f" [{', '.join(ruling.reason_codes)}]" if ruling.reason_codes else ""
    return f"{ruling.reasoning}{codes}"
