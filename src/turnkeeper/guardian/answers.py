"""The Guardian's answers as bytes: decisions, hellos and errors, signed where a key was shown.

Answers for the last row of the order of checks: an answer passes the response schema before it is signed. Must never
sign for somebody who has not shown a key, nor put internal detail on the wire.
"""

import json
from collections.abc import Mapping
from typing import Final

import orjson

from turnkeeper.acs import (
    ACS_VERSION,
    AcsError,
    AcsErrorCode,
    Decision,
    Disposition,
    RpcId,
    SessionKey,
    build_result,
    canonicalize,
    canonicalize_safe,
    render_result,
    sign_response,
    validator,
)
from turnkeeper.errors import LocalProtocolError
from turnkeeper.guardian.calls import Call, Ping

INTERNAL_ERROR: Final = "internal_error"
_OPEN_MEMBERS: Final = frozenset(
    {"policy_data", "modifications", "ask_details", "defer_details", "payload", "metadata"}
)
"""Members of a decision with values of a policy's making, among which may be any number."""

_INTERNAL_MESSAGE = "the Guardian could not answer this request"


def render_decision(call: Call, decision: Decision, chain_hash: str | None) -> bytes:
    """The signed answer to a step. Raises `LocalProtocolError` for one that breaks the response schema."""
    return _signed_result(call, _result(decision, call.envelope.request_id, chain_hash), "response-envelope")


def render_hello(call: Call, server_hello: Mapping[str, object]) -> bytes:
    """The signed answer to a handshake."""
    return _signed_result(call, server_hello, "handshake/response")


def render_error(error: AcsError, rpc_id: RpcId, key: SessionKey | None) -> bytes:
    """An error, signed under `key` where there is one."""
    document = error.to_document(rpc_id)
    return _dump(document if key is None else sign_response(document, key))


def render_pong(ping: Ping, server_timestamp: str) -> bytes:
    """The answer to a ping: always ALLOW, signed only for a proven one."""
    payload: dict[str, object] = {"status": "ok", "server_timestamp": server_timestamp}
    if "echo" in ping.envelope.payload:
        payload["echo"] = ping.envelope.payload["echo"]
    result = _result(Decision(Disposition.ALLOW, payload=payload), ping.envelope.request_id, None)
    document = build_result(ping.envelope.id, result)
    return _dump(document if ping.key is None else sign_response(document, ping.key))


def internal_error(reason: str = INTERNAL_ERROR, message: str = _INTERNAL_MESSAGE) -> AcsError:
    """The error for a fault of ours where no decision may be given."""
    return AcsError(AcsErrorCode.INTERNAL_ERROR, reason, message)


def _result(decision: Decision, request_id: str, chain_hash: str | None) -> dict[str, object]:
    return render_result(decision, acs_version=ACS_VERSION, request_id=request_id, chain_hash=chain_hash)


def _signed_result(call: Call, result: Mapping[str, object], schema: str) -> bytes:
    document = build_result(call.envelope.id, result)
    if not validator(schema).is_valid(document):
        raise LocalProtocolError("the Guardian's own answer breaks its schema")
    # All else in an answer is the Guardian's own texts, which need no looking through.
    open_ended = isinstance(call.envelope.id, float | int) or not _OPEN_MEMBERS.isdisjoint(result)
    return _dump(sign_response(document, call.key, canonicalize if open_ended else canonicalize_safe))


def _dump(document: Mapping[str, object]) -> bytes:
    try:
        return orjson.dumps(document)
    except TypeError:
        # The peer's id is a number of more than 64 bits, echoed as it came.
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
