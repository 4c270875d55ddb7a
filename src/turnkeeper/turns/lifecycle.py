"""The life of a turn as a table (contract 6, with its amendments 1 and 7).

Pure. Every change of a turn's status asks this table; nobody compares statuses to decide what may happen. Rows are
cited by their number in the contract.

INVARIANT: no sequence of happenings leads through two terminal statuses, because no row starts at one (row 29).
INVARIANT: a running turn has an open window. A turn that is starting or paused may have none, because its retry or its
deferral closed it; then its ending sends no turnEnd (amendment 2), and its turnStart is asked before it runs again.
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
    START_EXPIRED = "start_expired"
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
    ATTEMPT_LOST = "attempt_lost"
    TIME_OVER = "time_over"
    PAUSE_BEGAN = "pause_began"
    STEP_DEFERRED = "step_deferred"
    RESOLVED_WARM = "resolved_warm"
    RESOLVED_COLD = "resolved_cold"
    WORKSPACE_LOST = "workspace_lost"
    EXPIRY_DENIED_WARM = "expiry_denied_warm"
    EXPIRY_DENIED_COLD = "expiry_denied_cold"
    EXPIRY_ASKS = "expiry_asks"
    EXPIRY_FAILED = "expiry_failed"
    CANCELED_WHILE_PAUSED = "canceled_while_paused"
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
    state; `None` among them means that the row may also go without a turnEnd, because no window is open.
    """

    row: str
    next: TurnStatus
    event_type: str | None = None
    source: Source = "platform"
    stop_reasons: frozenset[StopReason] = frozenset()
    turn_outcomes: frozenset[TurnOutcome | None] = frozenset({None})


_CANCEL_REASONS: Final = frozenset(
    {StopReason.CANCELED, StopReason.SUPERSEDED, StopReason.SESSION_CLOSED, StopReason.OPERATOR}
)
_ANSWER_REASONS: Final = frozenset({StopReason.END_TURN, StopReason.BUDGET_REACHED})


def _completed(row: str, source: Source, reasons: frozenset[StopReason]) -> Transition:
    return Transition(row, TurnStatus.COMPLETED, "turn.completed", source, reasons, frozenset({"completed"}))


def _failed(row: str, reason: StopReason, *outcomes: TurnOutcome | None, source: Source = "platform") -> Transition:
    return Transition(row, TurnStatus.FAILED, "turn.failed", source, frozenset({reason}), frozenset(outcomes))


def _canceled(row: str, *outcomes: TurnOutcome | None, source: Source = "platform") -> Transition:
    return Transition(row, TurnStatus.CANCELED, "turn.canceled", source, _CANCEL_REASONS, frozenset(outcomes))


def _closes(row: str, following: TurnStatus, event_type: str, outcome: TurnOutcome) -> Transition:
    """A row that closes the turn's window and does not end the turn."""
    return Transition(row, following, event_type, turn_outcomes=frozenset({outcome}))


def _report_failed() -> Transition:
    reasons = frozenset({StopReason.AGENT_ERROR, StopReason.MODEL_ERROR})
    return Transition("14", TurnStatus.FAILED, "turn.failed", "sandbox", reasons, frozenset({"error"}))


def _asked(status: TurnStatus) -> Transition:
    return Transition("17", status, "turn.cancel_requested")


_QUEUED: Final = TurnStatus.QUEUED
_STARTING: Final = TurnStatus.STARTING
_RUNNING: Final = TurnStatus.RUNNING
_PAUSED: Final = TurnStatus.PAUSED

TRANSITIONS: Final[Mapping[tuple[TurnStatus | None, Happening], Transition]] = MappingProxyType(
    {
        (None, Happening.ACCEPTED): Transition("1", _QUEUED, "turn.queued"),
        # A worker may have sent turnStart before it saw the cancel; then the window it opened is closed.
        (_QUEUED, Happening.CANCELED_IN_QUEUE): _canceled("2", None, "interrupted"),
        # As in row 2, a worker that is gone may have opened a window.
        (_QUEUED, Happening.START_EXPIRED): _failed("3", StopReason.QUEUE_EXPIRED, None, "error"),
        (_QUEUED, Happening.DENIED_AT_START): _failed("4", StopReason.DENIED_AT_START, "denied_at_start"),
        (_QUEUED, Happening.DENIED_BEFORE_START): _failed("4a", StopReason.DENIED_BEFORE_START, None),
        (_QUEUED, Happening.INPUT_DENIED): _failed("4b", StopReason.DENIED_INPUT, "error"),
        (_QUEUED, Happening.DISPOSITION_NOT_PERMITTED): _failed("5", StopReason.DENIED_AT_START, "error"),
        (_QUEUED, Happening.GUARDIAN_SILENT_AT_FRONT): _failed("6", StopReason.GUARDIAN_UNAVAILABLE, None, "error"),
        (_QUEUED, Happening.BUDGET_GONE_AT_FRONT): _completed("7", "platform", frozenset({StopReason.BUDGET_REACHED})),
        (_QUEUED, Happening.DISPATCHED): Transition("8", _STARTING, "turn.starting"),
        (_STARTING, Happening.STARTED): Transition("9", _RUNNING, "turn.started", "sandbox"),
        (_STARTING, Happening.START_LOST): Transition("10", _STARTING),
        (_STARTING, Happening.TRIES_USED): _failed("11", StopReason.SANDBOX_UNAVAILABLE, None, "error"),
        (_STARTING, Happening.CANCELED_WHILE_STARTING): _canceled("12", None, "interrupted"),
        # A turn that goes on asks for its turnStart again, of a retry when it starts, of a deferral before it resumes.
        (_STARTING, Happening.DENIED_AT_START): _failed("23a", StopReason.DENIED_AT_START, "denied_at_start"),
        (_PAUSED, Happening.DENIED_AT_START): _failed("23a", StopReason.DENIED_AT_START, "denied_at_start"),
        (_STARTING, Happening.DISPOSITION_NOT_PERMITTED): _failed("5", StopReason.DENIED_AT_START, "error"),
        (_PAUSED, Happening.DISPOSITION_NOT_PERMITTED): _failed("5", StopReason.DENIED_AT_START, "error"),
        (_STARTING, Happening.GUARDIAN_SILENT_AT_FRONT): _failed("6", StopReason.GUARDIAN_UNAVAILABLE, None, "error"),
        (_PAUSED, Happening.GUARDIAN_SILENT_AT_FRONT): _failed("6", StopReason.GUARDIAN_UNAVAILABLE, None, "error"),
        (_RUNNING, Happening.REPORT_COMPLETED): _completed("13", "sandbox", _ANSWER_REASONS),
        (_RUNNING, Happening.RESPONSE_DENIED): Transition("13a", _RUNNING),
        (_RUNNING, Happening.REPAIRS_USED): _failed("13b", StopReason.DENIED_OUTPUT, "error"),
        (_RUNNING, Happening.GUARDIAN_SILENT_AT_END): _failed("13c", StopReason.GUARDIAN_UNAVAILABLE, "error"),
        (_RUNNING, Happening.REPORT_FAILED): _report_failed(),
        (_RUNNING, Happening.PAUSE_BEGAN): Transition("15", _PAUSED, "turn.paused"),
        (_RUNNING, Happening.STEP_DEFERRED): _closes("16", _PAUSED, "turn.deferred", "deferred"),
        # The contract's row is about running turns; one that a worker holds otherwise is asked in the same way and
        # then ends by row 2, 12 or 27.
        (_QUEUED, Happening.CANCEL_ASKED): _asked(_QUEUED),
        (_STARTING, Happening.CANCEL_ASKED): _asked(_STARTING),
        (_RUNNING, Happening.CANCEL_ASKED): _asked(_RUNNING),
        (_PAUSED, Happening.CANCEL_ASKED): _asked(_PAUSED),
        (_RUNNING, Happening.CANCEL_ACKNOWLEDGED): _canceled("18", "interrupted", source="sandbox"),
        (_RUNNING, Happening.CANCEL_GRACE_OVER): _canceled("19", "interrupted"),
        (_RUNNING, Happening.SANDBOX_LOST): _failed("20", StopReason.SANDBOX_LOST, "error"),
        (_RUNNING, Happening.ATTEMPT_LOST): _closes("21", _STARTING, "turn.retrying", "error"),
        (_RUNNING, Happening.TIME_OVER): _failed("22", StopReason.TIMEOUT, "error"),
        (_PAUSED, Happening.RESOLVED_WARM): Transition("23", _RUNNING, "turn.resumed"),
        (_PAUSED, Happening.RESOLVED_COLD): Transition("24", _STARTING, "turn.resumed"),
        (_PAUSED, Happening.WORKSPACE_LOST): _failed("24a", StopReason.SANDBOX_LOST, None, "error"),
        # An answer alone sends a turn back to starting (row 24); its worker is the first to see the workspace.
        (_STARTING, Happening.WORKSPACE_LOST): _failed("24a", StopReason.SANDBOX_LOST, None, "error"),
        (_PAUSED, Happening.EXPIRY_DENIED_WARM): Transition("25", _RUNNING, "turn.resumed"),
        (_PAUSED, Happening.EXPIRY_DENIED_COLD): Transition("25", _STARTING, "turn.resumed"),
        (_PAUSED, Happening.EXPIRY_ASKS): Transition("25a", _PAUSED, "turn.paused"),
        (_PAUSED, Happening.EXPIRY_FAILED): _failed("26", StopReason.PAUSE_EXPIRED, None, "error"),
        (_PAUSED, Happening.CANCELED_WHILE_PAUSED): _canceled("27", None, "interrupted"),
        (_QUEUED, Happening.INTERNAL_FAULT): _failed("28", StopReason.INTERNAL_ERROR, None, "error"),
        (_STARTING, Happening.INTERNAL_FAULT): _failed("28", StopReason.INTERNAL_ERROR, None, "error"),
        (_PAUSED, Happening.INTERNAL_FAULT): _failed("28", StopReason.INTERNAL_ERROR, None, "error"),
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
