"""The platform as Observed Agent: every step persisted, sent, settled, one at a time per session (contract 16).

Answers for the order of a session's steps, for the same request_id at every repeat, for failing closed when no
decision comes in time, and for turnEnd and sessionEnd reaching the Guardian exactly once in effect. Must never let an
action go on that was not allowed, nor let a Guardian that is down hold a terminal event.
INVARIANT: no step of a session is asked while an earlier one of that session has an unknown fate.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

import structlog

from turnkeeper.acs import AcsErrorCode, Refusal, ServerHello, hook_name
from turnkeeper.acs.handshake import HANDSHAKE_REFUSALS, Posture
from turnkeeper.clock import Clock
from turnkeeper.events import catalogue
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns import payloads
from turnkeeper.turns.exchange import ALREADY_GREETED, Exchange, Party
from turnkeeper.turns.lineage import Compactable, SessionLineages
from turnkeeper.turns.measures import NoMeasures, WorkerMeasures
from turnkeeper.turns.model import Draft, Fence, NewStep, Step, StepAnswer
from turnkeeper.turns.pausing import NewPause
from turnkeeper.turns.payloads import GATING_METHODS, OUTBOX_METHODS, SUBAGENT_STOP, TURN_END, TURN_START
from turnkeeper.turns.ports import NotFound, TurnStore
from turnkeeper.turns.rulings import (
    Ruling,
    answer_of_refusal,
    answer_of_verdict,
    not_evaluated,
    ruling_of,
    too_large,
    undecided,
    under_posture,
    withdrawn,
)
from turnkeeper.turns.thread_steps import with_final_head
from turnkeeper.turns.timing import Patience, Waiter
from turnkeeper.turns.windows import steps_since_last_end

MAX_NEGOTIATED_TIMEOUT_MS: Final = 60_000
MAX_QUIET_SESSIONS: Final = 10_000
MAX_RESIGNED_REPEATS: Final = 2
"""How often a refused repeat is sent again with a new nonce. A wire may double that one as well."""

EventsFor: TypeAlias = Callable[[Ruling], Sequence[NewEvent]]
PauseFor: TypeAlias = Callable[[Ruling], NewPause | None]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class GovernorSettings:
    """How long a decision is waited for, what its absence means, and how fast a step is sent again.

    `max_payload_bytes` keeps a step below what a Guardian takes in: a body it cannot read would never be settled.
    """

    decision_timeout_ms: int = 5_000
    on_decision_failure: Posture = "deny"
    max_payload_bytes: int = 900_000
    first_backoff_ms: int = 50
    max_backoff_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class _Question:
    """A step to be decided, and what is written around it."""

    step: Draft | NewStep
    known: Step | None
    fence: Fence | None
    events: Sequence[NewEvent]
    events_for: EventsFor
    pause_for: PauseFor

    @property
    def request_id(self) -> str:
        return self.step.request_id if self.known is None else self.known.request_id


def no_events(_: Ruling) -> Sequence[NewEvent]:
    """For a step whose ruling is nobody's news."""
    return ()


def no_pause(_: Ruling) -> NewPause | None:
    """For a step that no ruling makes wait."""
    return None


class Governor:
    """Asks before things happen and reports what has happened. One per process."""

    def __init__(
        self,
        store: TurnStore,
        exchange: Exchange,
        *,
        clock: Clock,
        waiter: Waiter,
        settings: GovernorSettings,
        measures: WorkerMeasures | None = None,
    ) -> None:
        self._store = store
        self._exchange = exchange
        self._clock = clock
        self._waiter = waiter
        self._settings = settings
        self._measures = measures or NoMeasures()
        self._lineages = SessionLineages(store, exchange.ids, settings.on_decision_failure)
        self._quiet: OrderedDict[str, str] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def greet(self, party: Party) -> Ruling:
        """The handshake, once per session and process. A refusal is a decision: the session must not start."""
        async with self._alone(party.session_id):
            terms = self._exchange.terms(party.chain_id)
            ruling = _ruling_of_terms(terms) if terms is not None else await self._greet(party)
            return under_posture(ruling, self._settings.on_decision_failure)

    async def ask(
        self,
        party: Party,
        step: Draft | NewStep,
        fence: Fence | None,
        *,
        events: Sequence[NewEvent] = (),
        events_for: EventsFor = no_events,
        pause_for: PauseFor = no_pause,
        known: Step | None = None,
    ) -> Ruling:
        """Whether the step may go on.

        A draft is written once every earlier step is settled, and its values labeled then; a new step goes as it is.
        `events` are written with the step before it is sent, those of `events_for` with its answer, and with it the
        pause of `pause_for` where the ruling makes the turn wait. `known` is the step's row where an earlier owner of
        the turn already wrote one: what it says is used, and it is never asked again under another id. Raises
        `StaleFence`.
        """
        async with self._alone(party.session_id):
            question = _Question(step, known, fence, events, events_for, pause_for)
            terms = self._exchange.terms(party.chain_id)
            if terms is not None and not terms.evaluates(step.method):
                ruling = under_posture(not_evaluated(step.method), self._settings.on_decision_failure)
                return await self._unsent(question, ruling)
            if known is not None and known.state != "pending":
                return self._known(known)
            return await self._decided(party, question)

    async def owe(self, fence: Fence, steps: Sequence[NewStep], events: Sequence[NewEvent]) -> None:
        """Writes steps that tell of what has happened, with `events`. They are sent before any other of their session.

        Raises `StaleFence`.
        """
        async with self._alone(fence.session_id):
            self._quiet.pop(fence.session_id, None)
            await self._store.owe_steps(fence, steps, events)

    async def deliver(self, session_id: str) -> bool:
        """One round of a session's outbox: whether nothing is left in it.

        Leaves alone what the owner of a live turn is still asking.
        """
        async with self._alone(session_id):
            session = await self._store.session(session_id)
            for step in await self._store.pending_steps(session_id):
                party = Party(session_id, session.agent_id, step.thread_id)
                if step.method not in OUTBOX_METHODS and await self._is_live(step, session.status):
                    return True
                if not await self._settled(party, step, self._deadline(party, step.method), tries=1):
                    return False
        return True

    async def compactable(self, session_id: str, *, of: tuple[str, ...] | None = None) -> Compactable | None:
        """What a session's agent has in its context, as the Guardian was shown it; None where it is too much."""
        return await self._lineages.compactable(session_id, of=of)

    @asynccontextmanager
    async def _alone(self, session_id: str) -> AsyncGenerator[None]:
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        async with lock:
            yield

    async def _is_live(self, step: Step, session_status: str) -> bool:
        if step.turn_id is None:
            return session_status == "open"
        try:
            return not (await self._store.turn(step.turn_id)).status.terminal
        except NotFound:
            return False

    async def _unsent(self, question: "_Question", ruling: Ruling) -> Ruling:
        news = [*question.events, *question.events_for(ruling), *_proceeded(ruling, question.step)]
        await self._record(question.fence, news)
        return ruling

    def _known(self, known: Step) -> Ruling:
        # Its events were committed with its answer, by whoever owned the turn then.
        answer = StepAnswer(known.state, known.decision, known.chain_hash, known.reasoning, known.reason_codes)
        return under_posture(ruling_of(answer, known), self._settings.on_decision_failure)

    async def _decided(self, party: Party, question: "_Question") -> Ruling:
        since = self._clock.now()
        deadline = self._deadline(party, question.step.method)
        if not await self._earlier_settled(party, question, deadline):
            unasked = question.known is None
            ruling = undecided(request_id=None if unasked else question.request_id, delivered=not unasked)
            return await self._doubtful(question, ruling, since, question.events if unasked else ())
        asked = question.known or await self._asked(party, question)
        if asked is None:
            return await self._unsent(question, too_large(self._settings.max_payload_bytes))
        answer = await self._answer(party, asked, deadline, fresh=question.known is None)
        if answer is None:
            ruling = undecided(request_id=asked.request_id, delivered=True)
            return await self._doubtful(question, ruling, since, ())
        return await self._settle(question, asked, answer)

    async def _asked(self, party: Party, question: "_Question") -> Step | None:
        """The step's row, written now; None for a step that is too large to be sent."""
        step = question.step
        if isinstance(step, Draft):
            marks = await self._lineages.marks(party.session_id, question.fence, party.thread_id)
            step = NewStep(
                step.request_id,
                step.method,
                step.write(marks),
                step.in_window,
                step.turn_id,
                thread_id=step.thread_id,
            )
        if len(step.payload_json or "") > self._settings.max_payload_bytes:
            return None
        return await self._store.ask_step(party.session_id, step, question.fence, question.events)

    async def _settle(self, question: "_Question", asked: Step, answer: StepAnswer) -> Ruling:
        ruling = under_posture(ruling_of(answer, asked), self._settings.on_decision_failure)
        events = [*question.events_for(ruling), *_proceeded(ruling, question.step)]
        pause = question.pause_for(ruling)
        await self._store.answer_step(asked.session_id, asked.request_id, answer, question.fence, events, pause=pause)
        self._lineages.keep(asked, answer, question.fence)
        self._measures.decided(asked.method, answer.decision or answer.state)
        if asked.turn_id is not None:
            self._remember_quiet(asked.session_id, asked.turn_id)
        return ruling

    async def _doubtful(
        self, question: "_Question", ruling: Ruling, since: datetime, events: Sequence[NewEvent]
    ) -> Ruling:
        step = question.step
        self._measures.undecided(step.method)
        ruling = under_posture(ruling, self._settings.on_decision_failure)
        silence = catalogue.guardian_unavailable(turn_id=step.turn_id, hook=hook_name(step.method), since=since)
        news = [*events, silence, *question.events_for(ruling), *_proceeded(ruling, step)]
        await self._record(question.fence, news)
        return ruling

    async def _earlier_settled(self, party: Party, question: "_Question", deadline: int) -> bool:
        # While a turn is asked for here and each of its steps was answered, its session has no other pending step.
        quiet = self._quiet.pop(party.session_id, None)
        if question.step.in_window and quiet is not None and quiet == question.step.turn_id:
            return True
        for step in await self._store.pending_steps(party.session_id):
            if question.known is not None and step.ordinal >= question.known.ordinal:
                return True
            if not await self._settled(replace(party, thread_id=step.thread_id), step, deadline):
                return False
        return True

    def _remember_quiet(self, session_id: str, turn_id: str) -> None:
        self._quiet[session_id] = turn_id
        if len(self._quiet) > MAX_QUIET_SESSIONS:
            self._quiet.popitem(last=False)

    async def _settled(self, party: Party, step: Step, deadline: int, tries: int | None = None) -> bool:
        """Whether an earlier step's fate is known now. Nobody waits for its decision any more."""
        if await self._was_never_opened(step):
            await self._store.answer_step(party.session_id, step.request_id, withdrawn(), None, ())
            return True
        answer = await self._answer(party, step, deadline, tries=tries)
        if answer is None:
            return False
        self._lineages.forget(party.session_id, party.thread_id)
        if step.method in OUTBOX_METHODS and (answer.state == "refused" or _unproven(answer)):
            await self._bury(step, answer)
        else:
            await self._store.answer_step(party.session_id, step.request_id, answer, None, ())
        return True

    async def _was_never_opened(self, step: Step) -> bool:
        # A turnEnd closes the window its turnStart opened; where the Guardian refused the one there is no other.
        if step.method != TURN_END or step.turn_id is None or step.attempts > 0:
            return False
        steps = await self._store.steps(step.session_id, turn_id=step.turn_id, thread_id=step.thread_id)
        window = steps_since_last_end(steps, before=step.ordinal)
        return all(other.state == "refused" for other in window if other.method == TURN_START)

    async def _bury(self, step: Step, answer: StepAnswer) -> None:
        dead = StepAnswer("dead", None, None, answer.reasoning, answer.reason_codes, answer.error_code)
        reason = answer.reasoning or "a repeat was refused and the entry cannot be shown"
        _log.error("guardian_dead_letter", method=step.method, request_id=step.request_id, error_code=dead.error_code)
        event = catalogue.guardian_dead_letter(
            turn_id=step.turn_id,
            hook=hook_name(step.method),
            request_id=step.request_id,
            error_code=answer.error_code,
            reason=reason,
        )
        await self._store.answer_step(step.session_id, step.request_id, dead, None, [event])

    async def _answer(
        self, party: Party, step: Step, deadline: int, *, tries: int | None = None, fresh: bool = False
    ) -> StepAnswer | None:
        """Sends a step until it has an answer that holds, or the time or the tries are over.

        `fresh`: its row was written just now, for this send; only repeats are counted in it.
        """
        payload_json = await self._payload(step)
        patience, repeats, sent = self._patience(deadline), 0, 0
        while patience.left_ms > 0 and (tries is None or sent < tries + repeats):
            if sent > 0 or not fresh:
                step = await self._store.attempt_step(party.session_id, step.request_id, payload_json=payload_json)
            heard = await self._exchange.step(party, step, timeout_ms=patience.left_ms)
            sent += 1
            if isinstance(heard, Refusal):
                repeats += heard.code == AcsErrorCode.REPLAY_DETECTED
                answer = answer_of_refusal(heard, repeated=repeats > MAX_RESIGNED_REPEATS)
            else:
                answer = None if heard is None else answer_of_verdict(heard)
            if answer is not None:
                return answer
            await patience.pause()
        return None

    async def _payload(self, step: Step) -> str | None:
        """What was left open in a payload until it is sent."""
        if step.method == SUBAGENT_STOP and step.payload_json is not None and step.attempts == 0:
            return await with_final_head(self._store, step)
        if step.payload_json is not None or step.method != TURN_END or step.turn_id is None or step.outcome is None:
            return None
        counts = await self._store.step_counts(step.session_id, step.turn_id, thread_id=step.thread_id)
        union = await self._lineages.union(step.session_id, step.turn_id, step.thread_id)
        return payloads.turn_end(self._lineages.blank(), step.turn_id, step.outcome, counts, union)

    async def _greet(self, party: Party) -> Ruling:
        patience = self._patience(self._clock.monotonic_ms() + self._settings.decision_timeout_ms)
        while patience.left_ms > 0:
            heard = await self._exchange.hello(party, timeout_ms=patience.left_ms)
            if isinstance(heard, ServerHello):
                return _ruling_of_terms(heard)
            if isinstance(heard, Refusal) and heard.reason == ALREADY_GREETED:
                return Ruling("allowed", allowed=True)
            if isinstance(heard, Refusal) and heard.code in HANDSHAKE_REFUSALS:
                codes = (heard.reason,) if heard.reason else ()
                return Ruling("denied", allowed=False, reasoning=heard.message, reason_codes=codes)
            await patience.pause()
        return undecided(request_id=None, delivered=False)

    def _patience(self, deadline: int) -> Patience:
        settings = self._settings
        return Patience(
            self._clock,
            self._waiter,
            deadline,
            first_ms=settings.first_backoff_ms,
            max_ms=settings.max_backoff_ms,
        )

    def _deadline(self, party: Party, method: str) -> int:
        terms = self._exchange.terms(party.chain_id)
        negotiated = terms.timeout_ms(method) if terms is not None else 0
        wait_ms = max(self._settings.decision_timeout_ms, min(negotiated, MAX_NEGOTIATED_TIMEOUT_MS))
        return self._clock.monotonic_ms() + wait_ms

    async def _record(self, fence: Fence | None, events: Sequence[NewEvent]) -> None:
        if fence is not None and events:
            await self._store.record(fence, events)


def _ruling_of_terms(terms: ServerHello) -> Ruling:
    missing = [method for method in GATING_METHODS if not terms.evaluates(method)]
    return not_evaluated(missing[0]) if missing else Ruling("allowed", allowed=True)


def _unproven(answer: StepAnswer) -> bool:
    # A repeat that was refused counts as delivered only when the entry can be shown (amendment 3).
    return answer.error_code == AcsErrorCode.REPLAY_DETECTED


def _proceeded(ruling: Ruling, step: Draft | NewStep) -> Sequence[NewEvent]:
    if not ruling.proceeded:
        return ()
    return [catalogue.guardian_proceeded(turn_id=step.turn_id, hook=hook_name(step.method), request_id=step.request_id)]
