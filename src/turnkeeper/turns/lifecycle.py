"""The life of a turn as a table (contract 6, with its amendments 1 and 7).

Pure. Every change of a turn's status asks this table; nobody compares statuses to decide what may happen. Rows are
cited by their number in the contract; rows about pauses, retries and `start_by` come with the features they belong to.

INVARIANT: no sequence of happenings leads through two terminal statuses, because no row starts at one (row 29).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from turnkeeper.errors import LocalProtocolError
from turnkeeper.turns.model import Source, StopReason, TurnOutcome, TurnStatus

MAX_START_TRIES: Final = 3
"""How often a sandbox may be lost before `turn.started` until the turn fails (rows 10 and 11)."""


class Happening(StrEnum):
    """Something that happens to a turn. The value is what `Ending.happening` carries."""

    ACCEPTED = "accepted"
    CANCELED_IN_QUEUE = "canceled_in_queue"
    DENIED_AT_START = "denied_at_start"
    DENIED_BEFORE_START = "denied_before_start"
    INPUT_DENIED = "input_denied"
    DISPOSITION_NOT_PERMITTED = "disposition_not_permitted"
    GUARDIAN_SILENT_AT_FRONT = "guardian_silent_at_front"
    BUDGET_GONE_AT_FRONT = "budget_gone_at_front"
    DISPATCHED = "dispatched"
    STARTED = "started"
    START_LOST = "start_lost"
    TRIES_USED = "tries_used"
    CANCELED_WHILE_STARTING = "canceled_while_starting"
    REPORT_COMPLETED = "report_completed"
    RESPONSE_DENIED = "response_denied"
    REPAIRS_USED = "repairs_used"
    GUARDIAN_SILENT_AT_END = "guardian_silent_at_end"
    REPORT_FAILED = "report_failed"
    CANCEL_ASKED = "cancel_asked"
    CANCEL_ACKNOWLEDGED = "cancel_acknowledged"
    CANCEL_GRACE_OVER = "cancel_grace_over"
    SANDBOX_LOST = "sandbox_lost"
    TIME_OVER = "time_over"
    INTERNAL_FAULT = "internal_fault"


class IllegalTransition(LocalProtocolError):
    """The contract has no row for this happening in this status."""

    code = "illegal_transition"


class TurnEnded(IllegalTransition):
    """The turn has its terminal event; nothing happens to it any more (row 29)."""

    code = "turn_ended"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table.

    `event_type` is null where the row writes no event of its own. `turn_outcomes` are the outcomes its turnEnd may
    state; `None` among them means that the row may also end without a turnEnd, because no turnStart was sent.
    """

    row: str
    next: TurnStatus
    event_type: str | None = None
    source: Source = "platform"
    stop_reasons: frozenset[StopReason] = frozenset()
    turn_outcomes: frozenset[TurnOutcome | None] = frozenset({None})


_CANCEL_REASONS: Final = frozenset({StopReason.CANCELED, StopReason.SESSION_CLOSED, StopReason.OPERATOR})
_ANSWER_REASONS: Final = frozenset({StopReason.END_TURN, StopReason.BUDGET_REACHED})


def _completed(row: str, source: Source, reasons: frozenset[StopReason]) -> Transition:
    return Transition(row, TurnStatus.COMPLETED, "turn.completed", source, reasons, frozenset({"completed"}))


def _failed(row: str, reason: StopReason, *outcomes: TurnOutcome | None, source: Source = "platform") -> Transition:
    return Transition(row, TurnStatus.FAILED, "turn.failed", source, frozenset({reason}), frozenset(outcomes))


def _canceled(row: str, *outcomes: TurnOutcome | None, source: Source = "platform") -> Transition:
    return Transition(row, TurnStatus.CANCELED, "turn.canceled", source, _CANCEL_REASONS, frozenset(outcomes))


def _report_failed() -> Transition:
    reasons = frozenset({StopReason.AGENT_ERROR, StopReason.MODEL_ERROR})
    return Transition("14", TurnStatus.FAILED, "turn.failed", "sandbox", reasons, frozenset({"error"}))


def _asked(status: TurnStatus) -> Transition:
    return Transition("17", status, "turn.cancel_requested")


_QUEUED: Final = TurnStatus.QUEUED
_STARTING: Final = TurnStatus.STARTING
_RUNNING: Final = TurnStatus.RUNNING

TRANSITIONS: Final[Mapping[tuple[TurnStatus | None, Happening], Transition]] = MappingProxyType(
    {
        (None, Happening.ACCEPTED): Transition("1", _QUEUED, "turn.queued"),
        # A worker may have sent turnStart before it saw the cancel; then the window it opened is closed.
        (_QUEUED, Happening.CANCELED_IN_QUEUE): _canceled("2", None, "interrupted"),
        (_QUEUED, Happening.DENIED_AT_START): _failed("4", StopReason.DENIED_AT_START, "denied_at_start"),
        (_QUEUED, Happening.DENIED_BEFORE_START): _failed("4a", StopReason.DENIED_BEFORE_START, None),
        (_QUEUED, Happening.INPUT_DENIED): _failed("4b", StopReason.DENIED_INPUT, "error"),
        (_QUEUED, Happening.DISPOSITION_NOT_PERMITTED): _failed("5", StopReason.DENIED_AT_START, "error"),
        (_QUEUED, Happening.GUARDIAN_SILENT_AT_FRONT): _failed("6", StopReason.GUARDIAN_UNAVAILABLE, None, "error"),
        (_QUEUED, Happening.BUDGET_GONE_AT_FRONT): _completed("7", "platform", frozenset({StopReason.BUDGET_REACHED})),
        (_QUEUED, Happening.DISPATCHED): Transition("8", _STARTING, "turn.starting"),
        (_STARTING, Happening.STARTED): Transition("9", _RUNNING, "turn.started", "sandbox"),
        (_STARTING, Happening.START_LOST): Transition("10", _STARTING),
        (_STARTING, Happening.TRIES_USED): _failed("11", StopReason.SANDBOX_UNAVAILABLE, "error"),
        (_STARTING, Happening.CANCELED_WHILE_STARTING): _canceled("12", "interrupted"),
        (_RUNNING, Happening.REPORT_COMPLETED): _completed("13", "sandbox", _ANSWER_REASONS),
        (_RUNNING, Happening.RESPONSE_DENIED): Transition("13a", _RUNNING),
        (_RUNNING, Happening.REPAIRS_USED): _failed("13b", StopReason.DENIED_OUTPUT, "error"),
        (_RUNNING, Happening.GUARDIAN_SILENT_AT_END): _failed("13c", StopReason.GUARDIAN_UNAVAILABLE, "error"),
        (_RUNNING, Happening.REPORT_FAILED): _report_failed(),
        # The contract's row is about running turns; a claimed or starting turn is asked in the same way and then
        # ends by row 2 or row 12.
        (_QUEUED, Happening.CANCEL_ASKED): _asked(_QUEUED),
        (_STARTING, Happening.CANCEL_ASKED): _asked(_STARTING),
        (_RUNNING, Happening.CANCEL_ASKED): _asked(_RUNNING),
        (_RUNNING, Happening.CANCEL_ACKNOWLEDGED): _canceled("18", "interrupted", source="sandbox"),
        (_RUNNING, Happening.CANCEL_GRACE_OVER): _canceled("19", "interrupted"),
        (_RUNNING, Happening.SANDBOX_LOST): _failed("20", StopReason.SANDBOX_LOST, "error"),
        (_RUNNING, Happening.TIME_OVER): _failed("22", StopReason.TIMEOUT, "error"),
        (_QUEUED, Happening.INTERNAL_FAULT): _failed("28", StopReason.INTERNAL_ERROR, None, "error"),
        (_STARTING, Happening.INTERNAL_FAULT): _failed("28", StopReason.INTERNAL_ERROR, "error"),
        (_RUNNING, Happening.INTERNAL_FAULT): _failed("28", StopReason.INTERNAL_ERROR, "error"),
    }
)


def transition(status: TurnStatus | None, happening: Happening) -> Transition:
    """The row for `happening` in `status` (`None` before the turn exists).

    Raises `TurnEnded` at a terminal status (row 29) and `IllegalTransition` where there is no row.
    """
    if status is not None and status.terminal:
        raise TurnEnded(f"{happening} cannot happen to a turn that is {status}")
    row = TRANSITIONS.get((status, happening))
    if row is None:
        raise IllegalTransition(f"{happening} cannot happen to a turn that is {status or 'not accepted'}")
    return row
