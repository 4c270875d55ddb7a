"""A Guardian for tests: it checks and signs as a real one does, answers what it is told to, and breaks on demand.

A `GuardianLink` without a network. Keeps the promises the platform leans on: signed answers bound to their request, a
request_id decided once, the recorded answer shown to a repeat with a new nonce, one chain per session, and from an
agent that declares provenance no step without it. No policy.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

import orjson

from turnkeeper.acs import (
    ACS_VERSION,
    HANDSHAKE_METHOD,
    AcsErrorCode,
    ClientHello,
    Decision,
    Disposition,
    GuardianTerms,
    HandshakeRefused,
    Keyring,
    RequestEnvelope,
    SessionKey,
    build_error,
    build_result,
    hook_spec,
    negotiate,
    parse_object,
    render_result,
    sign_response,
    validator,
    verify_request,
)
from turnkeeper.acs.handshake import NO_PROVENANCE
from turnkeeper.guardian.calls import payload_schema
from turnkeeper.turns.payloads import METHODS_IMPLEMENTED, TOOL_CALL_REQUEST, TURN_END, TURN_START
from turnkeeper.turns.ports import GuardianUnreachable

ALLOW: Final = Decision(Disposition.ALLOW)
PROFILES: Final = frozenset({"acs-core", "acs-provenance"})
TIMEOUT_MS: Final = 100
"""How long its handshake asks to be waited for."""


class Fault(StrEnum):
    """How an exchange can go wrong."""

    LOSE_REQUEST = "lose_request"
    LOSE_ANSWER = "lose_answer"
    GARBAGE = "garbage"
    UNSIGNED = "unsigned"
    OTHER_ANSWER = "other_answer"
    DOUBLE = "double"


@dataclass(frozen=True, slots=True)
class SignedError:
    """A JSON-RPC error instead of a decision."""

    code: AcsErrorCode
    reason: str = "scripted"


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A DENY because no entry could be written: nothing is kept, and the same step may be sent again."""

    reason: str = "store_failed"


Reply: TypeAlias = Decision | SignedError | Unwritten
Script: TypeAlias = Callable[[RequestEnvelope], Reply]
_Kept: TypeAlias = tuple[Decision | SignedError, str | None]


def deny(reasoning: str, *reason_codes: str) -> Decision:
    """A denial."""
    return Decision(Disposition.DENY, reasoning, reason_codes)


@dataclass(slots=True)
class _Remembered:
    """What one session's Guardian keeps."""

    head: str | None = None
    decided: dict[str, _Kept] = field(default_factory=dict[str, _Kept])
    nonces: set[str] = field(default_factory=set[str])
    terms: dict[str, object] | None = None
    strict: bool = False


class ScriptedGuardian:
    """Answers ALLOW unless a script for the method, or a fault, says otherwise."""

    def __init__(self, keyring: Keyring, *, shows_recorded: bool = True) -> None:
        self._keyring = keyring
        self._shows_recorded = shows_recorded
        self._sessions: dict[str, _Remembered] = {}
        self._scripts: dict[str, deque[Reply | Script]] = {}
        self._always: dict[str, Reply | Script] = {}
        self._faults: dict[str, deque[Fault]] = {}
        self.methods: frozenset[str] = frozenset(METHODS_IMPLEMENTED)
        self.on_decision_failure = "deny"
        self.default_timeout_ms = 1_000
        self.greeting: HandshakeRefused | None = None
        self.down = False
        self.received: list[RequestEnvelope] = []
        self.entries: list[RequestEnvelope] = []

    def next(self, method: str, *replies: Reply | Script) -> None:
        """What is answered to the next steps of this method."""
        self._scripts.setdefault(method, deque()).extend(replies)

    def always(self, method: str, reply: Reply | Script) -> None:
        """What is answered to every step of this method."""
        self._always[method] = reply

    def fail(self, method: str, *faults: Fault) -> None:
        """What goes wrong with the next exchanges of this method."""
        self._faults.setdefault(method, deque()).extend(faults)

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.down = False
        self._faults.clear()

    def written(self, turn_id: str | None = None) -> list[str]:
        """The methods that have an entry in a chain, in order; of one turn's window, if it is named."""
        return [entry.method for entry in self.entries if turn_id is None or entry.turn_id == turn_id]

    def window_counts(self, turn_id: str) -> tuple[int, int]:
        """Steps and tool calls between a turn's turnStart and its turnEnd, as this Guardian counted them."""
        steps = [method for method in self.written(turn_id) if method not in {TURN_START, TURN_END}]
        return len(steps), steps.count(TOOL_CALL_REQUEST)

    async def exchange(self, body: bytes, *, timeout_ms: int) -> bytes:
        """One request and its answer. Raises `GuardianUnreachable` where the script says so."""
        del timeout_ms
        envelope = RequestEnvelope.of(parse_object(body))
        fault = self._next_fault(envelope.method)
        if self.down or fault is Fault.LOSE_REQUEST:
            raise GuardianUnreachable("the scripted Guardian is down")
        answer = self._answer(envelope, body)
        if fault is Fault.DOUBLE:
            answer = self._answer(envelope, body)
        return _broken(answer, fault)

    def _next_fault(self, method: str) -> Fault | None:
        faults = self._faults.get(method)
        return faults.popleft() if faults else None

    def _answer(self, envelope: RequestEnvelope, body: bytes) -> bytes:
        key = verify_request(envelope.document, self._keyring).session_key
        self.received.append(envelope)
        memory = self._sessions.setdefault(envelope.session_id, _Remembered())
        if envelope.method == HANDSHAKE_METHOD:
            return _signed(self._greet(envelope, memory), key)
        if memory.terms is None:
            return _signed(_error(envelope, SignedError(AcsErrorCode.CAPABILITY_NOT_NEGOTIATED)), key)
        nonce = envelope.nonce or ""
        known = memory.decided.get(envelope.request_id)
        if known is not None or nonce in memory.nonces:
            return _signed(self._replayed(envelope, known if nonce not in memory.nonces else None), key)
        memory.nonces.add(nonce)
        if memory.strict and not _is_valid(envelope):
            return _signed(_error(envelope, SignedError(AcsErrorCode.INVALID_PARAMS, "payload_invalid")), key)
        return _signed(self._decide(envelope, memory, body), key)

    def _greet(self, envelope: RequestEnvelope, memory: _Remembered) -> dict[str, object]:
        if self.greeting is not None:
            return build_error(envelope.id, self.greeting.rpc_code, self.greeting.message, {"reason": "scripted"})
        terms = GuardianTerms(
            methods=self.methods,
            transports=frozenset({"http"}),
            profiles=PROFILES,
            default_timeout_ms=self.default_timeout_ms,
            on_decision_failure=self.on_decision_failure,
        )
        hello = ClientHello.of(envelope.payload)
        memory.terms = negotiate(hello, terms)
        memory.strict = hello.provenance_producer != NO_PROVENANCE
        return build_result(envelope.id, memory.terms)

    def _decide(self, envelope: RequestEnvelope, memory: _Remembered, body: bytes) -> dict[str, object]:
        reply = self._reply(envelope)
        if isinstance(reply, SignedError):
            if reply.code != AcsErrorCode.INTERNAL_ERROR:
                memory.decided[envelope.request_id] = (reply, None)
            return _error(envelope, reply)
        if isinstance(reply, Unwritten):
            memory.nonces.discard(envelope.nonce or "")
            denied = deny("not recorded", reply.reason)
            result = render_result(denied, acs_version=ACS_VERSION, request_id=envelope.request_id, chain_hash=None)
            return build_result(envelope.id, result)
        memory.head = hashlib.sha256((memory.head or "").encode() + body).hexdigest()
        memory.decided[envelope.request_id] = (reply, memory.head)
        self.entries.append(envelope)
        result = render_result(reply, acs_version=ACS_VERSION, request_id=envelope.request_id, chain_hash=memory.head)
        return build_result(envelope.id, result)

    def _reply(self, envelope: RequestEnvelope) -> Reply:
        scripted = self._scripts.get(envelope.method)
        reply = scripted.popleft() if scripted else self._always.get(envelope.method, ALLOW)
        return reply if isinstance(reply, Decision | SignedError | Unwritten) else reply(envelope)

    def _replayed(self, envelope: RequestEnvelope, known: _Kept | None) -> dict[str, object]:
        data: dict[str, object] = {"reason": "replay_detected"}
        if self._shows_recorded and known is not None:
            data["recorded"] = _recorded(*known)
        return build_error(envelope.id, AcsErrorCode.REPLAY_DETECTED, "replay detected", data)


def _recorded(reply: Decision | SignedError, chain_hash: str | None) -> dict[str, object]:
    if isinstance(reply, SignedError):
        return {"decision": None, "chain_hash": None, "code": int(reply.code)}
    return {"decision": reply.disposition.value, "chain_hash": chain_hash}


def _is_valid(envelope: RequestEnvelope) -> bool:
    spec = hook_spec(envelope.method)
    if spec is None or spec.schema is None:
        return True
    return validator(payload_schema(spec.schema, strict=True)).is_valid(dict(envelope.payload))


def _error(envelope: RequestEnvelope, error: SignedError) -> dict[str, object]:
    return build_error(envelope.id, error.code, error.code.title, {"reason": error.reason})


def _signed(document: Mapping[str, object], key: SessionKey) -> bytes:
    return orjson.dumps(sign_response(document, key))


def _broken(answer: bytes, fault: Fault | None) -> bytes:
    if fault is Fault.LOSE_ANSWER:
        raise GuardianUnreachable("the scripted answer was lost")
    if fault is Fault.GARBAGE:
        return b"<html>502 Bad Gateway</html>"
    if fault is Fault.UNSIGNED:
        document = orjson.loads(answer)
        document.get("result", document.get("error")).pop("signature")
        return orjson.dumps(document)
    if fault is Fault.OTHER_ANSWER:
        return orjson.dumps(orjson.loads(answer) | {"id": "another"})
    return answer
