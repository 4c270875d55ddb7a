"""Turn windows (ACS 5, CORE-TURN-01 to 03; turn contract, amendment 2): which turn a step belongs to, and its counts.

Answers for opening, counting and closing. A window is opened by an answered turnStart, allowed or denied, and closed
by its own turnEnd alone. INVARIANT: nothing an agent sends clears the counts of a window that is open: a second
turnStart and a wrong turnEnd leave it as it is. Step counts leave turnStart and turnEnd out. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from turnkeeper.acs import RequestEnvelope

TURN_START: Final = "steps/turnStart"
TURN_END: Final = "steps/turnEnd"
TOOL_CALL: Final = "steps/toolCallRequest"
SESSION_END: Final = "steps/sessionEnd"

TURN_MISMATCH: Final = "turn_mismatch"
STEP_COUNT_MISMATCH: Final = "step_count_mismatch"
TOOL_CALL_COUNT_MISMATCH: Final = "tool_call_count_mismatch"


class Conduct(StrEnum):
    """What an agent did that it should not have, without the step being refused for it."""

    TURN_NOT_OPEN = "turn_not_open"
    TURN_ALREADY_OPEN = "turn_already_open"
    TURN_LEFT_OPEN = "turn_left_open"
    TURN_ID_MISSING = "turn_id_missing"
    TURN_ID_FOREIGN = "turn_id_foreign"
    TURN_MISMATCH = TURN_MISMATCH
    STEP_COUNT_MISMATCH = STEP_COUNT_MISMATCH
    TOOL_CALL_COUNT_MISMATCH = TOOL_CALL_COUNT_MISMATCH


@dataclass(frozen=True, slots=True)
class TurnWindow:
    """A turn that is open. `ordinal` numbers the session's windows from 1; `denied` is the word on its turnStart."""

    turn_id: str
    ordinal: int
    steps: int = 0
    tool_calls: int = 0
    denied: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a step falls.

    `window` is what is open after the step, `turn_id` the turn it belongs to (None outside). `reason_codes` go into
    the answer, `conduct` into the findings.
    """

    window: TurnWindow | None
    turn_id: str | None = None
    opened: bool = False
    closed: TurnWindow | None = None
    reason_codes: tuple[str, ...] = ()
    conduct: tuple[Conduct, ...] = ()

    def decided(self, *, denied: bool) -> "Placement":
        """The placement once the step has its decision: a window that it opened remembers a denial."""
        if not (self.opened and denied and self.window is not None):
            return self
        return replace(self, window=replace(self.window, denied=True))


def place(window: TurnWindow | None, turns: int, request: RequestEnvelope, *, in_turn: bool | None) -> Placement:
    """Where a request falls when `window` is open and `turns` windows were opened before.

    `in_turn` is False for a hook of the session itself, which owes no turn_id. Takes a payload that passed its schema.
    """
    if request.method == TURN_START:
        return _start(window, turns, request)
    if request.method == TURN_END:
        return _end(window, request)
    if window is None:
        return Placement(None, conduct=(Conduct.TURN_NOT_OPEN,) if request.turn_id is not None else ())
    counted = replace(window, steps=window.steps + 1, tool_calls=window.tool_calls + (request.method == TOOL_CALL))
    return Placement(counted, window.turn_id, conduct=_conduct_inside(window, request, in_turn))


def _conduct_inside(window: TurnWindow, request: RequestEnvelope, in_turn: bool | None) -> tuple[Conduct, ...]:
    found: list[Conduct] = []
    if request.method == SESSION_END:
        found.append(Conduct.TURN_LEFT_OPEN)
    if request.turn_id is None and in_turn is not False:
        found.append(Conduct.TURN_ID_MISSING)
    elif request.turn_id not in (None, window.turn_id):
        found.append(Conduct.TURN_ID_FOREIGN)
    return tuple(found)


def _start(window: TurnWindow | None, turns: int, request: RequestEnvelope) -> Placement:
    turn_id = str(request.payload["turn_id"])
    foreign = (Conduct.TURN_ID_FOREIGN,) if request.turn_id not in (None, turn_id) else ()
    if window is not None:
        return Placement(window, window.turn_id, conduct=(Conduct.TURN_ALREADY_OPEN, *foreign))
    return Placement(TurnWindow(turn_id, turns + 1), turn_id, opened=True, conduct=foreign)


def _end(window: TurnWindow | None, request: RequestEnvelope) -> Placement:
    if window is None or not _ends(window, request):
        return Placement(
            window,
            None if window is None else window.turn_id,
            reason_codes=(TURN_MISMATCH,),
            conduct=(Conduct.TURN_MISMATCH,),
        )
    wrong = _wrong_counts(window, request.payload)
    return Placement(
        None,
        window.turn_id,
        closed=window,
        reason_codes=tuple(found.value for found in wrong),
        conduct=wrong,
    )


def _ends(window: TurnWindow, request: RequestEnvelope) -> bool:
    return request.payload["turn_id"] == window.turn_id and request.turn_id in (None, window.turn_id)


def _wrong_counts(window: TurnWindow, payload: Mapping[str, object]) -> tuple[Conduct, ...]:
    found: list[Conduct] = []
    if payload.get("step_count", window.steps) != window.steps:
        found.append(Conduct.STEP_COUNT_MISMATCH)
    if payload.get("tool_call_count", window.tool_calls) != window.tool_calls:
        found.append(Conduct.TOOL_CALL_COUNT_MISMATCH)
    return tuple(found)
