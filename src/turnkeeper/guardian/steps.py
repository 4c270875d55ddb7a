"""One authenticated request against its session (rows 9 to 21): what is answered and what must be recorded.

Answers for the order of these checks and for one `StepRecord` per request that was reserved, its refusals included.
Synchronous on purpose: between the replay check and the record nothing else may run. Must never change a session
before everything that can fail has succeeded.
"""

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final, cast

import orjson

from turnkeeper.acs import (
    AcsError,
    AcsErrorCode,
    CanonicalizationRejected,
    ContextEntry,
    Decision,
    Disposition,
    ReplayDetected,
    SchemaViolation,
    TimestampMalformed,
    canonicalize_safe,
    check_window,
    link,
    parse_timestamp,
    same_major,
    validator,
)
from turnkeeper.errors import LocalProtocolError
from turnkeeper.guardian.answers import render_decision, render_error, render_hello
from turnkeeper.guardian.calls import Call, checked_payload, payload_schema
from turnkeeper.guardian.capabilities import abilities_of
from turnkeeper.guardian.components import AGBOM_CHANGED, AGBOM_SNAPSHOT, check_registration
from turnkeeper.guardian.dispositions import Recipient
from turnkeeper.guardian.handshakes import first_terms, saved_terms
from turnkeeper.guardian.ledger import consider, settled
from turnkeeper.guardian.mcp import check_shape, is_tool_call
from turnkeeper.guardian.memory import SessionMemory
from turnkeeper.guardian.ports import (
    MAX_TURN_SUMMARY_CHARACTERS,
    NOT_LOOKED_UP,
    ExtensionRecord,
    FindingRecord,
    Lookup,
    RecordedAnswer,
    SessionProgress,
    SessionTerms,
    StepKind,
    StepRecord,
    TurnClosed,
    UsedBefore,
)
from turnkeeper.guardian.provenance import KnownDatum, Trace, step_summary
from turnkeeper.guardian.questions import Asking, asked_by, extension_record
from turnkeeper.guardian.resubmissions import Resubmission, resubmission_of
from turnkeeper.guardian.sessions import LiveSession, Sessions
from turnkeeper.guardian.settings import MAX_IDENTIFIER_CHARACTERS, GuardianSettings
from turnkeeper.guardian.subagents import SUBAGENT_START
from turnkeeper.guardian.verdicts import decide
from turnkeeper.guardian.windows import SESSION_END, TURN_END, TURN_START, Placement
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.records import record

SESSION_CLOSED: Final = "session_closed"


class StepDenied(Exception):
    """A step that is denied without an entry. `code` and `reasoning` are what the decision says."""

    def __init__(self, code: str, reasoning: str) -> None:
        super().__init__(reasoning)
        self.code = code
        self.reasoning = reasoning


@record
class Recorded:
    """An answer that may leave once its record is durable."""

    live: LiveSession
    record: StepRecord


@dataclass(frozen=True, slots=True)
class Repeated:
    """An authenticated repeat under a new nonce, which is owed the earlier answer."""

    live: LiveSession
    nonce: str


class StepDesk:
    """Takes authenticated requests to their sessions."""

    def __init__(self, settings: GuardianSettings, sessions: Sessions, engine: PolicyEngine) -> None:
        self._settings = settings
        self._sessions = sessions
        self._engine = engine
        self._abilities = lru_cache(maxsize=settings.max_cached_sessions)(partial(abilities_of, settings.clients))
        self._overrides = {(override.origin, override.source_id): override for override in settings.trust_overrides}

    def take(
        self,
        call: Call,
        live: LiveSession | None,
        used: UsedBefore | None,
        looked_up: Lookup = NOT_LOOKED_UP,
        heard: PolicyEngine | None = None,
    ) -> Recorded | Repeated:
        """What is answered to a request.

        `live` is its session as it stands now; `used` what the store knows of its ids where the session's memory is
        not complete, `looked_up` what the step names outside its session, `heard` what decides in the policy's place.
        Raises `AcsError` and `StepDenied` for what leaves no record, `Unheard` before anything has changed.
        """
        if live is None:
            return self._first_hello(call)
        _check_binding(call, live)
        _check_time(call, live.terms.skew_window_ms)
        if (repeated := _check_replay(call, live, used)) is not None:
            return repeated
        try:
            if call.spec is None:
                return self._hello_again(call, live)
            return self._step(call, live, _with_reference(call, live, used, looked_up), heard or self._engine)
        except AcsError as error:
            return _refused(call, live, error)
        except StepDenied as denied:
            return _denied(call, live, denied)

    def _first_hello(self, call: Call) -> Recorded:
        if call.spec is not None:
            raise AcsError(
                AcsErrorCode.CAPABILITY_NOT_NEGOTIATED,
                "session_unknown",
                "the session has not shaken hands; send handshake/hello first",
                {"method": call.envelope.method},
            )
        _check_time(call, self._settings.skew_window_ms)
        terms = first_terms(call, self._settings)
        server_hello: dict[str, object] = orjson.loads(terms.server_hello)
        live = self._sessions.create(terms)
        recorded = _record(call, live, StepKind.HELLO, render_hello(call, server_hello), _NOTHING, new_session=terms)
        self._sessions.keep(live)
        return recorded

    def _hello_again(self, call: Call, live: LiveSession) -> Recorded:
        server_hello = saved_terms(call, live.terms, closed=live.progress.closed)
        return _record(call, live, StepKind.HELLO, render_hello(call, server_hello), _NOTHING)

    def _step(self, call: Call, live: LiveSession, looked_up: Lookup, engine: PolicyEngine) -> Recorded:
        _check_negotiated(call, live)
        _check_payload(call, live.terms)
        if live.progress.closed:
            raise StepDenied(SESSION_CLOSED, "The session has ended.")
        return self._decide(call, live, looked_up, engine)

    def _decide(self, call: Call, live: LiveSession, looked_up: Lookup, engine: PolicyEngine) -> Recorded:
        progress = live.progress
        considered = consider(
            call.envelope,
            call.spec,
            terms=live.terms,
            progress=progress,
            lineage=live.lineage,
            looked_up=looked_up,
            overrides=self._overrides,
        )
        again = resubmission_of(call.envelope, call.spec, considered.memory, looked_up.approval, call.received_at_ms)
        ruling = decide(call, progress, considered, engine, to=self._recipient(live, again), again=again)
        decision = ruling.decision
        placement = considered.placement.decided(decision.disposition)
        waits_still = again is not None and again.waits
        memory = settled(considered, placement, call.envelope, decision.disposition, waits_still=waits_still)
        asked = asked_by(call, live.terms, considered, ruling, again=again, memory=memory)
        extension = extension_record(progress, asked)
        entry = _entry(call, placement, progress.head if extension is None else extension.chain_hash, considered.traced)
        head = str(entry["entry_hash"])
        return _record(
            call,
            live,
            StepKind.STEP,
            render_decision(call, decision, head),
            RecordedAnswer(decision.disposition.value, head, None),
            progress=_advanced(call, progress, placement, head, asked.memory, more=extension is not None),
            entry=orjson.dumps(entry),
            placement=placement,
            findings=ruling.findings,
            lineage=considered.traced.remembered,
            asked=asked,
            extension=extension,
        )

    def _recipient(self, live: LiveSession, again: Resubmission | None) -> Recipient:
        terms, settings = live.terms, self._settings
        abilities = self._abilities(terms.key_id, terms.agent_id)
        # Whoever still waits is told so however many deferrals there were: this one was counted when it began.
        deferrals = 0 if again is not None and again.waits else live.progress.memory.deferrals
        return Recipient(abilities, deferrals, settings.max_deferrals)


_NOTHING = RecordedAnswer(None, None, None)
_NOWHERE = Placement(None)


def _with_reference(call: Call, live: LiveSession, used: UsedBefore | None, looked_up: Lookup) -> Lookup:
    if call.reference is None:
        return looked_up
    found = live.memory.method_of(call.reference) or (None if used is None else used.referenced_method)
    return replace(looked_up, referenced_method=found)


def _check_binding(call: Call, live: LiveSession) -> None:
    if call.key.key_id != live.terms.key_id:
        denied = StepDenied("key_not_bound", "The session belongs to another key.")
    elif call.envelope.agent_id != live.terms.agent_id:
        denied = StepDenied("agent_id_not_bound", "The session belongs to another agent.")
    else:
        return
    if call.spec is None:
        raise AcsError(AcsErrorCode.SESSION_REFUSED, denied.code, denied.reasoning)
    raise denied


def _check_time(call: Call, skew_window_ms: int) -> None:
    try:
        at = parse_timestamp(call.envelope.timestamp)
    except TimestampMalformed as malformed:
        raise AcsError(AcsErrorCode.INVALID_REQUEST, "envelope_invalid", malformed.message) from malformed
    check_window(at, call.received, skew_window_ms)


def _check_replay(call: Call, live: LiveSession, used: UsedBefore | None) -> Repeated | None:
    request_id, nonce = call.envelope.request_id, call.envelope.nonce
    memory = live.memory
    old_nonce = nonce is not None and (memory.has_nonce(nonce) or (used is not None and used.nonce))
    if memory.has_request_id(request_id) or (used is not None and used.request is not None):
        # Whoever copied an earlier message has no nonce of its own to offer, and learns nothing.
        if nonce is None or old_nonce:
            raise ReplayDetected("request_id")
        return Repeated(live, nonce)
    if old_nonce:
        raise ReplayDetected("nonce")
    return None


def _check_negotiated(call: Call, live: LiveSession) -> None:
    if call.envelope.method not in live.terms.methods:
        raise AcsError(
            AcsErrorCode.CAPABILITY_NOT_NEGOTIATED,
            "method_not_negotiated",
            "the session's handshake did not name this method",
            {"method": call.envelope.method},
        )
    if not same_major(call.envelope.acs_version, live.terms.acs_version):
        raise AcsError(
            AcsErrorCode.UNSUPPORTED_VERSION,
            "unsupported_version",
            f"the session speaks {live.terms.acs_version}",
            {"supported_versions": [live.terms.acs_version]},
        )


def _check_payload(call: Call, terms: SessionTerms) -> None:
    schema = None if call.spec is None else call.spec.schema
    payload = call.envelope.payload
    if schema is None:
        check_shape(call.envelope)
        return
    try:
        validator(payload_schema(schema, strict=terms.strict_provenance)).check(checked_payload(call.envelope))
    except SchemaViolation as violation:
        raise AcsError(
            AcsErrorCode.INVALID_PARAMS, "payload_invalid", violation.message, violation.detail
        ) from violation
    if call.envelope.method == SUBAGENT_START:
        _check_subagent(call)
    if call.envelope.method in (AGBOM_SNAPSHOT, AGBOM_CHANGED) and terms.strict_provenance:
        check_registration(call.envelope)
    if call.envelope.method in (TURN_START, TURN_END) and len(str(payload["turn_id"])) > MAX_IDENTIFIER_CHARACTERS:
        raise AcsError(
            AcsErrorCode.INVALID_PARAMS,
            "identifier_too_long",
            f"/turn_id has more than {MAX_IDENTIFIER_CHARACTERS} characters",
        )


def _check_subagent(call: Call) -> None:
    # UUIDs are the same whatever the case of their digits.
    if str(call.envelope.payload["subagent_session_id"]).lower() == call.envelope.session_id.lower():
        raise AcsError(
            AcsErrorCode.INVALID_PARAMS,
            "subagent_session_not_fresh",
            "/subagent_session_id is the session's own; a subagent has a session of its own",
        )


def _entry(call: Call, placement: Placement, head: str | None, traced: Trace) -> dict[str, object]:
    summary = step_summary(call.envelope.request_id, traced.data)
    entry = ContextEntry.for_request(
        call.envelope, turn_id=placement.turn_id, provenance_summary=summary, params_hash=call.params_hash
    )
    try:
        # Texts and counts alone, under names of the standard's: this document needs no looking through.
        return link(entry.to_document(), head, canonicalize_safe)
    except CanonicalizationRejected as rejected:
        raise LocalProtocolError(f"an entry has no canonical form: {rejected.message}") from rejected


def _advanced(
    call: Call, progress: SessionProgress, placement: Placement, head: str, memory: SessionMemory, *, more: bool
) -> SessionProgress:
    return SessionProgress(
        head=head,
        recorded=progress.recorded + 1 + more,
        entries=progress.entries + 1 + more,
        tool_calls=progress.tool_calls + is_tool_call(call.envelope),
        turns=progress.turns + placement.opened,
        closed=call.envelope.method == SESSION_END,
        window=placement.window,
        memory=memory,
    )


def _closed(call: Call, placement: Placement) -> TurnClosed | None:
    if placement.closed is None:
        return None
    payload = call.envelope.payload
    summary = cast("dict[str, str]", payload.get("summary", {})).get("value")
    kept = None if summary is None else summary[:MAX_TURN_SUMMARY_CHARACTERS]
    return TurnClosed(placement.closed, str(payload["outcome"]), kept)


def _refused(call: Call, live: LiveSession, error: AcsError) -> Recorded:
    response = render_error(error, call.envelope.id, call.key)
    return _record(call, live, StepKind.REFUSAL, response, RecordedAnswer(None, None, int(error.rpc_code)))


def _denied(call: Call, live: LiveSession, denied: StepDenied) -> Recorded:
    if call.audit_only:
        return _refused(call, live, AcsError(AcsErrorCode.SESSION_REFUSED, denied.code, denied.reasoning))
    decision = Decision(Disposition.DENY, denied.reasoning, (denied.code,))
    answer = RecordedAnswer(decision.disposition.value, None, None)
    return _record(call, live, StepKind.REFUSAL, render_decision(call, decision, None), answer)


def _record(
    call: Call,
    live: LiveSession,
    kind: StepKind,
    response: bytes,
    answer: RecordedAnswer,
    *,
    progress: SessionProgress | None = None,
    entry: bytes | None = None,
    placement: Placement = _NOWHERE,
    findings: tuple[FindingRecord, ...] = (),
    lineage: tuple[KnownDatum, ...] = (),
    new_session: SessionTerms | None = None,
    asked: Asking | None = None,
    extension: ExtensionRecord | None = None,
) -> Recorded:
    standing = progress or replace(live.progress, recorded=live.progress.recorded + 1)
    record = StepRecord(
        session_id=call.envelope.session_id,
        recorded=standing.recorded,
        kind=kind,
        method=call.envelope.method,
        request_id=call.envelope.request_id,
        nonce=call.envelope.nonce,
        door=call.door.name,
        request=call.body,
        response=response,
        received_at_ms=call.received_at_ms,
        progress=standing,
        answer=answer,
        entry=entry,
        turn_id=placement.turn_id,
        new_session=new_session,
        opened=placement.window if placement.opened else None,
        closed=_closed(call, placement),
        findings=findings,
        lineage=lineage,
        kept=None if standing.memory.kept is live.progress.memory.kept else standing.memory.kept,
        question=None if asked is None else asked.question,
        used_approval=None if asked is None else asked.used_approval,
        extension=extension,
    )
    return Recorded(live, record)
