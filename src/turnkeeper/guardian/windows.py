"""Turn windows (ACS 5, CORE-TURN-01 to 03; turn contract, amendment 2): which turn a step belongs to, and its counts.

Answers for opening, counting and closing. A window is opened by an answered turnStart, allowed or denied, and closed
by its own turnEnd alone. INVARIANT: nothing an agent sends clears the counts of a window that is open: a second
turnStart and a wrong turnEnd leave it as it is, and a step in a nested turn counts in every turn around it. A turn
that ended `deferred` comes back with what it had. Step counts leave turnStart and turnEnd out. Pure.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, cast

from turnkeeper.acs import Disposition, RequestEnvelope
from turnkeeper.guardian.mcp import is_tool_call
from turnkeeper.records import record

TURN_START: Final = "steps/turnStart"
TURN_END: Final = "steps/turnEnd"
SESSION_END: Final = "steps/sessionEnd"
DEFERRED: Final = "deferred"
MAX_NESTED_TURNS: Final = 8
"""Turns that may be open inside one another; a further turnStart opens none."""

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
    DENIED_AFTER_ALLOW = "outcome_denied_after_allow"
    COMPLETED_AFTER_DENY = "outcome_completed_after_deny"
    DEFERRED_WITHOUT_DEFER = "outcome_deferred_without_defer"


@record
class TurnWindow:
    """A turn that is open. `ordinal` numbers the session's windows from 1; `denied` is the word on its turnStart.

    `steps` and `tool_calls` are those of this window; `carried_*` those of the turn's earlier windows, each of which
    ended deferred. `denials`, `deferrals` and `taint_step` are the whole turn's. `outer` is the turn around it.
    """

    turn_id: str
    ordinal: int
    steps: int = 0
    tool_calls: int = 0
    denied: bool = False
    denials: int = 0
    deferrals: int = 0
    taint_step: str = ""
    triggered_by: str = ""
    parent_turn_id: str = ""
    carried_steps: int = 0
    carried_tool_calls: int = 0
    carried_deferrals: int = 0
    outer: "TurnWindow | None" = None

    @property
    def outermost(self) -> "TurnWindow":
        """The turn that has no other around it: its counts are those that rules see."""
        window = self
        while window.outer is not None:
            window = window.outer
        return window

    @property
    def depth(self) -> int:
        """How many turns are open, this one included."""
        return 1 if self.outer is None else 1 + self.outer.depth

    @property
    def start_denied(self) -> bool:
        """Whether its turnStart, or that of a turn around it, was denied."""
        return self.denied or (self.outer is not None and self.outer.start_denied)

    def counted(self, *, tool_call: bool) -> "TurnWindow":
        """The window after one more step, in the turns around it as well."""
        # Written out: `dataclasses.replace` takes five times as long, and this is every step of a turn.
        return TurnWindow(
            self.turn_id,
            self.ordinal,
            self.steps + 1,
            self.tool_calls + tool_call,
            self.denied,
            self.denials,
            self.deferrals,
            self.taint_step,
            self.triggered_by,
            self.parent_turn_id,
            self.carried_steps,
            self.carried_tool_calls,
            self.carried_deferrals,
            None if self.outer is None else self.outer.counted(tool_call=tool_call),
        )

    def tainted(self, step_id: str) -> "TurnWindow":
        """The window once a step brought untrusted data; the earliest step is kept."""
        return replace(
            self,
            taint_step=self.taint_step or step_id,
            outer=None if self.outer is None else self.outer.tainted(step_id),
        )

    def answered(self, disposition: Disposition) -> "TurnWindow":
        """The window once a step of it was answered."""
        if disposition not in (Disposition.DENY, Disposition.DEFER):
            return self
        return replace(
            self,
            denials=self.denials + (disposition is Disposition.DENY),
            deferrals=self.deferrals + (disposition is Disposition.DEFER),
            outer=None if self.outer is None else self.outer.answered(disposition),
        )

    def suspended(self) -> "TurnWindow":
        """The turn as it is kept after a window that ended deferred."""
        return replace(
            self,
            steps=0,
            tool_calls=0,
            denied=False,
            carried_steps=self.carried_steps + self.steps,
            carried_tool_calls=self.carried_tool_calls + self.tool_calls,
            carried_deferrals=self.deferrals,
            outer=None,
        )


@record
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

    def decided(self, disposition: Disposition) -> "Placement":
        """The placement once the step has its decision: a window remembers what was denied and deferred in it."""
        if self.window is None:
            return self
        if self.opened:
            denied = disposition is Disposition.DENY
            return replace(self, window=replace(self.window, denied=True)) if denied else self
        window = self.window if self.closed is not None else self.window.answered(disposition)
        return self if window is self.window else replace(self, window=window)

    def tainted(self, step_id: str) -> "Placement":
        """The placement of a step that carries untrusted data."""
        return replace(
            self,
            window=None if self.window is None else self.window.tainted(step_id),
            closed=None if self.closed is None else self.closed.tainted(step_id),
        )


_NONE_DEFERRED: Mapping[str, TurnWindow] = MappingProxyType({})


def place(
    window: TurnWindow | None,
    turns: int,
    request: RequestEnvelope,
    *,
    in_turn: bool | None,
    deferred: Mapping[str, TurnWindow] = _NONE_DEFERRED,
) -> Placement:
    """Where a request falls when `window` is open and `turns` windows were opened before.

    `in_turn` is False for a hook of the session itself, which owes no turn_id; `deferred` holds the turns that may
    come back. Takes a payload that passed its schema.
    """
    if request.method == TURN_START:
        return _start(window, turns, request, deferred)
    if request.method == TURN_END:
        return _end(window, request)
    if window is None:
        return Placement(None, conduct=(Conduct.TURN_NOT_OPEN,) if request.turn_id is not None else ())
    counted = window.counted(tool_call=is_tool_call(request))
    return Placement(counted, window.turn_id, conduct=_conduct_inside(window, request, in_turn))


def deferred_after(
    deferred: Mapping[str, TurnWindow], placement: Placement, request: RequestEnvelope
) -> Mapping[str, TurnWindow]:
    """The turns that may come back once a step was placed and decided; the same mapping where nothing changes.

    A turn whose start was denied has nothing to come back to.
    """
    if placement.opened and placement.window is not None and placement.window.turn_id in deferred:
        return {turn_id: window for turn_id, window in deferred.items() if turn_id != placement.window.turn_id}
    closed = placement.closed
    if closed is None or closed.denied or request.payload["outcome"] != DEFERRED:
        return deferred
    return {**deferred, closed.turn_id: closed.suspended()}


def _conduct_inside(window: TurnWindow, request: RequestEnvelope, in_turn: bool | None) -> tuple[Conduct, ...]:
    found: list[Conduct] = []
    if request.method == SESSION_END:
        found.append(Conduct.TURN_LEFT_OPEN)
    if request.turn_id is None and in_turn is not False:
        found.append(Conduct.TURN_ID_MISSING)
    elif request.turn_id not in (None, window.turn_id):
        found.append(Conduct.TURN_ID_FOREIGN)
    return tuple(found)


def _start(
    window: TurnWindow | None, turns: int, request: RequestEnvelope, deferred: Mapping[str, TurnWindow]
) -> Placement:
    turn_id = str(request.payload["turn_id"])
    foreign = (Conduct.TURN_ID_FOREIGN,) if request.turn_id not in (None, turn_id) else ()
    parent_id = cast("str", request.payload.get("parent_turn_id", ""))
    if window is not None and not _nests(window, turn_id, parent_id):
        return Placement(window, window.turn_id, conduct=(Conduct.TURN_ALREADY_OPEN, *foreign))
    opened = replace(
        deferred.get(turn_id) or TurnWindow(turn_id, 0),
        ordinal=turns + 1,
        triggered_by=cast("str", request.payload["triggered_by"]),
        parent_turn_id=parent_id,
        outer=window,
    )
    return Placement(opened, turn_id, opened=True, conduct=foreign)


def _nests(window: TurnWindow, turn_id: str, parent_id: str) -> bool:
    return parent_id == window.turn_id and turn_id != parent_id and window.depth < MAX_NESTED_TURNS


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
        window.outer,
        window.turn_id,
        closed=window,
        reason_codes=tuple(found.value for found in wrong),
        conduct=(*wrong, *_wrong_outcome(window, request.payload["outcome"])),
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


def _wrong_outcome(window: TurnWindow, outcome: object) -> tuple[Conduct, ...]:
    """What a turn's outcome says that the Guardian's own answers do not."""
    if outcome == "denied_at_start" and not window.denied:
        return (Conduct.DENIED_AFTER_ALLOW,)
    if outcome == "completed" and window.denied:
        return (Conduct.COMPLETED_AFTER_DENY,)
    if outcome == DEFERRED and window.deferrals == window.carried_deferrals:
        return (Conduct.DEFERRED_WITHOUT_DEFER,)
    return ()
