"""Sessions of an agent under a Guardian (ACS 4 and 5): opened with a handshake, closed with a sessionEnd.

Answers for sessionStart before and sessionEnd after everything else, whatever happens inside, and for sessionEnd after
a sessionStart that was denied. Must never start a session that the Guardian refused.
"""

import asyncio
from types import TracebackType
from typing import Any, TypeVar

from turnkeeper.acs.lineage import Marks
from turnkeeper.client import steps
from turnkeeper.client.asking import Asker
from turnkeeper.client.errors import ScopeOver, SessionDenied, StepInvalid
from turnkeeper.client.heads import HeadBreak
from turnkeeper.client.helpers import SessionSteps
from turnkeeper.client.outcomes import Allowed, Denied, Outcome, Pending
from turnkeeper.client.posture import Stance
from turnkeeper.client.steps import SessionReason, Step
from turnkeeper.client.timing import to_the_end
from turnkeeper.client.turns import GuardedTurn, TurnCounts, settled

T = TypeVar("T")


class GuardedSession(SessionSteps):
    """One session: `async with guardian.session() as session`, or what `guardian.attach` returned."""

    def __init__(self, asker: Asker, start: Step[Any] | None) -> None:
        """`start` is the sessionStart to send; None for a session that somebody else began and will end."""
        self._asker = asker
        self._start = start
        self._open = start is None
        self._reason: SessionReason | None = None

    @property
    def session_id(self) -> str:
        """The session's id on the wire."""
        return self._asker.session_id

    @property
    def head(self) -> str | None:
        """The last published chain head; None where entries may have been written that nobody was told of."""
        return self._asker.head

    @property
    def witnessed_head(self) -> str | None:
        """The last published chain head, whatever became of later answers."""
        return self._asker.heads.last

    @property
    def head_breaks(self) -> tuple[HeadBreak, ...]:
        """Answers whose head did not go on from the one before (CORE-CH-08). Each is in the audit log too."""
        return self._asker.heads.breaks

    @property
    def guarded(self) -> bool:
        """Whether there are terms; without them every step is left to the default posture, and recorded."""
        return self._asker.unguarded is None

    @property
    def stance(self) -> Stance:
        """What a missing decision means here, and who said so."""
        return self._asker.stance

    def marks(self) -> Marks:
        """Labels for the values of one step."""
        return self._asker.marks()

    def conclude(self, reason: SessionReason) -> None:
        """Says why the session ends, in place of what its body's end would say."""
        self._reason = reason

    async def ask(self, step: Step[Any]) -> Outcome:
        """What a step outside any turn came to, as a value. Raises `ScopeOver`, `StepInvalid`."""
        if not self._open:
            raise ScopeOver(f"session {self.session_id} is not open")
        return await self._asker.ask(step)

    async def settle(self, step: Step[T]) -> Allowed:
        """The step, allowed. Raises `StepDenied`, `StepPending`, `StepInvalid`, `ScopeOver`."""
        return await settled(self._asker, await self.ask(step))

    async def resubmit(self, pending: Pending) -> Outcome:
        """Sends a waiting step again, once (CORE-DISP-05, CORE-ASK-06)."""
        return await self._asker.resubmit(pending)

    async def resolve(self, pending: Pending) -> Allowed | Denied:
        """Waits until a waiting step is decided or its time is over."""
        return await self._asker.resolve(pending)

    def turn(
        self,
        triggered_by: steps.TurnTrigger = "user_message",
        *,
        turn_id: str | None = None,
        parent: GuardedTurn | None = None,
    ) -> GuardedTurn:
        """A turn of this session, not begun yet. `parent` is the turn it is nested in. Raises `ScopeOver`."""
        if not self._open:
            raise ScopeOver(f"session {self.session_id} is not open")
        wanted = turn_id if turn_id is not None else self._asker.core.ids.uuid()
        return GuardedTurn(self._asker, wanted, triggered_by, None if parent is None else parent.turn_id)

    def attach_turn(self, turn_id: str, *, counts: TurnCounts | None = None) -> GuardedTurn:
        """A turn that was begun elsewhere and is still open; leaving it with `end` is the caller's to do.

        `counts` is what it has sent so far; without them its turnEnd says no number. Raises `ScopeOver`.
        """
        turn = self.turn(turn_id=turn_id)
        turn.resume(counts)
        return turn

    async def begin(self) -> None:
        """What entering the session does, for agents whose hooks are processes of their own.

        Raises `SessionRefused`, `SessionNotStarted`, `SessionDenied`.
        """
        await self.__aenter__()

    async def end(self, reason: SessionReason = "completed") -> None:
        """Sends sessionEnd, for agents whose hooks are processes of their own."""
        self._open = False
        await to_the_end(self._end(reason))

    async def __aenter__(self) -> "GuardedSession":
        """Shakes hands and sends sessionStart. Raises `SessionRefused`, `SessionNotStarted`, `SessionDenied`."""
        if self._start is None:
            return self
        await self._asker.greet()
        try:
            outcome = await self._asker.ask(self._start)
        except StepInvalid:
            raise
        except BaseException as error:
            await to_the_end(self._end(reason_of(type(error))))
            raise
        if not isinstance(outcome, Allowed):
            denied = outcome if isinstance(outcome, Denied) else Denied(outcome.request_id, outcome.question)
            # The Guardian has a session by now, with the denial in its chain: it is sealed, not left open.
            await to_the_end(self._end("error"))
            raise SessionDenied(denied)
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Sends sessionEnd, also while a cancellation waits. Lets every exception through."""
        if self._start is None:
            return
        self._open = False
        await to_the_end(self._end(self._reason or reason_of(kind)))

    async def _end(self, reason: SessionReason) -> None:
        await self._asker.ask(steps.session_end(reason))


def reason_of(kind: type[BaseException] | None) -> SessionReason:
    """Why a session ended whose body ended with this exception, or with none."""
    if kind is None:
        return "completed"
    if issubclass(kind, TimeoutError):
        return "timeout"
    if issubclass(kind, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit | SystemExit):
        return "cancelled"
    return "error"
