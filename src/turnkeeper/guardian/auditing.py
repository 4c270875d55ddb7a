"""One session under audit: every row recomputed from its own bytes and compared with the rows before it.

Answers for hashes, signatures, order, bindings, turn windows, counts and the built-in rules. Takes nothing the
Guardian says about a row for granted that the row itself can show. Must never stop at the first finding. Pure.

What it cannot show: the key lies with the Guardian, so whoever holds it can write another chain that verifies; a head
that somebody else witnessed is what such a chain lacks. In an export a refusal that was left out does not show, for
refusals are not chained.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

from turnkeeper.acs import (
    HANDSHAKE_METHOD,
    AcsError,
    ChainBroken,
    ContextEntry,
    Disposition,
    JsonObject,
    JsonRejected,
    Keyring,
    RequestEnvelope,
    SchemaViolation,
    SessionKey,
    SignatureRejected,
    hook_spec,
    parse_object,
    validator,
    verify_chain,
    verify_request,
    verify_response,
)
from turnkeeper.guardian.approvals import REFERENCE
from turnkeeper.guardian.calls import checked_payload, payload_schema
from turnkeeper.guardian.decisions import DecisionAbout, check_record
from turnkeeper.guardian.export import LINE_LIMITS, AuditRow
from turnkeeper.guardian.mcp import check_shape
from turnkeeper.guardian.provenance import data_of, step_summary
from turnkeeper.guardian.replaying import Replay, Replayed
from turnkeeper.guardian.resubmissions import INTENT_EXTENSION
from turnkeeper.guardian.windows import SESSION_END, TURN_END, Conduct, Placement

_HASHES: Final = frozenset({"entry_hash", "previous_hash"})
_CONDUCT: Mapping[Conduct, str] = {
    Conduct.TURN_NOT_OPEN: "names a turn while none is open",
    Conduct.TURN_ALREADY_OPEN: "starts a turn while another is open",
    Conduct.TURN_LEFT_OPEN: "ends the session while a turn is open",
    Conduct.TURN_ID_MISSING: "names no turn while one is open",
    Conduct.TURN_ID_FOREIGN: "names another turn than the open one",
    Conduct.TURN_MISMATCH: "ends a turn that is not open",
    Conduct.STEP_COUNT_MISMATCH: "states another step_count than the chain has",
    Conduct.TOOL_CALL_COUNT_MISMATCH: "states another tool_call_count than the chain has",
    Conduct.DENIED_AFTER_ALLOW: "ends a turn as denied at its start, which was allowed",
    Conduct.COMPLETED_AFTER_DENY: "ends a turn as completed whose start was denied",
    Conduct.DEFERRED_WITHOUT_DEFER: "ends a turn as deferred in which nothing was",
}


class Severity(StrEnum):
    """`break`: the record cannot be trusted. `notice`: the record holds, and shows something worth knowing."""

    BREAK = "break"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """What is wrong, where. `row` counts the session's rows from 1; 0 stands for the session as a whole."""

    code: str
    severity: Severity
    session_id: str | None
    row: int
    message: str


@dataclass(frozen=True, slots=True)
class TurnAudit:
    """A turn's window as the chain shows it; `outcome` is None where no turnEnd closed it."""

    turn_id: str
    outcome: str | None
    steps: int
    tool_calls: int


@dataclass(frozen=True, slots=True)
class SessionAudit:
    """A session after its last row. `erased` counts the rows whose request was erased, which show no step any more."""

    session_id: str
    rows: int
    entries: int
    head: str | None
    closed: bool
    turns: tuple[TurnAudit, ...]
    erased: int = 0


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that can be read. `key` is None where its signature does not hold."""

    envelope: RequestEnvelope
    key: SessionKey | None


class SessionAuditor:
    """Takes a session's rows in order; `report` receives each finding."""

    def __init__(
        self,
        session_id: str,
        keyring: Keyring,
        report: Callable[[AuditFinding], None],
        witnessed_heads: frozenset[str] = frozenset(),
    ) -> None:
        self._session_id = session_id
        self._keyring = keyring
        self._report = report
        self._unseen_heads = set(witnessed_heads)
        self._bound: tuple[str, str] | None = None
        self._request_ids: set[str] = set()
        self._nonces: set[str] = set()
        self._rows = 0
        self._entries = 0
        self._head: str | None = None
        self._closed = False
        self._replay = Replay(session_id)
        self._turns: list[TurnAudit] = []
        self._turns_known = True
        self._summarized = False
        self._extension: Mapping[str, object] | None = None
        self._questions: set[str] = set()
        self._erased = 0

    def name(self, session_id: str, witnessed_heads: frozenset[str]) -> None:
        """Says which session this is, where no row so far could, and which of the witnessed heads are its own."""
        self._session_id = session_id
        self._unseen_heads &= witnessed_heads
        self._replay = Replay(session_id)

    def take(self, row: AuditRow) -> None:
        """Audits the next row."""
        self._rows += 1
        self._check_numbering(row)
        if row.entry is not None and _is_extension(row):
            self._take_extension(row.entry)
            return
        self._check_digests(row)
        self._check_record(row)
        self._erased += row.request is None
        request = self._read_request(row)
        answer = self._read_answer(row, request)
        before = self._head
        if row.entry is not None:
            self._check_link(row.entry)
        if request is None:
            self._turns_known = False
            return
        self._check_identity(request.envelope)
        if self._rows == 1:
            self._replay.shake_hands(request.envelope, answer)
        if answer is not None:
            self._check_publication(row, answer)
        if row.entry is None:
            self._check_turn_id(row, None)
            return
        self._check_binding(request)
        self._check_extension(row.entry, request.envelope, answer)
        self._check_step(row, request.envelope, answer, before)

    def close(self) -> SessionAudit:
        """The session's state after its last row; reports heads that were witnessed and do not occur."""
        for head in sorted(self._unseen_heads):
            self._break("witnessed_head_missing", f"the witnessed head {head} is not in the chain", row=0)
        if self._extension is not None:
            self._break("extension_not_bound", "an extension of the intent is followed by no step", row=0)
        turns = [*self._turns]
        window = self._replay.window
        while window is not None:
            if self._turns_known and not self._closed:
                self._notice("turn_open", f"the turn {window.turn_id} has no turnEnd yet", row=0)
            turns.append(TurnAudit(window.turn_id, None, window.steps, window.tool_calls))
            window = window.outer
        return SessionAudit(
            self._session_id, self._rows, self._entries, self._head, self._closed, tuple(turns), self._erased
        )

    def _take_extension(self, entry: Mapping[str, object]) -> None:
        """An entry without a request: it has to come from a question, and into force with the step after it."""
        self._check_link(entry)
        if self._extension is not None:
            self._break("extension_not_bound", "an extension of the intent is followed by no step")
        if entry.get("step_id") not in self._questions:
            self._break("extension_not_asked", "an extension of the intent answers no question of this session")
        self._extension = entry

    def _check_extension(
        self, entry: Mapping[str, object], envelope: RequestEnvelope, answer: JsonObject | None
    ) -> None:
        decision = _decision(answer)
        if decision in (Disposition.ASK, Disposition.DEFER):
            self._questions.add(envelope.request_id)
        extension, self._extension = self._extension, None
        if extension is None:
            return
        bound = (
            extension.get("entry_id") == f"{envelope.request_id}/{INTENT_EXTENSION}"
            and extension.get("request_hash") == entry.get("request_hash")
            and extension.get("step_id") == envelope.payload.get(REFERENCE)
            and decision in (None, Disposition.ALLOW, Disposition.MODIFY)
        )
        if not bound:
            self._break("extension_not_bound", "an extension of the intent does not belong to the step after it")

    def _check_numbering(self, row: AuditRow) -> None:
        if row.recorded is not None and row.recorded != self._rows:
            self._break("row_missing", f"the row is numbered {row.recorded}; one before it is missing")
            self._rows = row.recorded

    def _check_digests(self, row: AuditRow) -> None:
        for name, content, digest in (
            ("request", row.request, row.request_digest),
            ("response", row.response, row.response_digest),
        ):
            if content is None:
                remains = "its signed decision remains" if row.decision_log is not None else "its hash remains"
                self._notice(f"{name}_erased", f"the content of the {name} was erased; {remains}")
            elif digest is not None and hashlib.sha256(content).digest() != digest:
                self._break(f"{name}_digest_differs", f"the bytes of the {name} are not those that were recorded")

    def _check_record(self, row: AuditRow) -> None:
        if row.decision_log is None:
            return
        about = DecisionAbout(
            session_id=self._session_id,
            key_id=None if self._bound is None else self._bound[0],
            recorded=row.recorded,
            entry=row.entry,
            request_digest=row.request_digest or None,
            response_digest=row.response_digest or None,
        )
        for code, message in check_record(row.decision_log, about, self._keyring):
            self._break(code, message)

    def _read_request(self, row: AuditRow) -> _Request | None:
        document = self._document("request", row.request, "request-envelope")
        if document is None:
            return None
        envelope = RequestEnvelope.of(document)
        if envelope.session_id != self._session_id:
            self._break("session_differs", "the request belongs to another session")
        try:
            return _Request(envelope, verify_request(document, self._keyring).session_key)
        except SignatureRejected as rejected:
            self._break("request_signature_invalid", rejected.message)
            return _Request(envelope, None)

    def _read_answer(self, row: AuditRow, request: _Request | None) -> JsonObject | None:
        hello = request is not None and request.envelope.method == HANDSHAKE_METHOD
        document = self._document("response", row.response, None if hello else "response-envelope")
        if document is None or request is None:
            return None
        result = document.get("result")
        if document.get("id") != request.envelope.id or (
            isinstance(result, dict) and not hello and result.get("request_id") != request.envelope.request_id
        ):
            self._break("answer_not_bound", "the answer belongs to another request")
        if request.key is not None:
            try:
                verify_response(document, request.key)
            except SignatureRejected as rejected:
                self._break("answer_signature_invalid", rejected.message)
        return document

    def _document(self, name: str, content: bytes | None, schema: str | None) -> JsonObject | None:
        if content is None:
            return None
        try:
            document = parse_object(content, LINE_LIMITS)
            if schema is not None:
                validator(schema).check(document)
            return document
        except JsonRejected as rejected:
            self._break(f"{name}_unreadable", rejected.message)
        except SchemaViolation as violation:
            self._break(f"{name}_invalid", violation.message)
        return None

    def _check_link(self, entry: Mapping[str, object]) -> None:
        try:
            head = verify_chain([entry], previous=self._head)
        except ChainBroken as broken:
            self._break("chain_broken", broken.message.replace("entry 0", "the entry"))
            stated = entry.get("entry_hash")
            head = stated if isinstance(stated, str) else self._head
        if self._closed:
            self._break("entry_after_session_end", "the chain goes on after sessionEnd")
        self._entries += 1
        self._head = head
        self._unseen_heads.discard(head or "")

    def _check_identity(self, envelope: RequestEnvelope) -> None:
        if self._rows == 1 and envelope.method != HANDSHAKE_METHOD:
            self._break("handshake_missing", "the session does not begin with its handshake")
        if envelope.request_id in self._request_ids:
            self._break("request_id_repeated", f"the request_id {envelope.request_id} was used before")
        if envelope.nonce is not None and envelope.nonce in self._nonces:
            self._break("nonce_repeated", "the nonce was used before")
        self._request_ids.add(envelope.request_id)
        self._nonces.add(envelope.nonce or "")

    def _check_binding(self, request: _Request) -> None:
        if request.key is None:
            return
        identity = (request.key.key_id, request.envelope.agent_id)
        self._bound = self._bound or identity
        if identity != self._bound:
            self._break("key_not_bound", "the step was decided for another key or agent than the session's")

    def _check_publication(self, row: AuditRow, answer: JsonObject) -> None:
        result = answer.get("result")
        published = result.get("chain_hash") if isinstance(result, dict) else None
        if row.entry is None:
            if published is not None:
                self._break("entry_missing", "the answer publishes a chain_hash, and the row has no entry")
        elif published != row.entry.get("entry_hash"):
            self._break("chain_hash_differs", "the answer does not publish the hash of its entry")

    def _check_step(
        self, row: AuditRow, envelope: RequestEnvelope, answer: JsonObject | None, before: str | None
    ) -> None:
        spec = hook_spec(envelope.method)
        if spec is None or not self._is_payload_valid(envelope, spec.schema):
            return
        decision = _decision(answer)
        if decision is not None and decision not in spec.permitted:
            self._break("disposition_not_permitted", f"{envelope.method} was answered with {decision}")
        # Entries of an older program have no summary; once a session has one, none may be without.
        self._summarized = self._summarized or "provenance_summary" in (row.entry or {})
        replayed = self._replay.take(envelope, spec, _disposition(decision), before, ruled=self._summarized)
        self._closed = self._closed or envelope.method == SESSION_END
        if not self._turns_known:
            return
        self._check_turn_id(row, replayed.placement.turn_id)
        self._check_entry(row, envelope, replayed.placement)
        self._check_conduct(envelope, replayed.placement)
        self._check_rules(envelope, replayed, answer)
        self._turns_known = answer is not None

    def _is_payload_valid(self, envelope: RequestEnvelope, schema: str | None) -> bool:
        try:
            if schema is None:
                check_shape(envelope)
            else:
                strict = self._replay.terms.strict_provenance
                validator(payload_schema(schema, strict=strict)).check(checked_payload(envelope))
        except (SchemaViolation, AcsError):
            self._break("payload_invalid", f"{envelope.method} was decided on a payload that breaks its schema")
            return False
        return True

    def _check_turn_id(self, row: AuditRow, turn_id: str | None) -> None:
        if row.turn_id != turn_id and self._turns_known:
            self._break("turn_id_differs", f"the row says turn {row.turn_id}, the chain says {turn_id}")

    def _check_entry(self, row: AuditRow, envelope: RequestEnvelope, placement: Placement) -> None:
        entry = row.entry or {}
        expected = ContextEntry.for_request(
            envelope,
            turn_id=placement.turn_id,
            provenance_summary=step_summary(envelope.request_id, data_of(envelope)) if self._summarized else None,
        ).to_document()
        stated = {name: value for name, value in entry.items() if name not in _HASHES}
        for name in sorted(expected.keys() | stated.keys()):
            if expected.get(name) != stated.get(name):
                self._break("entry_differs", f"{name} of the entry is not what the request gives")

    def _check_conduct(self, envelope: RequestEnvelope, placement: Placement) -> None:
        for conduct in placement.conduct:
            self._notice(conduct.value, f"{envelope.method} {_CONDUCT[conduct]}")
        if placement.closed is not None and envelope.method == TURN_END:
            outcome = cast("str", envelope.payload["outcome"])
            window = placement.closed
            self._turns.append(TurnAudit(window.turn_id, outcome, window.steps, window.tool_calls))

    def _check_rules(self, envelope: RequestEnvelope, replayed: Replayed, answer: JsonObject | None) -> None:
        for code, message in replayed.notes.items():
            self._notice(code, message)
        if answer is None:
            return
        missing = {*replayed.placement.reason_codes, *replayed.codes}.difference(_reason_codes(answer))
        if missing:
            self._break("answer_disagrees", f"the answer does not say {', '.join(sorted(missing))}")
        if replayed.denial is not None and _decision(answer) != Disposition.DENY:
            self._break("rule_not_applied", f"{envelope.method} had to be denied for {replayed.denial}")

    def _break(self, code: str, message: str, *, row: int | None = None) -> None:
        self._found(code, Severity.BREAK, message, row)

    def _notice(self, code: str, message: str, *, row: int | None = None) -> None:
        self._found(code, Severity.NOTICE, message, row)

    def _found(self, code: str, severity: Severity, message: str, row: int | None) -> None:
        self._report(AuditFinding(code, severity, self._session_id, self._rows if row is None else row, message))


def _is_extension(row: AuditRow) -> bool:
    if row.entry is None or row.request is not None or row.response is not None:
        return False
    return row.entry.get("step_type") == INTENT_EXTENSION


def _result(answer: JsonObject | None) -> Mapping[str, object]:
    result = None if answer is None else answer.get("result")
    return result if isinstance(result, dict) else {}


def _decision(answer: JsonObject | None) -> object:
    return _result(answer).get("decision")


def _disposition(decision: object) -> Disposition:
    # A step whose answer was erased counts as let through; the erasure itself is reported.
    known = isinstance(decision, str) and decision in set(Disposition)
    return Disposition(decision) if known else Disposition.ALLOW


def _reason_codes(answer: JsonObject | None) -> Iterator[str]:
    codes = _result(answer).get("reason_codes", [])
    yield from cast("list[str]", codes)
