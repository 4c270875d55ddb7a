"""Turns of an agent under a Guardian (ACS 5, CORE-TURN-01 to 03): begun, counted, and ended whatever happens inside.

Answers for exactly one turnEnd per turnStart that was sent, with the outcome the body had, the counts that are known
and the union of the turn's provenance. Must never let an exception or a cancellation take the turnEnd with it.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from turnkeeper.acs.lineage import Marks
from turnkeeper.client import steps
from turnkeeper.client.asking import Asker, Tally
from turnkeeper.client.errors import ScopeOver, StepDenied, StepInvalid, StepPending, TurnDenied
from turnkeeper.client.helpers import TurnSteps
from turnkeeper.client.outcomes import Allowed, Denied, Outcome, Pending
from turnkeeper.client.steps import Step, TurnOutcome
from turnkeeper.client.timing import to_the_end

T = TypeVar("T")

DEFAULT_SUMMARY = "turn ended"


@dataclass(frozen=True, slots=True)
class TurnCounts:
    """What a turn has sent so far, as far as its chain says; kept between processes that share the turn."""

    steps: int
    tool_calls: int


class GuardedTurn(TurnSteps):
    """One turn: `async with session.turn() as turn`."""

    def __init__(
        self, asker: Asker, turn_id: str, triggered_by: steps.TurnTrigger, parent_turn_id: str | None = None
    ) -> None:
        self._asker = asker
        self._tally = Tally(turn_id, parent_turn_id)
        self._triggered_by: steps.TurnTrigger = triggered_by
        self._outcome: TurnOutcome | None = None
        self._open = False
        self._summary = DEFAULT_SUMMARY

    @property
    def turn_id(self) -> str:
        """The turn's id on the wire."""
        return self._tally.turn_id

    @property
    def session_id(self) -> str:
        """Its session's id on the wire."""
        return self._asker.session_id

    @property
    def head(self) -> str | None:
        """The session's last published chain head."""
        return self._asker.head

    def marks(self) -> Marks:
        """Labels for the values of one step."""
        return self._asker.marks()

    def now_ms(self) -> int:
        """Monotonic time, as the client measures it."""
        return self._asker.core.time.monotonic_ms()

    def conclude(self, outcome: TurnOutcome, *, summary: str | None = None) -> None:
        """Says how the turn ends, in place of what its body's end would say, and what it came to."""
        self._outcome = outcome
        self._summary = summary if summary is not None else self._summary

    async def ask(self, step: Step[Any]) -> Outcome:
        """What a step of this turn came to, as a value. Raises `ScopeOver` outside the turn, and `StepInvalid`."""
        self._check_open()
        return await self._asker.ask(step, self._tally)

    async def settle(self, step: Step[T]) -> Allowed:
        """The step, allowed. Raises `StepDenied`, `StepPending`, `StepInvalid`, `ScopeOver`."""
        return await settled(self._asker, await self.ask(step))

    async def resubmit(self, pending: Pending) -> Outcome:
        """Sends a waiting step again, once, as a step of this turn. Raises `ScopeOver`."""
        self._check_open()
        return await self._asker.resubmit(pending, self._tally)

    async def resolve(self, pending: Pending) -> Allowed | Denied:
        """Waits until a waiting step, of this turn or an earlier one, is decided or over. Raises `ScopeOver`."""
        self._check_open()
        return await self._asker.resolve(pending, self._tally)

    def tool_call(
        self, name: str, arguments: Mapping[str, object], *, capability: str | None = None, provider: str | None = None
    ) -> "ToolCall":
        """A tool call, asked before and reported after: `async with turn.tool_call(name, args) as call`."""
        step = steps.tool_call_request(self.marks(), name, arguments, capability=capability, provider=provider)
        return ToolCall(self, name, step)

    async def call_tool(
        self, name: str, arguments: Mapping[str, object], function: Callable[..., Awaitable[object] | object]
    ) -> object:
        """Asks, calls the function with the arguments that were allowed, reports, and returns what may be read."""
        async with self.tool_call(name, arguments) as call:
            given = function(**call.arguments)
            return await call.result(await given if inspect.isawaitable(given) else given)

    @property
    def counts(self) -> TurnCounts | None:
        """What it has sent so far; None where a step's fate is not known."""
        return TurnCounts(self._tally.steps, self._tally.tool_calls) if self._tally.known else None

    def resume(self, counts: TurnCounts | None) -> None:
        """Takes up a turn that was begun elsewhere: nothing is sent."""
        self._tally.known = counts is not None
        if counts is not None:
            self._tally.steps, self._tally.tool_calls = counts.steps, counts.tool_calls
        self._asker.tallies[self.turn_id] = self._tally
        self._open = True

    async def begin(self) -> None:
        """What entering the turn does, for agents whose hooks are processes of their own. Raises `TurnDenied`."""
        await self.__aenter__()

    async def end(self, outcome: TurnOutcome = "completed") -> None:
        """Sends turnEnd, for agents whose hooks are processes of their own."""
        self._open = False
        await to_the_end(self._end(outcome))

    async def __aenter__(self) -> "GuardedTurn":
        """Sends turnStart. Raises `TurnDenied`; the turn is ended then."""
        start = steps.turn_start(self.turn_id, self._triggered_by, self._tally.parent_turn_id)
        self._asker.tallies[self.turn_id] = self._tally
        try:
            outcome = await self._asker.ask(start, self._tally)
        except StepInvalid:
            raise
        except BaseException as error:
            # Nobody knows whether the Guardian opened the turn; its end is right in both cases.
            await to_the_end(self._end(outcome_of(error)))
            raise
        if isinstance(outcome, Allowed):
            self._open = True
            return self
        denied = outcome if isinstance(outcome, Denied) else Denied(outcome.request_id, outcome.question)
        # Only a Guardian's denial is one; a posture that blocked the start is an error of ours.
        await to_the_end(self._end("denied_at_start" if denied.verdict is not None else "error"))
        raise TurnDenied(denied)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Sends turnEnd, also while a cancellation waits. Lets every exception through."""
        self._open = False
        await to_the_end(self._end(self._outcome or outcome_of(error)))

    def _check_open(self) -> None:
        if not self._open:
            raise ScopeOver(f"turn {self.turn_id} is not open")

    async def _end(self, outcome: TurnOutcome) -> None:
        tally, summary = self._tally, None
        if self._asker.lineage.produces:
            summary = {"value": self._summary} | self.marks().generated(tally.ids.union)
        end = steps.turn_end(
            self.turn_id,
            outcome,
            step_count=tally.steps if tally.known else None,
            tool_call_count=tally.tool_calls if tally.known else None,
            summary=summary,
        )
        await self._asker.ask(end, tally)
        self._asker.tallies.pop(self.turn_id, None)


class ToolCall:
    """One action between its request and its result. `arguments` are the ones to act with."""

    def __init__(self, turn: GuardedTurn, name: str, step: "Step[dict[str, object]]") -> None:
        self._turn = turn
        self._step = step
        self._started_ms = 0
        self._reported = False
        self.name = name
        self.arguments: dict[str, object] = {}
        self.request_id: str | None = None

    async def result(self, output: object, *, exit_status: steps.ExitStatus = "success") -> object:
        """Reports what the action gave; what comes back is what the agent may read. Raises `StepDenied`."""
        self._reported = True
        return await self._turn.tool_call_result(
            self.name,
            output,
            exit_status=exit_status,
            request_id_ref=self.request_id,
            duration_ms=self._turn.now_ms() - self._started_ms,
        )

    async def __aenter__(self) -> "ToolCall":
        """Asks for the action. Raises `StepDenied`, `StepPending`: it must not be done."""
        allowed = await self._turn.settle(self._step)
        self.arguments = self._step.read(allowed.payload)
        # A request that nobody received is no request to refer to.
        self.request_id = allowed.request_id if allowed.verdict is not None else None
        self._started_ms = self._turn.now_ms()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Reports an action that failed or said nothing. Lets every exception through."""
        if self._reported or (error is not None and not isinstance(error, Exception)):
            return
        status: steps.ExitStatus = "success"
        if error is not None:
            status = "timeout" if isinstance(error, TimeoutError) else "failure"
        await self.result("" if error is None else f"{type(error).__name__}: {error}", exit_status=status)


async def settled(asker: Asker, outcome: Outcome) -> Allowed:
    """The outcome, allowed; a step that waits is waited for where the settings say so."""
    if isinstance(outcome, Pending):
        if asker.core.settings.pending == "raise":
            raise StepPending(outcome)
        outcome = await asker.resolve(outcome)
    if isinstance(outcome, Denied):
        raise StepDenied(outcome)
    return outcome


def outcome_of(error: BaseException | None) -> TurnOutcome:
    """How a turn ended whose body ended with this exception, or with none.

    Only a DEFER defers a turn; one that is left while an approver is asked was interrupted.
    """
    if error is None:
        return "completed"
    if isinstance(error, StepPending):
        return "deferred" if error.pending.kind == "defer" else "interrupted"
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit | SystemExit):
        return "interrupted"
    return "error"
