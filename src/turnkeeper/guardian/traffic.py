"""Verify captured traffic: bodies of requests and answers as a wire showed them, with the key and perhaps an export.

Answers for signatures, for each answer belonging to its request, for nothing being answered twice, and, where the
Guardian's export is there too, for both telling the same. Cannot show what was not captured. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from turnkeeper.acs import (
    CanonicalizationRejected,
    JsonObject,
    JsonRejected,
    Keyring,
    SessionKey,
    SignatureRejected,
    member_slices,
    parse_object,
    request_hash,
    verify_request,
    verify_response,
)
from turnkeeper.acs.strictjson import is_object
from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.auditing import AuditFinding, Severity
from turnkeeper.guardian.export import LINE_LIMITS
from turnkeeper.guardian.known_steps import KnownStep, KnownSteps, answer_digest, session_of
from turnkeeper.guardian.verify import Findings, VerifyReport

MAX_CAPTURED: Final = 1_000_000
MEMBERS: Final = frozenset({"request", "response"})

_NO_DIGEST = b""


class TrafficMalformed(TurnkeeperError):
    """A line that is no captured exchange."""

    code = "traffic_malformed"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what came back; None where nothing was captured."""

    request: bytes
    response: bytes | None


def is_exchange(members: Mapping[str, object]) -> bool:
    """Whether a line is a captured exchange."""
    return frozenset(members) == MEMBERS


def parse_exchange(line: bytes) -> Exchange:
    """The exchange in a line: each body as it was, or as a JSON text of it. Raises `TrafficMalformed`."""
    try:
        slices = member_slices(line, LINE_LIMITS)
        if not is_exchange(slices):
            raise TrafficMalformed("a line has other members than request and response")
        request, response = _body(slices["request"]), _body(slices["response"])
    except JsonRejected as rejected:
        raise TrafficMalformed(f"a line is not usable JSON: {rejected.message}") from rejected
    if request is None:
        raise TrafficMalformed("a line has no request")
    return Exchange(request, response)


def verify_traffic(lines: Iterable[bytes], keyring: Keyring, known: KnownSteps | None = None) -> VerifyReport:
    """The audit of a capture. `known` is the Guardian's own record of the same time.

    A batch has to be taken apart by whoever captures it: each line is one request.
    """
    auditor = _TrafficAuditor(keyring, known)
    for line in lines:
        auditor.take(line)
    return auditor.close()


class _TrafficAuditor:
    def __init__(self, keyring: Keyring, known: KnownSteps | None) -> None:
        self._keyring = keyring
        self._known = known
        self._findings = Findings()
        self._lines = 0
        self._session_id: str | None = None
        self._used: dict[tuple[str, str, str], int] = {}
        self._heads: dict[tuple[str, str], int] = {}
        self._captured: dict[str, set[str]] = {}
        self._positions: dict[str, int] = {}

    def take(self, line: bytes) -> None:
        """Audits the next exchange."""
        self._lines += 1
        self._session_id = None
        if len(self._used) > MAX_CAPTURED:
            self._break(
                "too_many_exchanges", f"more than {MAX_CAPTURED:,} exchanges cannot be held against one another"
            )
            return
        try:
            exchange = parse_exchange(line)
            request = parse_object(exchange.request, LINE_LIMITS)
        except (TrafficMalformed, JsonRejected) as error:
            self._break("line_unreadable", error.message)
            return
        self._session_id = session_of(request)
        key = self._key(request)
        answer = self._answer(exchange)
        if answer is None:
            return
        if "result" in answer and key is None:
            self._break("request_signature_invalid", "a request was answered whose signature does not hold")
        self._check_answer(request, answer, key)
        if isinstance(answer.get("result"), dict):
            self._check_once(request, answer)
        self._compare(request, answer, exchange.response or b"")

    def close(self) -> VerifyReport:
        """The report after the last line."""
        for session_id, captured in sorted(self._captured.items()):
            recorded = [] if self._known is None else self._known.of_session(session_id)
            unseen = sum(step.request_id not in captured for step in recorded)
            if unseen:
                message = f"the Guardian has {unseen} steps of this session that were not captured"
                self._findings.report(AuditFinding("steps_not_captured", Severity.NOTICE, session_id, 0, message))
        return VerifyReport(tuple(self._findings.kept), (), self._findings.omitted, compared=self._lines)

    def _key(self, request: JsonObject) -> SessionKey | None:
        try:
            return verify_request(request, self._keyring).session_key
        except SignatureRejected:
            return None

    def _answer(self, exchange: Exchange) -> JsonObject | None:
        if exchange.response is None:
            self._notice("answer_not_captured", "there is no answer to this request")
            return None
        try:
            return parse_object(exchange.response, LINE_LIMITS)
        except JsonRejected as rejected:
            self._break("answer_unreadable", f"the answer is not usable JSON: {rejected.message}")
            return None

    def _check_answer(self, request: JsonObject, answer: JsonObject, key: SessionKey | None) -> None:
        params, result = _object(request.get("params")), _object(answer.get("result"))
        hello = request.get("method") == "handshake/hello"
        stated = params.get("request_id") if hello else result.get("request_id", params.get("request_id"))
        if answer.get("id") != request.get("id") or stated != params.get("request_id"):
            self._break("answer_not_bound", "the answer belongs to another request")
        if key is None:
            if not result:
                self._notice("request_refused", "a request whose signature does not hold was refused")
            return
        try:
            verify_response(answer, key)
        except SignatureRejected as rejected:
            self._break("answer_signature_invalid", rejected.message)

    def _check_once(self, request: JsonObject, answer: JsonObject) -> None:
        """No id, nonce or head is used for a second answer that is no refusal (ACS 10.3, 8.2)."""
        session_id, params = self._session_id or "", _object(request.get("params"))
        for name in ("request_id", "nonce"):
            value = params.get(name)
            if not isinstance(value, str):
                continue
            before = self._used.setdefault((session_id, name, value), self._lines)
            if before != self._lines:
                self._break("replay_answered", f"the {name} of line {before} was answered a second time")
        head = _object(answer.get("result")).get("chain_hash")
        if isinstance(head, str):
            before = self._heads.setdefault((session_id, head), self._lines)
            if before != self._lines:
                self._break("chain_hash_repeated", f"the head of line {before} was published a second time")

    def _compare(self, request: JsonObject, answer: JsonObject, response: bytes) -> None:
        params, result = _object(request.get("params")), _object(answer.get("result"))
        request_id, head = params.get("request_id"), result.get("chain_hash")
        if self._known is None or self._session_id is None or not isinstance(request_id, str):
            return
        self._captured.setdefault(self._session_id, set()).add(request_id)
        step = self._known.find(self._session_id, request_id)
        if step is None:
            if head is not None:
                self._break("step_not_in_export", "the Guardian published a head for a step that it has not")
            return
        if head is not None and head != step.chain_hash:
            self._break("chain_hash_differs", "the answer publishes another head than the entry has")
        if step.request_hash is not None and head is not None and _hash(params) != step.request_hash:
            self._break("request_differs", "the entry was made of another request")
        if head is not None and step.answer is not None and step.answer != (answer_digest(response) or _NO_DIGEST):
            self._break("answer_differs", "the Guardian recorded another answer")
        self._check_order(step)

    def _check_order(self, step: KnownStep) -> None:
        before = self._positions.get(step.session_id, -1)
        if step.position < before and step.chain_hash is not None:
            self._notice("order_differs", "the chain has the steps in another order than the capture")
        self._positions[step.session_id] = max(step.position, before)

    def _break(self, code: str, message: str) -> None:
        self._findings.report(AuditFinding(code, Severity.BREAK, self._session_id, self._lines, message))

    def _notice(self, code: str, message: str) -> None:
        self._findings.report(AuditFinding(code, Severity.NOTICE, self._session_id, self._lines, message))


def _body(text: str) -> bytes | None:
    if text == "null":
        return None
    if text.startswith('"'):
        return str(orjson.loads(text)).encode()
    return text.encode()


def _hash(params: Mapping[str, object]) -> str | None:
    try:
        return request_hash(params)
    except CanonicalizationRejected:
        return None


def _object(value: object) -> Mapping[str, object]:
    return value if is_object(value) else {}
