"""A request on its way through the pipeline: the door it came through, what was read of it, who signed it.

Answers for rows 2 to 8 of the order of checks (ledger section 1): JSON, shape, ping, envelope, signature, method.
Must never reserve anything: whoever has not shown a key leaves no trace. Pure but for the keyring it is handed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Final, cast

from turnkeeper.acs import (
    HANDSHAKE_METHOD,
    METHODS,
    PING_METHOD,
    AcsError,
    AcsErrorCode,
    HookSpec,
    JsonLimits,
    JsonRejected,
    JsonValue,
    KeySource,
    RequestEnvelope,
    RpcId,
    SchemaViolation,
    SessionKey,
    SignatureRejected,
    hook_spec,
    parse_strict,
    rpc_id_of,
    schema_paths,
    validator,
    verify_request,
)
from turnkeeper.acs.envelope import JSONRPC_VERSION
from turnkeeper.acs.handshake import HTTP_TRANSPORTS, STDIO_TRANSPORTS
from turnkeeper.clock import epoch_ms
from turnkeeper.guardian.ports import PROVENANCE_PROFILE
from turnkeeper.guardian.settings import MAX_IDENTIFIER_CHARACTERS
from turnkeeper.guardian.windows import SESSION_END
from turnkeeper.records import record

OFFERED_METHODS: Final = frozenset(METHODS)
"""What this Guardian evaluates, beside every MCP method that a client declares: all that ACS defines."""

_TRANSPORTS = {
    "http": HTTP_TRANSPORTS,
    "stdio": STDIO_TRANSPORTS,
    "in_process": HTTP_TRANSPORTS | STDIO_TRANSPORTS,
}


@dataclass(frozen=True, slots=True)
class Door:
    """A way in. `keyring` holds the labels that are accepted here, and no others."""

    name: str
    keyring: KeySource

    @property
    def transports(self) -> frozenset[str]:
        """The transports, as the handshake names them, that this door serves."""
        return _TRANSPORTS.get(self.name, HTTP_TRANSPORTS)


@record
class Call:
    """An authenticated request. `spec` is None for the handshake alone; `params_hash` is its entry's `request_hash`."""

    body: bytes
    door: Door
    received: datetime
    envelope: RequestEnvelope
    key: SessionKey
    spec: HookSpec | None
    params_hash: str
    received_at_ms: int

    @property
    def reference(self) -> str | None:
        """The request of the same session that a payload refers to."""
        found = self.envelope.payload.get("request_id_ref")
        return found if isinstance(found, str) else None

    @property
    def audit_only(self) -> bool:
        """Whether the step reports what has happened and is never denied."""
        return self.spec is not None and self.spec.audit_only


@dataclass(frozen=True, slots=True)
class Ping:
    """A `system/ping`; `key` is None unless it was signed and the signature holds."""

    envelope: RequestEnvelope
    key: SessionKey | None


class CallRefused(Exception):
    """A request that is answered with an error before it is a call; signed where `key` is known."""

    def __init__(self, error: AcsError, rpc_id: RpcId, key: SessionKey | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.rpc_id = rpc_id
        self.key = key


_SCHEMAS = ("request-envelope", "response-envelope", "handshake/client-hello", "handshake/response")


def warm_up() -> None:
    """Compiles every schema that a request may need, so that none waits for it."""
    for name in _SCHEMAS:
        validator(name)
    for spec in METHODS.values():
        if spec.schema is not None:
            validator(spec.schema)
            validator(payload_schema(spec.schema, strict=True))


def checked_payload(request: RequestEnvelope) -> Mapping[str, object]:
    """The payload in the members of its schema: hooks.md calls the reason of a sessionEnd by another name."""
    payload = request.payload
    if request.method == SESSION_END and "reason" not in payload and "session_reason" in payload:
        return {**payload, "reason": payload["session_reason"]}
    return payload


@cache
def payload_schema(schema: str, *, strict: bool) -> str:
    """The schema that a payload has to obey: its strict variant, where it has one, in a session that is `strict`."""
    variant = f"{schema}.{PROVENANCE_PROFILE}"
    return variant if strict and f"{variant}.json" in schema_paths() else schema


def read_call(body: bytes, door: Door, received: datetime, limits: JsonLimits) -> Call | Ping:
    """The authenticated request in a body. Raises `CallRefused`."""
    document = _json(body, limits)
    members = _members(document, door)
    if members["method"] == PING_METHOD:
        return _ping(members, door)
    envelope = _envelope(members, door)
    try:
        match = verify_request(members, door.keyring)
    except SignatureRejected as rejected:
        error = AcsError(AcsErrorCode.SIGNATURE_INVALID, rejected.error_code, rejected.message)
        raise CallRefused(error, envelope.id) from rejected
    key = match.session_key
    return Call(body, door, received, envelope, key, _spec(envelope, key), match.params_hash, epoch_ms(received))


def _json(body: bytes, limits: JsonLimits) -> JsonValue:
    try:
        return parse_strict(body, limits)
    except JsonRejected as rejected:
        large = rejected.error_code == "too_large"
        code = AcsErrorCode.INVALID_REQUEST if large else AcsErrorCode.PARSE_ERROR
        error = AcsError(code, rejected.error_code, rejected.message, rejected.detail)
        raise CallRefused(error, None) from rejected


def _members(document: JsonValue, door: Door) -> dict[str, object]:
    """The members of a JSON-RPC request. Raises `CallRefused`."""
    if isinstance(document, list):
        raise CallRefused(_invalid("batch_nested", "a batch holds requests, and no batches"), None)
    if not isinstance(document, dict):
        raise CallRefused(_invalid("not_a_request", "the body is not a JSON object"), None)
    members = cast("dict[str, object]", document)
    if members.get("jsonrpc") != JSONRPC_VERSION:
        problem = f"/jsonrpc is not {JSONRPC_VERSION!r}"
    elif rpc_id_of(members) is None:
        problem = "/id is neither a string nor a number; there are no notifications"
    elif not isinstance(members.get("method"), str):
        problem = "/method is not a string"
    else:
        return members
    raise CallRefused(_invalid("not_a_request", problem), rpc_id_of(members), _proven(members, door))


def _ping(members: dict[str, object], door: Door) -> Ping:
    # Liveness is not a secret: a ping is answered whoever sent it, but only a proven one with a signature.
    key = _proven(members, door)
    _check(members, "request-envelope", AcsErrorCode.INVALID_REQUEST, key)
    envelope = RequestEnvelope.of(members)
    _check(dict(envelope.payload), METHODS[PING_METHOD].schema or "", AcsErrorCode.INVALID_PARAMS, key, envelope.id)
    return Ping(envelope, key)


def _envelope(members: dict[str, object], door: Door) -> RequestEnvelope:
    if not validator("request-envelope").is_valid(members):
        _check(members, "request-envelope", AcsErrorCode.INVALID_REQUEST, _proven(members, door))
    envelope = RequestEnvelope.of_valid(members)
    if max(len(envelope.agent_id), len(envelope.turn_id or "")) > MAX_IDENTIFIER_CHARACTERS:
        error = _invalid(
            "identifier_too_long", f"agent_id or turn_id has more than {MAX_IDENTIFIER_CHARACTERS} characters"
        )
        raise CallRefused(error, envelope.id, _proven(members, door))
    return envelope


def _check(
    document: dict[str, object], schema: str, code: AcsErrorCode, key: SessionKey | None, rpc_id: RpcId = None
) -> None:
    try:
        validator(schema).check(document)
    except SchemaViolation as violation:
        reason = "envelope_invalid" if code is AcsErrorCode.INVALID_REQUEST else "payload_invalid"
        error = AcsError(code, reason, violation.message, violation.detail)
        raise CallRefused(error, rpc_id if rpc_id is not None else rpc_id_of(document), key) from violation


def _proven(members: dict[str, object], door: Door) -> SessionKey | None:
    """The key of a request that need not be signed, or is broken: where it is proven, its answer is signed too."""
    try:
        return verify_request(members, door.keyring).session_key
    except SignatureRejected:
        return None


def _spec(envelope: RequestEnvelope, key: SessionKey) -> HookSpec | None:
    method = envelope.method
    if method == HANDSHAKE_METHOD:
        return None
    spec = hook_spec(method)
    if spec is None:
        error = AcsError(AcsErrorCode.METHOD_NOT_FOUND, "method_unknown", "ACS defines no method of this name")
        raise CallRefused(error, envelope.id, key)
    return spec


def _invalid(reason: str, message: str) -> AcsError:
    return AcsError(AcsErrorCode.INVALID_REQUEST, reason, message)
