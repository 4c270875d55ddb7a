"""One report and its ruling: the Guardian is asked, and whatever keeps it from deciding is a block (ACS 5, 6 and 9).

Answers for the order of a session's steps though its hooks are processes of their own, for one turnEnd per turnStart,
and for a call that waits for a person: it is held, then blocked, and decided when the agent tries it again. Must never
answer anything but a block without an ALLOW or MODIFY of the Guardian.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any, Final, cast

from turnkeeper.client.errors import ClientError, SessionDenied, StepDenied, TurnDenied
from turnkeeper.client.guardian import GuardianClient
from turnkeeper.client.outcomes import Allowed, Denied, ExpiryAction, Outcome, Pending, PendingKind
from turnkeeper.client.sessions import GuardedSession
from turnkeeper.client.steps import (
    TOOL_CALL_REQUEST,
    Step,
    TurnOutcome,
    TurnTrigger,
    tool_call_request,
    tool_call_result,
    user_message,
)
from turnkeeper.client.turns import GuardedTurn, TurnCounts
from turnkeeper.hooks.events import (
    Block,
    HookEvent,
    Proceed,
    PromptSubmitted,
    Replace,
    Report,
    Ruling,
    SessionBegan,
    SessionOver,
    ToolFinished,
    ToolRequested,
    TurnStopped,
)
from turnkeeper.hooks.state import OpenCall, SessionState, SessionStates, WaitingCall
from turnkeeper.ids import RandomIds

CHANGED_PROMPT: Final = "the Guardian would only allow a changed prompt, and a hook cannot change one"

_FIRST_POLL_S: Final = 0.5
_MAX_POLL_S: Final = 5.0


class HookDesk:
    """The hooks of one client. `ask_wait_s` is how long a call is held for a person."""

    def __init__(
        self,
        guardian: GuardianClient,
        states: SessionStates,
        *,
        ask_wait_s: float,
        ids: RandomIds,
        now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._guardian = guardian
        self._states = states
        self._ask_wait_s = ask_wait_s
        self._ids = ids
        self._now_ms = now_ms

    async def rule(self, report: Report) -> Ruling:
        """What the client may do. Raises `HookStateUnusable` and what the audit log raises: blocks, too."""
        try:
            async with self._states.held(report.session) as state:
                ruling = await self._ruled(state, report.event)
        except ClientError as error:
            return Block(error.message)
        if isinstance(ruling, Pending):
            return await self._held(report, ruling)
        if isinstance(report.event, SessionOver):
            self._states.forget(report.session)
        return ruling

    async def _ruled(self, state: SessionState, event: HookEvent) -> Ruling | Pending:
        session = await self._session(state)
        match event:
            case SessionBegan() | TurnStopped() | SessionOver():
                return await self._passed(state, session, event)
            case PromptSubmitted(text):
                return await self._prompted(state, session, text)
            case ToolRequested():
                return await self._requested(state, session, event)
            case ToolFinished():
                return await self._finished(state, session, event)

    async def _passed(
        self, state: SessionState, session: GuardedSession, event: SessionBegan | TurnStopped | SessionOver
    ) -> Ruling:
        """What has happened already, for the record."""
        if isinstance(event, TurnStopped):
            await self._end_turn(state, session, "completed")
        if isinstance(event, SessionOver):
            await self._end_turn(state, session, "interrupted")
            await session.end()
        return Proceed()

    async def _session(self, state: SessionState) -> GuardedSession:
        """The session at the Guardian, begun with the first report that comes."""
        if state.refusal is not None:
            raise StepDenied(Denied(None, state.refusal))
        if state.guardian_session is not None:
            return await self._guardian.attach(state.guardian_session)
        session_id = self._ids.uuid()
        begun = self._guardian.session(session_id=session_id)
        try:
            await begun.begin()
        except SessionDenied as denied:
            state.refusal = f"the session was denied: {denied.message}"
            raise
        state.guardian_session = session_id
        return await self._guardian.attach(session_id)

    async def _turn(
        self, state: SessionState, session: GuardedSession, triggered_by: TurnTrigger = "agent_loop"
    ) -> GuardedTurn:
        if state.turn is not None:
            counts = None if state.counts is None else TurnCounts(*state.counts)
            return session.attach_turn(state.turn, counts=counts)
        turn = session.turn(triggered_by)
        try:
            await turn.begin()
        except TurnDenied as denied:
            raise StepDenied(Denied(None, f"the turn was denied: {denied.message}")) from denied
        state.turn = turn.turn_id
        _count(state, turn)
        return turn

    async def _end_turn(self, state: SessionState, session: GuardedSession, outcome: TurnOutcome) -> None:
        if state.turn is None:
            return
        turn = await self._turn(state, session)
        state.turn, state.counts = None, None
        await turn.end(outcome)

    async def _prompted(self, state: SessionState, session: GuardedSession, text: str) -> Ruling | Pending:
        await self._end_turn(state, session, "interrupted")
        turn = await self._turn(state, session, "user_message")
        step = user_message(turn.marks(), text)
        outcome = await self._asked(state, turn, step)
        if isinstance(outcome, Pending):
            return Block(f"somebody would have to be asked about this prompt: {outcome.question}")
        ruling = _ruling(outcome, step)
        return Block(CHANGED_PROMPT) if isinstance(ruling, Replace) else ruling

    async def _requested(self, state: SessionState, session: GuardedSession, event: ToolRequested) -> Ruling | Pending:
        turn = await self._turn(state, session)
        step = _request(turn, event)
        waited = self._waited(state, session, event)
        if waited is None:
            outcome = await self._asked(state, turn, step)
        else:
            outcome = await turn.resubmit(waited)
            _count(state, turn)
        return self._noted(state, event, step, outcome)

    def _noted(self, state: SessionState, event: ToolRequested, step: Step[Any], outcome: Outcome) -> Ruling | Pending:
        digest = _digest(event)
        if isinstance(outcome, Pending):
            state.waits(digest, _waiting(outcome))
            return outcome
        state.waiting.pop(digest, None)
        if isinstance(outcome, Allowed):
            state.opened(event.call_id, OpenCall(outcome.request_id, self._now_ms()))
        return _ruling(outcome, step)

    async def _finished(self, state: SessionState, session: GuardedSession, event: ToolFinished) -> Ruling | Pending:
        turn = await self._turn(state, session)
        call = state.calls.pop(event.call_id, None)
        step = tool_call_result(
            turn.marks(),
            event.name,
            event.text,
            exit_status="failure" if event.failed else "success",
            request_id_ref=None if call is None else call.request_id,
            duration_ms=None if call is None else max(0, self._now_ms() - call.asked_at_ms),
        )
        outcome = await self._asked(state, turn, step)
        if isinstance(outcome, Pending):
            return Block(f"somebody would have to be asked about this output: {outcome.question}")
        return _ruling(outcome, step)

    async def _asked(self, state: SessionState, turn: GuardedTurn, step: Step[Any]) -> Outcome:
        try:
            return await turn.ask(step)
        finally:
            _count(state, turn)

    async def _held(self, report: Report, pending: Pending) -> Ruling:
        """Waits for a person, letting the session's other hooks through meanwhile."""
        event = cast("ToolRequested", report.event)
        give_up_ms = min(self._now_ms() + int(self._ask_wait_s * 1000), pending.expires_at_ms)
        poll_s = _FIRST_POLL_S
        while (left_ms := give_up_ms - self._now_ms()) > 0:
            await asyncio.sleep(min(poll_s, left_ms / 1000))
            poll_s = min(poll_s * 2, _MAX_POLL_S)
            if pending.polled:
                ruling = await self._again(report.session, event)
                if not isinstance(ruling, Pending):
                    return ruling
        if self._now_ms() >= pending.expires_at_ms:
            return Block(f"nobody answered in time: {pending.question}")
        return Block(f"this waits for an approval: {pending.question} Try the same call again once it was given.")

    async def _again(self, session: str, event: ToolRequested) -> Ruling | Pending:
        async with self._states.held(session) as state:
            return await self._requested(state, await self._session(state), event)

    def _waited(self, state: SessionState, session: GuardedSession, event: ToolRequested) -> Pending | None:
        digest = _digest(event)
        call = state.waiting.get(digest)
        if call is None:
            return None
        if self._now_ms() >= call.expires_at_ms:
            del state.waiting[digest]
            return None
        return Pending(
            kind=cast("PendingKind", call.kind),
            session_id=session.session_id,
            turn_id=call.turn_id,
            method=TOOL_CALL_REQUEST,
            payload=call.payload,
            request_id=call.request_id,
            question=call.question,
            details=call.details,
            expires_at_ms=call.expires_at_ms,
            on_expiry=cast("ExpiryAction", call.on_expiry),
            polled=call.polled,
        )


def _request(turn: GuardedTurn, event: ToolRequested) -> Step[dict[str, object]]:
    return tool_call_request(turn.marks(), event.name, event.arguments, provider=event.provider)


def _ruling(outcome: Allowed | Denied, step: Step[Any]) -> Ruling:
    if isinstance(outcome, Denied):
        return Block(outcome.reasoning)
    if outcome.verdict is None:
        # The settings deny what nobody decided; this holds the line if they ever should not.
        return Block("nobody decided")
    return Replace(step.read(outcome.payload)) if outcome.modified else Proceed()


def _count(state: SessionState, turn: GuardedTurn) -> None:
    counts = turn.counts
    state.counts = None if counts is None else (counts.steps, counts.tool_calls)


def _waiting(pending: Pending) -> WaitingCall:
    return WaitingCall(
        kind=pending.kind,
        turn_id=pending.turn_id,
        payload=dict(pending.payload),
        request_id=pending.request_id,
        question=pending.question,
        details=dict(pending.details),
        expires_at_ms=pending.expires_at_ms,
        on_expiry=pending.on_expiry,
        polled=pending.polled,
    )


def _digest(event: ToolRequested) -> str:
    """What makes two calls the same: the tool and its arguments, not the client's id for the call."""
    shown = json.dumps([event.name, event.provider, event.arguments], sort_keys=True)
    return hashlib.sha256(shown.encode()).hexdigest()
