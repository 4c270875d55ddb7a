"""The Observed Agent's pure half (ACS 6.4 and 10, ledger section 9): ask, and judge what comes back.

Answers for requests as signed bytes and for answers that are bound, signed and well-formed. Must never read a verdict
out of an answer whose JSON-RPC id, request_id or signature is not the one it waits for; sending, waiting and posture
are the caller's. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias, cast

from turnkeeper.acs.canonical import canonicalize
from turnkeeper.acs.decisions import Disposition
from turnkeeper.acs.envelope import build_request
from turnkeeper.acs.errors import AnswerRejected
from turnkeeper.acs.handshake import ServerHello
from turnkeeper.acs.keys import Keyring, SessionKey
from turnkeeper.acs.schemas import SchemaViolation, validator
from turnkeeper.acs.signatures import SignatureRejected, sign_request, verify_response
from turnkeeper.acs.strictjson import DEFAULT_LIMITS, JsonLimits, JsonRejected, is_object, parse_object

_MODIFICATIONS: Final = "modifications"
_HARMLESS: Final = {"modified_content": ""}
_DETAILS: Final[Mapping[Disposition, str]] = {
    Disposition.MODIFY: _MODIFICATIONS,
    Disposition.ASK: "ask_details",
    Disposition.DEFER: "defer_details",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision that holds. `result` has every member, signed as shown.

    Only the modifications of a MODIFY need not be well-formed: whoever finds no meaning in them denies (CORE-MOD-03).
    """

    decision: Disposition
    reasoning: str | None
    reason_codes: tuple[str, ...]
    chain_hash: str | None
    result: Mapping[str, object]

    @property
    def details(self) -> Mapping[str, object] | None:
        """What a MODIFY, ASK or DEFER carries beside its word; None for the others, and where it carries nothing."""
        details = self.result.get(_DETAILS.get(self.decision, ""))
        return details if is_object(details) else None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the Guardian answered when it first saw a repeated request.

    `decision` is None where it answered with the error `code`; `chain_hash` is None where it wrote no entry.
    """

    decision: Disposition | None
    chain_hash: str | None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A signed error. `reason` is `data.reason`, the word for programs."""

    code: int
    reason: str | None
    message: str
    data: object

    @property
    def recorded(self) -> Recorded | None:
        """The earlier answer, where our own Guardian adds it to -32005; None from others and for broken members."""
        recorded = self.data.get("recorded") if is_object(self.data) else None
        if not is_object(recorded):
            return None
        decision, chain_hash, code = recorded.get("decision"), recorded.get("chain_hash"), recorded.get("code")
        if not isinstance(chain_hash, str | None):
            return None
        if decision is None and isinstance(code, int):
            return Recorded(None, chain_hash, code)
        if decision not in tuple(Disposition):
            return None
        return Recorded(Disposition(cast("str", decision)), chain_hash)


Answer: TypeAlias = Verdict | Refusal | ServerHello


@dataclass(frozen=True, slots=True)
class ObservedSession:
    """One session as its agent sees it: who asks, and with which key."""

    agent_id: str
    session_id: str
    key: SessionKey
    tenant_id: str | None = None
    limits: JsonLimits = DEFAULT_LIMITS

    @classmethod
    def open(
        cls, *, agent_id: str, session_id: str, keyring: Keyring, key_id: str, tenant_id: str | None = None
    ) -> "ObservedSession":
        """The session under the secret of one label. Raises `KeyUnknown`."""
        return cls(agent_id, session_id, keyring.session_key(key_id, session_id), tenant_id)

    def request(
        self,
        method: str,
        payload: Mapping[str, object],
        *,
        request_id: str,
        timestamp: str,
        nonce: str,
        turn_id: str | None = None,
        rpc_id: str | int | None = None,
        chain_hash: str | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> bytes:
        """A signed request in canonical form; its JSON-RPC id is the request_id unless another is given.

        Raises `CanonicalizationRejected` for a payload that cannot be signed: send such values as JSON text.
        """
        document = build_request(
            method=method,
            rpc_id=request_id if rpc_id is None else rpc_id,
            request_id=request_id,
            timestamp=timestamp,
            nonce=nonce,
            agent_id=self.agent_id,
            session_id=self.session_id,
            turn_id=turn_id,
            tenant_id=self.tenant_id,
            payload=payload,
            chain_hash=chain_hash,
            metadata=metadata,
        )
        return canonicalize(sign_request(document, self.key))

    def answer(self, raw: bytes, *, request_id: str, rpc_id: str | int | None = None) -> Answer:
        """What the Guardian said to the request with these ids. Raises `AnswerRejected`: that is no decision."""
        document = self._parsed(raw)
        result = document.get("result")
        decided = is_object(result) and "negotiated_version" not in result
        schema = "response-envelope" if decided or "error" in document else "handshake/response"
        _check_shape(_without_modifications(document), schema)
        _check_bound(document, request_id if rpc_id is None else rpc_id)
        self._check_signature(document)
        if "error" in document:
            return _refusal(cast("dict[str, object]", document["error"]))
        return _verdict(result, request_id) if is_object(result) and decided else ServerHello.of(result)

    def _parsed(self, raw: bytes) -> Mapping[str, object]:
        try:
            return parse_object(raw, self.limits)
        except JsonRejected as error:
            raise AnswerRejected(f"the answer is not usable JSON: {error.message}") from error

    def _check_signature(self, document: Mapping[str, object]) -> None:
        try:
            verify_response(document, self.key)
        except SignatureRejected as error:
            _reject_signature(document, error)


def _reject_signature(document: Mapping[str, object], cause: SignatureRejected) -> NoReturn:
    code = "answer_unsigned" if cause.error_code == "signature_missing" else "answer_signature_invalid"
    raise AnswerRejected(
        f"the answer is not the Guardian's: {cause.message}", code=code, detail=_unproven(document)
    ) from cause


def _unproven(document: Mapping[str, object]) -> dict[str, object]:
    # Such an error decides nothing, yet it is what a person wants to see in the log.
    return {"unproven_error": document["error"]} if "error" in document else {}


def _without_modifications(document: Mapping[str, object]) -> Mapping[str, object]:
    # Broken modifications are a MODIFY that cannot be applied, which is a denial; a malformed answer decides nothing.
    result = document.get("result")
    if not is_object(result) or result.get("decision") != Disposition.MODIFY or _MODIFICATIONS not in result:
        return document
    return {**document, "result": {**result, _MODIFICATIONS: _HARMLESS}}


def _check_shape(document: Mapping[str, object], schema: str) -> None:
    try:
        validator(schema).check(document)
    except SchemaViolation as error:
        raise AnswerRejected(f"the answer has a wrong shape: {error.message}", detail=error.detail) from error


def _check_bound(document: Mapping[str, object], rpc_id: str | int) -> None:
    # An error with id null answers a request that could not be read: bound to nothing, it could be sent at any time.
    if document["id"] != rpc_id:
        raise AnswerRejected(
            "the answer belongs to another request", code="answer_not_bound", detail=_unproven(document)
        )


def _verdict(result: dict[str, object], request_id: str) -> Verdict:
    if result["request_id"] != request_id:
        raise AnswerRejected("the decision belongs to another step", code="answer_not_bound")
    references = cast("list[Mapping[str, object]]", result.get("policy_references", []))
    if any(value == "" for reference in references for value in reference.values()):
        # 0.1.4: a policy reference leaves a member out rather than send it empty (CORE-WIRE-19).
        raise AnswerRejected("the answer has a wrong shape: a policy reference names nothing")
    return Verdict(
        decision=Disposition(cast("str", result["decision"])),
        reasoning=cast("str | None", result.get("reasoning")),
        reason_codes=tuple(cast("list[str]", result.get("reason_codes", []))),
        chain_hash=cast("str | None", result.get("chain_hash")),
        result=result,
    )


def _refusal(error: dict[str, object]) -> Refusal:
    data = error.get("data")
    reason = data.get("reason") if is_object(data) else None
    return Refusal(
        code=int(cast("float", error["code"])),
        reason=reason if isinstance(reason, str) else None,
        message=cast("str", error["message"]),
        data=data,
    )
