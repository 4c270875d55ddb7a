"""Delivery of what has happened (amendment 3): turnEnds, sessionEnds and the fates of steps nobody waits for any more.

Answers for trying again for as long as a Guardian is down, ever more slowly, session by session; a stuck session holds
no other. Also ends sessions that are due: `session.closed` and its sessionEnd step are one transaction.
"""

from dataclasses import dataclass

from turnkeeper.turns import payloads
from turnkeeper.turns.containment import all_of
from turnkeeper.turns.model import NewStep, Session, SessionReason, StopReason
from turnkeeper.turns.payloads import SESSION_END, SESSION_START
from turnkeeper.turns.ports import PageRequest
from turnkeeper.turns.workbench import Workbench


@dataclass(frozen=True, slots=True)
class _Retry:
    due_ms: int
    delay_ms: int


class Outbox:
    """What one worker still has to tell the Guardian."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._retries: dict[str, _Retry] = {}

    async def deliver(self) -> None:
        """One round over the sessions whose time has come."""
        sessions = await self._bench.store.sessions_with_pending_steps(self._bench.settings.outbox_sessions)
        self._retries = {session: retry for session, retry in self._retries.items() if session in sessions}
        now_ms = self._bench.clock.monotonic_ms()
        due = [
            session for session in sessions if session not in self._retries or self._retries[session].due_ms <= now_ms
        ]
        await all_of(self._deliver(session) for session in due)

    async def end_sessions(self) -> None:
        """Closes the sessions that have nothing left to do."""
        due = await self._bench.store.sessions_to_end(self._bench.settings.outbox_sessions)
        await all_of(self._end_session(session_id) for session_id in due)

    async def _end_session(self, session_id: str) -> None:
        reason = await self._reason(await self._bench.store.session(session_id))
        await self._bench.store.close_ended(session_id, reason, await self._end_step(session_id, reason))

    async def _deliver(self, session_id: str) -> None:
        delivered = False
        try:
            delivered = await self._bench.governor.deliver(session_id)
        finally:
            # Also after an error that nobody foresaw: such a session comes again ever more slowly too.
            if delivered:
                self._retries.pop(session_id, None)
            else:
                self._put_off(session_id)

    def _put_off(self, session_id: str) -> None:
        settings = self._bench.settings
        earlier = self._retries.get(session_id)
        delay_ms = settings.outbox_first_delay_ms if earlier is None else earlier.delay_ms * 2
        delay_ms = min(delay_ms, settings.outbox_max_delay_ms)
        self._retries[session_id] = _Retry(self._bench.clock.monotonic_ms() + delay_ms, delay_ms)

    async def _reason(self, session: Session) -> SessionReason:
        if session.acs_state == "refused":
            return "error"
        last = await self._bench.store.turns(PageRequest(limit=1), session_id=session.id)
        canceled = any(turn.stop_reason is StopReason.SESSION_CLOSED for turn in last.items)
        return "cancelled" if canceled else "completed"

    async def _end_step(self, session_id: str, reason: SessionReason) -> NewStep | None:
        # A session whose sessionStart has no answer is unknown to the Guardian, and nothing can be ended there.
        steps = await self._bench.store.steps(session_id)
        if not any(step.method == SESSION_START and step.state == "answered" for step in steps):
            return None
        payload_json = payloads.session_end(reason)
        return NewStep(self._bench.ids.uuid(), SESSION_END, payload_json, in_window=False, turn_id=None)
