"""One session's questions, one at a time (ACS 6.4): terms, order, judgement, and what is written about it.

Answers for a session's handshake and startup posture, for steps that reach the Guardian in the order they were asked,
for a record before every step that goes on undecided, and for steps that wait. Must never ask a step of a session while
another of it is on its way, nor let the wait for an approver end in an ALLOW because the wire broke.
"""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, Final

from turnkeeper.acs import (
    HANDSHAKE_METHOD,
    AnswerRejected,
    SchemaViolation,
    ServerHello,
    Verdict,
    build_client_hello,
    hook_spec,
    validator,
)
from turnkeeper.acs.lineage import Lineage, LineageFull, Marks, TurnIds
from turnkeeper.client.audit import Auditor
from turnkeeper.client.errors import ScopeOver, SessionNotStarted, SessionRefused, StepInvalid
from turnkeeper.client.exchange import Exchange, Heard, LateNote, Message
from turnkeeper.client.heads import HEAD_MISMATCH, HeadBreak, WitnessedHeads
from turnkeeper.client.identity import Identity
from turnkeeper.client.outcomes import Allowed, Denied, Outcome, Pending
from turnkeeper.client.posture import (
    Effect,
    Failure,
    FailureKind,
    Judgement,
    Note,
    Question,
    Stance,
    is_handshake_refusal,
    judge_failure,
    judge_unevaluated,
    may_start_unguarded,
    stance_of,
    startup_stance,
)
from turnkeeper.client.settings import ClientSettings
from turnkeeper.client.steps import TOOL_CALL_REQUEST, Payload, Step
from turnkeeper.client.terms import SavedTerms, TermsStore, verified_terms
from turnkeeper.client.timing import Time
from turnkeeper.client.verdicts import judge_expiry, judge_verdict
from turnkeeper.ids import IdSource

REFERENCE: Final = "request_id_ref"

_STRICT: Final = ".acs-provenance"
_LABELLED: Final = frozenset(
    {
        "hooks/agent-response",
        "hooks/knowledge-retrieval",
        "hooks/memory-context-retrieval",
        "hooks/memory-store",
        "hooks/tool-call-request",
        "hooks/tool-call-result",
        "hooks/user-message",
    }
)


@dataclass(frozen=True, slots=True)
class Core:
    """What every session of a client shares."""

    identity: Identity
    exchange: Exchange
    transport_name: str
    settings: ClientSettings
    auditor: Auditor
    saved: TermsStore
    time: Time
    ids: IdSource


@dataclass(slots=True)
class Tally:
    """What one turn has sent, as far as it is known that the Guardian wrote it."""

    turn_id: str
    parent_turn_id: str | None = None
    steps: int = 0
    tool_calls: int = 0
    known: bool = True
    ids: TurnIds = field(default_factory=TurnIds)

    @property
    def metadata(self) -> dict[str, object] | None:
        """What each step says of its turn beside the turn's id."""
        return None if self.parent_turn_id is None else {"parent_turn_id": self.parent_turn_id}


class Asker:
    """One session at the Guardian."""

    def __init__(self, core: Core, session_id: str) -> None:
        self.session_id = session_id
        self.lineage = Lineage(core.ids, produces=core.settings.provenance == "deterministic")
        self.terms: ServerHello | None = None
        self.unguarded: Failure | None = None
        self.head: str | None = None
        self.heads = WitnessedHeads()
        self.tallies: dict[str, Tally] = {}
        self._core = core
        self._observed = core.identity.observed(session_id)
        self._lock = asyncio.Lock()

    @property
    def core(self) -> Core:
        """What it shares with the client's other sessions."""
        return self._core

    @property
    def stance(self) -> Stance:
        """What a missing decision means in this session."""
        return stance_of(self.terms, self._core.settings.posture)

    @property
    def greeted(self) -> bool:
        """Whether it is settled under which terms, or under none, the session runs."""
        return self.terms is not None or self.unguarded is not None

    async def greet(self, *, saved: bool = False) -> None:
        """Agrees on terms, or on having none. `saved` terms are used where their signature still holds.

        Raises `SessionRefused`, `SessionNotStarted`.
        """
        async with self._lock:
            if saved and self._recall():
                return
            heard = await self._hello()
            if isinstance(heard.answer, ServerHello):
                self.terms = heard.answer
                self._core.saved.save(self.session_id, SavedTerms(heard.request_id, heard.raw))
                return
            failure = heard.answer if isinstance(heard.answer, Failure) else _no_answer_to("a hello")
            self._start_without_terms(failure, heard.request_id)

    async def ask(self, step: Step[Any], tally: Tally | None = None) -> Outcome:
        """What the step came to; its records are written by then.

        Raises `StepInvalid` for a step the standard refuses, and what the audit sink raises.
        """
        self._check(step)
        turn_id = None if tally is None else tally.turn_id
        question = Question(step.method, step.payload, None, self.session_id, turn_id)
        outcome, delivered = await self._answered(question, step.payload, tally)
        if step.marks is not None:
            self._keep(step.marks, seen=isinstance(outcome, Allowed), tally=tally if delivered else None)
        return outcome

    async def resubmit(self, pending: Pending, tally: Tally | None = None) -> Outcome:
        """Sends a waiting step again, once: decided now, or still waiting. A wire that breaks changes nothing.

        It belongs to the turn of `tally`, else to its own turn where that is still open, else to none.
        """
        tally = tally or self.tallies.get(pending.turn_id or "")
        turn_id = None if tally is None else tally.turn_id
        question = Question(pending.method, pending.payload, None, self.session_id, turn_id)
        sent = {**pending.payload, REFERENCE: pending.request_id}
        outcome, _ = await self._answered(question, sent, tally, waiting=pending)
        if isinstance(outcome, Pending) and outcome.kind == pending.kind:
            return replace(outcome, request_id=pending.request_id, expires_at_ms=pending.expires_at_ms)
        return outcome

    async def resolve(self, pending: Pending, tally: Tally | None = None) -> Allowed | Denied:
        """Waits until a step is decided or its time is over, and then does what the Guardian said (ACS 6.1, 9)."""
        time, timing = self._core.time, self._core.settings.timing
        poll_ms = timing.first_poll_ms
        while (left_ms := pending.expires_at_ms - time.monotonic_ms()) > 0:
            await time.sleep(min(poll_ms, left_ms) if pending.polled else left_ms)
            # At the very end a Guardian may say that it is over; where that means ALLOW, it has said so already.
            if pending.polled and (left_ms > poll_ms or pending.on_expiry != "allow"):
                outcome = await self.resubmit(pending, tally)
                if not isinstance(outcome, Pending):
                    return outcome
                pending = outcome
            poll_ms = min(poll_ms * 2, timing.max_poll_ms)
        return await self._expired(pending, tally)

    def marks(self) -> Marks:
        """Labels for a step's values."""
        return self.lineage.marks()

    def _keep(self, marks: Marks, *, seen: bool, tally: Tally | None) -> None:
        try:
            self.lineage.keep(marks, seen=seen)
            if tally is not None:
                tally.ids.add(marks)
        except LineageFull as full:
            raise StepInvalid(full.message) from full

    async def _expired(self, pending: Pending, tally: Tally | None) -> Allowed | Denied:
        if pending.on_expiry == "ask":
            outcome = await self.resubmit(pending, tally)
            if not isinstance(outcome, Pending):
                return outcome
            if outcome.kind == "ask":
                return await self.resolve(outcome, tally)
        judgement = judge_expiry(pending)
        question = Question(pending.method, pending.payload, pending.request_id, self.session_id, pending.turn_id)
        self._write(question, judgement.notes)
        if isinstance(judgement.outcome, Pending):
            raise ScopeOver("an expired step still waits")
        return judgement.outcome

    async def _answered(
        self, question: Question, sent: Payload, tally: Tally | None, *, waiting: Pending | None = None
    ) -> tuple[Outcome, bool]:
        """The outcome, and whether the Guardian is known to have the step."""
        async with self._lock:
            try:
                judgement, question, delivered = await self._judged(question, sent, tally, waiting)
            except asyncio.CancelledError:
                if tally is not None:
                    tally.known = False
                raise
            self._write(question, judgement.notes)
        return judgement.outcome, delivered

    async def _judged(
        self, question: Question, sent: Payload, tally: Tally | None, waiting: Pending | None
    ) -> tuple[Judgement, Question, bool]:
        rules = self._core.settings.posture
        if self.unguarded is not None:
            question = replace(question, request_id=self._core.ids.uuid())
            return self._unguarded(question, self.unguarded), question, False
        if self.terms is None:
            raise ScopeOver("the session has not begun")
        if not self.terms.evaluates(question.method):
            return judge_unevaluated(question, rules), question, False
        stated = self.head if self._core.settings.witness_head else None
        heard = await self._send(question, sent, tally, self.terms, stated)
        question = replace(question, request_id=heard.request_id)
        if isinstance(heard.answer, Verdict):
            self._count(question, heard, tally)
            now_ms = self._core.time.monotonic_ms()
            judgement = judge_verdict(question, heard.answer, self._core.settings.abilities, now_ms)
            return self._witnessed(judgement, heard.request_id, heard.answer, stated), question, True
        failure = heard.answer if isinstance(heard.answer, Failure) else _no_answer_to("a step")
        self._doubt(heard, tally)
        if waiting is not None:
            # The step was decided: it waits. A wire that breaks meanwhile is no reason to let it go on.
            note = Note("decision_failure", "blocked", failure, applied="still_waiting")
            return Judgement(waiting, (note,)), question, False
        return judge_failure(question, failure, self.stance, rules), question, False

    def _unguarded(self, question: Question, failure: Failure) -> Judgement:
        session = _handshake(failure)
        # That the hello was refused for its key, say, is no word on this step.
        shown = session if failure.kind is FailureKind.ERROR else failure
        return judge_failure(question, shown, self.stance, self._core.settings.posture, session_failure=session)

    def _witnessed(self, judgement: Judgement, request_id: str, verdict: Verdict, stated: str | None) -> Judgement:
        broken = self.heads.witness(request_id, verdict, stated=stated)
        notes = () if broken is None else (_head_note(broken, verdict),)
        if self._core.settings.audit_decisions:
            notes = (*notes, _decision_note(judgement.outcome, verdict))
        return replace(judgement, notes=(*judgement.notes, *notes))

    async def _send(
        self, question: Question, sent: Payload, tally: Tally | None, terms: ServerHello, stated: str | None
    ) -> Heard:
        settings = self._core.settings
        message = Message(
            question.method,
            sent,
            self._core.ids.uuid(),
            question.turn_id,
            stated,
            None if tally is None else tally.metadata,
        )
        budget_ms = min(terms.timeout_ms(question.method), settings.timing.max_decision_ms)
        late = self._late(replace(question, request_id=message.request_id))
        return await self._core.exchange.ask(self._observed, message, budget_ms=budget_ms, late=late)

    def _count(self, question: Question, heard: Heard, tally: Tally | None) -> None:
        chain_hash = heard.answer.chain_hash if isinstance(heard.answer, Verdict) else None
        if chain_hash is not None:
            self.head = chain_hash
        if tally is None:
            return
        tally.known = tally.known and not heard.doubtful
        if chain_hash is not None and question.method not in ("steps/turnStart", "steps/turnEnd"):
            tally.steps += 1
            tally.tool_calls += _is_tool_call(question)

    def _doubt(self, heard: Heard, tally: Tally | None) -> None:
        if heard.doubtful:
            self.head = None
            if tally is not None:
                tally.known = False

    def _late(self, question: Question) -> LateNote:
        def note(verdict: Verdict) -> None:
            self._write(question, (Note("late_decision", "observed", received=verdict.decision.value),))

        return note

    def _recall(self) -> bool:
        saved = self._core.saved.load(self.session_id)
        if saved is None:
            return False
        try:
            self.terms = verified_terms(self._observed, saved)
        except AnswerRejected as error:
            failure = Failure(FailureKind.SIGNATURE, "the saved terms are not the Guardian's", reason=error.error_code)
            self._write(self._greeting(saved.request_id), (Note("saved_terms_rejected", "observed", failure),))
            self._core.saved.forget(self.session_id)
            return False
        return True

    async def _hello(self) -> Heard:
        settings = self._core.settings
        payload = build_client_hello(
            methods=settings.methods_implemented,
            transports=(self._core.transport_name,),
            profiles=settings.profiles_supported,
            provenance_producer=settings.provenance,
            max_payload_size_bytes=settings.max_payload_bytes,
        )
        if settings.mcp_version is not None:
            payload["wrapped_protocols"] = [{"protocol": "MCP", "version": settings.mcp_version}]
        message = Message(HANDSHAKE_METHOD, payload, self._core.ids.uuid())
        return await self._core.exchange.ask(
            self._observed, message, budget_ms=settings.timing.handshake_ms, late=_unheard
        )

    def _start_without_terms(self, failure: Failure, request_id: str) -> None:
        started = may_start_unguarded(failure, self._core.settings.posture)
        session = _handshake(failure)
        event = "unguarded_start" if started else "session_not_started"
        note = Note(event, "proceeded" if started else "blocked", session, session)
        stance = startup_stance(self._core.settings.posture)
        self._core.auditor.write(self._greeting(request_id), stance, note)
        if started:
            self.unguarded = failure
            return
        detail = failure.to_document()
        if is_handshake_refusal(failure):
            raise SessionRefused(f"the Guardian refused the session: {failure.message}", detail=detail)
        raise SessionNotStarted(f"no terms with the Guardian: {failure.message}", detail=detail)

    def _greeting(self, request_id: str) -> Question:
        return Question(HANDSHAKE_METHOD, {}, request_id, self.session_id)

    def _write(self, question: Question, notes: tuple[Note, ...]) -> None:
        for note in notes:
            self._core.auditor.write(question, self.stance, note)

    def _check(self, step: Step[Any]) -> None:
        spec = hook_spec(step.method)
        if spec is None:
            raise StepInvalid(f"ACS defines no method {step.method!r}")
        if spec.schema is None:
            return
        strict = self.lineage.produces and spec.schema in _LABELLED
        try:
            validator(spec.schema + (_STRICT if strict else "")).check(step.payload)
        except SchemaViolation as violation:
            raise StepInvalid(f"{step.method} would be refused: {violation.message}", detail=violation.detail) from None


def _is_tool_call(question: Question) -> bool:
    if question.method.endswith("/tools/call"):
        # A response is carried under the method it answers.
        return "method" in question.payload
    return question.method == TOOL_CALL_REQUEST


def _head_note(broken: HeadBreak, verdict: Verdict) -> Note:
    return Note(
        HEAD_MISMATCH,
        "observed",
        received=verdict.decision.value,
        reason_codes=(broken.code,),
        chain_hash=broken.published,
        witnessed_head=broken.witnessed,
    )


def _decision_note(outcome: Outcome, verdict: Verdict) -> Note:
    effect: Effect = "blocked" if isinstance(outcome, Denied) else "proceeded"
    return Note(
        "decision",
        "observed" if isinstance(outcome, Pending) else effect,
        received=verdict.decision.value,
        reason_codes=verdict.reason_codes,
        chain_hash=verdict.chain_hash,
    )


def _handshake(failure: Failure) -> Failure:
    return replace(failure, kind=FailureKind.HANDSHAKE)


def _no_answer_to(what: str) -> Failure:
    return Failure(FailureKind.MALFORMED, f"the answer is none to {what}")


def _unheard(_: Verdict) -> None:
    """A hello that is answered too late is asked again by a later session."""
