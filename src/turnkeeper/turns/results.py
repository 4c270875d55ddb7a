"""How a turn may end (contract 5), and the document that says so.

Pure. Three questions: what a sandbox's report means for the result (5.2), whether an ending is one that the contract
knows (5.1, 5.4), and what the terminal event's `data` is, token for token.

INVARIANT: a text is rendered here only after `check_ending` let it pass; nothing else writes a terminal event.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import orjson

from turnkeeper.errors import LocalProtocolError
from turnkeeper.turns.lifecycle import Happening, IllegalTransition, Transition, transition
from turnkeeper.turns.model import (
    Ending,
    ResultError,
    StopReason,
    Turn,
    TurnError,
    TurnStatus,
    Usage,
)
from turnkeeper.turns.usage import UsageInvalid, render_usage

RETRYABLE: Final[Mapping[StopReason, bool | None]] = MappingProxyType(
    {
        StopReason.AGENT_ERROR: False,
        StopReason.MODEL_ERROR: None,
        StopReason.SANDBOX_LOST: True,
        StopReason.SANDBOX_UNAVAILABLE: True,
        StopReason.TIMEOUT: True,
        StopReason.PAUSE_EXPIRED: True,
        StopReason.QUEUE_EXPIRED: True,
        StopReason.DENIED_BEFORE_START: False,
        StopReason.DENIED_AT_START: False,
        StopReason.DENIED_INPUT: False,
        StopReason.DENIED_OUTPUT: False,
        StopReason.GUARDIAN_UNAVAILABLE: True,
        StopReason.INTERNAL_ERROR: True,
    }
)
"""Whether posting a failed turn again may help (contract 5.4); `None` where it depends on the error's code."""

_WITHHOLDING: Final = frozenset({Happening.REPAIRS_USED, Happening.GUARDIAN_SILENT_AT_END})


class IllegalEnding(LocalProtocolError):
    """A combination that the contract does not know. A bug of the caller; nothing is written."""

    code = "illegal_ending"


@dataclass(frozen=True, slots=True)
class SubmissionTally:
    """What the worker saw submitted in this turn: how often, and the last value that was valid (JSON text)."""

    count: int = 0
    valid_json: str | None = None


@dataclass(frozen=True, slots=True)
class NormalizedReport:
    """A report's result as the platform reads it, before it is validated once more.

    `changed` names the members that were not taken as reported, for `report.normalized`.
    """

    result_json: str | None
    result_error: ResultError | None
    changed: tuple[str, ...] = ()
    reason: str | None = None


def normalize_report(
    result_json: str | None, result_error: ResultError | None, *, has_schema: bool, tally: SubmissionTally
) -> NormalizedReport:
    """What a report says about the result (contract 5.2, amendment 10).

    `result_json` is the reported value's JSON text, `None` when the report has none; the text `null` is a value.
    Whether something was submitted is the worker's knowledge, not the report's.
    """
    if not has_schema:
        return _without_schema(result_json, result_error)
    if result_json is not None and result_error is None:
        return NormalizedReport(result_json, None)
    known_result, known_error = _from_tally(tally)
    if result_json is not None and result_json != "null":
        return NormalizedReport(known_result, known_error, ("result", "result_error"), "a value came with an error")
    if known_error == result_error:
        return NormalizedReport(known_result, known_error)
    changed = ("result_error",) if known_result is None else ("result", "result_error")
    return NormalizedReport(known_result, known_error, changed, "the report contradicts what was submitted")


def result_after_validation(result_json: str, *, valid: bool) -> tuple[str | None, ResultError | None]:
    """`result` and `result_error` once the value was validated for the last time."""
    return (result_json, None) if valid else (None, "invalid")


def turn_error(reason: StopReason, code: str, message: str, *, retryable: bool = False) -> TurnError:
    """The `error` of a failed turn. `retryable` counts only where the contract leaves it open (`model_error`)."""
    settled = RETRYABLE.get(reason)
    return TurnError(reason.value, code, message, retryable if settled is None else settled)


def unpublished(turn: Turn, tally: SubmissionTally) -> ResultError | None:
    """Why there is no result where no answer was allowed (amendments 7 and 10)."""
    if turn.output_schema_json is None:
        return None
    if tally.valid_json is not None:
        return "withheld"
    return "invalid" if tally.count else "not_submitted"


def check_ending(turn: Turn, ending: Ending, usage: Usage) -> Transition:
    """The lifecycle row of a legal ending. Raises `IllegalEnding` for any other, `TurnEnded` for an ended turn."""
    row = _row(turn, ending)
    _check_table(row, ending)
    _check_companions(ending)
    _check_duration(turn, ending)
    _check_result(turn, ending)
    if ending.source == "platform" and ending.status is TurnStatus.COMPLETED:
        _check_unpaid(usage)
    return row


def render_terminal(turn: Turn, ending: Ending, usage: Usage) -> str:
    """The terminal event's `data`: the ten keys, and `error` or `canceled_by`. Raises `IllegalEnding`.

    `metadata` and `result` are the app's and the agent's own tokens.
    """
    check_ending(turn, ending, usage)
    try:
        return orjson.dumps(_document(turn, ending, usage)).decode()
    except (UsageInvalid, TypeError) as error:
        raise IllegalEnding(f"the ending cannot be written: {error}") from error


def _document(turn: Turn, ending: Ending, usage: Usage) -> dict[str, object]:
    document: dict[str, object] = {
        "turn_id": turn.id,
        "idempotency_key": turn.idempotency_key,
        "status": ending.status.value,
        "stop_reason": ending.stop_reason.value,
        "output": {"text": ending.text},
        "result": None if ending.result_json is None else orjson.Fragment(ending.result_json),
        "result_error": ending.result_error,
        "usage": orjson.Fragment(render_usage(usage)),
        "metadata": orjson.Fragment(turn.metadata_json),
        "duration_ms": ending.duration_ms,
    }
    if ending.status is TurnStatus.FAILED:
        document["error"] = ending.error
    if ending.status is TurnStatus.CANCELED:
        document["canceled_by"] = ending.canceled_by
    return document


def _without_schema(result_json: str | None, result_error: ResultError | None) -> NormalizedReport:
    reported = {"result": result_json not in {None, "null"}, "result_error": result_error is not None}
    changed = tuple(name for name, said in reported.items() if said)
    return NormalizedReport(None, None, changed, "the turn has no output_schema" if changed else None)


def _from_tally(tally: SubmissionTally) -> tuple[str | None, ResultError | None]:
    if tally.valid_json is not None:
        return tally.valid_json, None
    return None, "invalid" if tally.count else "not_submitted"


def _row(turn: Turn, ending: Ending) -> Transition:
    try:
        happening = Happening(ending.happening)
    except ValueError as error:
        raise IllegalEnding(f"{ending.happening!r} is not a happening") from error
    if turn.status.terminal:
        return transition(turn.status, happening)
    try:
        return transition(turn.status, happening)
    except IllegalTransition as error:
        raise IllegalEnding(error.message) from error


def _check_table(row: Transition, ending: Ending) -> None:
    if not row.next.terminal or row.next is not ending.status:
        raise IllegalEnding(f"row {row.row} does not end a turn as {ending.status}")
    if ending.stop_reason not in row.stop_reasons:
        raise IllegalEnding(f"row {row.row} does not end a turn with {ending.stop_reason}")
    if ending.source != row.source:
        raise IllegalEnding(f"row {row.row} has source {row.source}, not {ending.source}")
    if ending.turn_outcome not in row.turn_outcomes:
        raise IllegalEnding(f"row {row.row} does not send turnEnd {ending.turn_outcome}")


def _check_companions(ending: Ending) -> None:
    if (ending.error is not None) != (ending.status is TurnStatus.FAILED):
        raise IllegalEnding("a turn has an error if and only if it failed")
    if (ending.canceled_by is not None) != (ending.status is TurnStatus.CANCELED):
        raise IllegalEnding("a turn has canceled_by if and only if it was canceled")
    if ending.error is None:
        return
    retryable = RETRYABLE[ending.stop_reason]
    if retryable is not None and ending.error.retryable != retryable:
        raise IllegalEnding(f"{ending.stop_reason} is {'' if retryable else 'not '}retryable")


def _check_duration(turn: Turn, ending: Ending) -> None:
    if ending.duration_ms < 0:
        raise IllegalEnding("duration_ms is negative")
    if _never_ran(turn) and (ending.text or ending.duration_ms):
        raise IllegalEnding("a turn that never ran has no text and no duration")


def _never_ran(turn: Turn) -> bool:
    # A turn that waits for its next attempt, or for an answer, has run before.
    return turn.status is TurnStatus.QUEUED or turn.attempt == 0


def _check_result(turn: Turn, ending: Ending) -> None:
    if turn.output_schema_json is None:
        if ending.result_json is not None or ending.result_error is not None:
            raise IllegalEnding("a turn without output_schema has neither result nor result_error")
        _check_withheld_text(ending)
        return
    if (ending.result_json is None) == (ending.result_error is None):
        raise IllegalEnding("a turn with output_schema has a result or a result_error, one of them")
    if _never_ran(turn) and ending.result_error != "not_submitted":
        raise IllegalEnding("nothing can have been submitted in a turn that never ran")
    if ending.result_error == "withheld" and ending.status is TurnStatus.COMPLETED:
        raise IllegalEnding("a completed turn withholds nothing")
    _check_withheld_text(ending)
    _check_value(ending.result_json)


def _check_withheld_text(ending: Ending) -> None:
    if ending.happening in _WITHHOLDING and (ending.text or ending.result_json is not None):
        raise IllegalEnding(f"{ending.stop_reason} withholds text and result")


def _check_value(result_json: str | None) -> None:
    if result_json is None:
        return
    try:
        orjson.loads(result_json)
    except orjson.JSONDecodeError as error:
        raise IllegalEnding("the result is not JSON") from error
    if "\n" in result_json or "\r" in result_json:
        raise IllegalEnding("the result holds white space between its tokens")


def _check_unpaid(usage: Usage) -> None:
    if usage != Usage():
        raise IllegalEnding("a turn that could not be paid has used nothing")
