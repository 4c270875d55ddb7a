"""A worker's side of a pause (contract 6, rows 15, 16, 23 and 25): begin it, hold the boxes a short while, go on.

Answers for a pause that stands in the store before anything waits, for time that does not count while it waits, and for
letting go of the boxes when nobody answers soon. Must never go on before the store says that the turn runs again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from turnkeeper.acs import Disposition
from turnkeeper.clock import Clock
from turnkeeper.events import pauses as events
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns.approvals import MAX_DEFERRALS, Approval, ApprovalKind, PendingCall
from turnkeeper.turns.continuation import ask_to_continue
from turnkeeper.turns.endings import Ran
from turnkeeper.turns.model import Claim, Ending, Fence, Turn, TurnStatus
from turnkeeper.turns.pausing import (
    NewPause,
    Pause,
    QuestionReason,
    after,
    deferral_of,
    question_of,
    requested,
    timeout_decision,
    wait_of_ask,
)
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.timing import news_of
from turnkeeper.turns.workbench import Workbench

_WAITING: Final = frozenset({Disposition.ASK.value, Disposition.DEFER.value})
HUMAN_APPROVAL: Final = "human_approval"


class Parked(Exception):
    """Nobody answered while the boxes were held: the turn waits without them."""


class NotContinued(Exception):
    """The turn may not go on; `ending` says how it ends."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.stop_reason)
        self.ending = ending


class Stopwatch:
    """How long a turn has run; what it waited for others is left out."""

    def __init__(self, clock: Clock, before_ms: int) -> None:
        self._clock = clock
        self._before_ms = before_ms
        self._since_ms: int | None = clock.monotonic_ms()

    @property
    def elapsed_ms(self) -> int:
        """All that counts, earlier processes' part included."""
        running_ms = 0 if self._since_ms is None else self._clock.monotonic_ms() - self._since_ms
        return self._before_ms + running_ms

    def stop(self) -> None:
        """Nothing counts from now on."""
        self._before_ms, self._since_ms = self.elapsed_ms, None

    def go(self) -> None:
        """It counts again."""
        self._since_ms = self._since_ms or self._clock.monotonic_ms()


@dataclass(frozen=True, slots=True)
class Held:
    """What a pause needs of the turn around it."""

    claim: Claim
    turn: Turn
    fence: Callable[[], Fence]
    watch: Stopwatch
    ran: Callable[[], Ran]
    on_wait: Callable[[], None]
    on_go: Callable[[], None]


class Pauses:
    """The pauses of one running turn."""

    def __init__(self, bench: Workbench, held: Held) -> None:
        self._bench = bench
        self._held = held
        self._longest_ms = held.claim.agent.limits.pause_expiry_ms or bench.settings.pause_expiry_ms
        self._session_deferrals = held.claim.session.deferrals
        self._deferrals = 0
        self.waiting = False
        self.window_closed = False

    def may_wait(self, ruling: Ruling) -> bool:
        """Whether a ruling makes the turn wait. A deferral beyond the session's bound is a denial."""
        if ruling.allowed or ruling.decision not in _WAITING:
            return False
        return ruling.decision == Disposition.ASK or self._session_deferrals + self._deferrals < MAX_DEFERRALS

    def of_ruling(self, call: PendingCall, ruling: Ruling) -> NewPause | None:
        """The pause that a ruling begins; None where it makes nothing wait."""
        if not self.may_wait(ruling):
            return None
        self.waiting = True
        return self._deferred(call, ruling) if ruling.decision == Disposition.DEFER else self._asked(call, ruling)

    async def ask_person(self, call: PendingCall, before: Sequence[NewEvent]) -> None:
        """The agent's own permissions ask (origin agent_policy)."""
        question = f"May the agent use {call.name}?"
        approval = self._question(call, "policy", question, self._longest_ms)
        self.waiting = True
        await self._bench.store.pause(self._held.fence(), self._questioned(approval), before)

    async def ask_app(self, call: PendingCall) -> None:
        """The app runs the tool and says what came of it."""
        turn, expires_at = self._held.turn, after(self._bench.clock.now(), self._longest_ms)
        paused = events.turn_paused(
            turn_id=turn.id,
            attempt=turn.attempt,
            reason="client_tool",
            waits_for=[call.tool_call_id],
            expires_at=expires_at,
        )
        self.waiting = True
        pause = NewPause("client_tool", call, expires_at, self._held.watch.elapsed_ms, None, (paused,))
        await self._bench.store.pause(self._held.fence(), pause, ())

    async def outcome(self) -> Pause:
        """The pause once it is resolved and the turn runs again. Raises `Parked`, `NotContinued`, `StaleFence`."""
        self._held.watch.stop()
        self._held.on_wait()
        pause = await self._resolved()
        turn = replace(self._held.turn, status=TurnStatus.PAUSED)
        ending = await ask_to_continue(self._bench, turn, self._held.fence(), self._held.ran())
        if ending is not None:
            raise NotContinued(ending)
        await self._bench.store.resume(self._held.fence())
        self.waiting = self.window_closed = False
        self._held.watch.go()
        self._held.on_go()
        return pause

    async def _resolved(self) -> Pause:
        bench, settings = self._bench, self._bench.settings
        deadline_ms = bench.clock.monotonic_ms() + settings.pause_warm_ms
        while True:
            left_ms = max(deadline_ms - bench.clock.monotonic_ms(), 0)
            wait_ms = min(left_ms, settings.poll_ms)
            async with news_of(bench.wakeups, self._held.turn.session_id, timeout_ms=wait_ms) as news:
                pause = await bench.store.open_pause(self._held.turn.id)
                if pause is not None and pause.state == "resolved":
                    return pause
                if left_ms == 0:
                    raise Parked
                await asyncio.wait({news})

    def _deferred(self, call: PendingCall, ruling: Ruling) -> NewPause:
        turn, deferral = self._held.turn, deferral_of(ruling.details, self._longest_ms)
        self._deferrals += 1
        self.window_closed = True
        # Only what an approver answers can be referred to when the step is sent again.
        asked = call if _is_answered_by_approvers(deferral) else replace(call, request_id=None)
        question = question_of(None, ruling.reasoning)
        wait_ms = deferral.resolution_timeout_ms
        approval = replace(
            self._question(asked, "deferral", question, wait_ms),
            reasons=ruling.reasons,
            timeout_decision=timeout_decision(deferral),
        )
        told = events.turn_deferred(
            turn_id=turn.id,
            attempt=turn.attempt,
            tool_call_id=call.tool_call_id,
            deferral=deferral,
            approval_id=approval.id,
            deferrals=self._deferrals,
        )
        return self._pause("deferral", approval, told)

    def _asked(self, call: PendingCall, ruling: Ruling) -> NewPause:
        question = question_of(ruling.details, ruling.reasoning)
        wait_ms = wait_of_ask(ruling.details, self._longest_ms)
        return self._questioned(replace(self._question(call, "ask", question, wait_ms), reasons=ruling.reasons))

    def _questioned(self, approval: Approval) -> NewPause:
        turn = self._held.turn
        told = events.turn_paused(
            turn_id=turn.id,
            attempt=turn.attempt,
            reason="approval",
            waits_for=[approval.id],
            expires_at=approval.expires_at,
        )
        return self._pause("approval", approval, told)

    def _pause(self, reason: QuestionReason, approval: Approval, told: NewEvent) -> NewPause:
        asked = requested(approval, attempt=self._held.turn.attempt, inline_bytes=self._bench.settings.inline_bytes)
        elapsed_ms = self._held.watch.elapsed_ms
        return NewPause(reason, approval.call, approval.expires_at, elapsed_ms, approval, (asked, told))

    def _question(self, call: PendingCall, kind: ApprovalKind, question: str, wait_ms: int) -> Approval:
        now, turn = self._bench.clock.now(), self._held.turn
        return Approval(
            id=self._bench.ids.new("apr"),
            kind=kind,
            origin="agent_policy" if kind == "policy" else "guardian",
            session_id=turn.session_id,
            turn_id=turn.id,
            call=call,
            question=question,
            reasons=(),
            created_at=now,
            expires_at=after(now, wait_ms),
        )


def _is_answered_by_approvers(deferral: events.Deferral) -> bool:
    method = deferral.resolution_method
    return method == HUMAN_APPROVAL or (method == "timeout" and timeout_decision(deferral) == "ask")
