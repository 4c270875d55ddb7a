"""Envelopes (ACS 3, ledger section 2): JSON-RPC 2.0 with the ACS members inside `params`.

Answers for reading a request without changing it and for building requests, results and errors. Must never dump a
view: what is signed, hashed and stored is the peer's own document, unknown members included. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from turnkeeper.acs.strictjson import is_object
from turnkeeper.errors import TurnkeeperError
from turnkeeper.records import record

ACS_VERSION: Final = "0.1.0"
JSONRPC_VERSION: Final = "2.0"
_NOTHING: Final[Mapping[str, Any]] = {}

RpcId: TypeAlias = str | int | float | None


class EnvelopeMalformed(TurnkeeperError):
    """A member that every request has is missing or of another type."""

    code = "envelope_malformed"


@record
class RequestEnvelope:
    """A view over a request's document: the members that checks and rules look at.

    INVARIANT: `document` is the peer's, with every member it sent.
    """

    document: Mapping[str, object]
    id: str | int | float
    method: str
    params: Mapping[str, object]
    acs_version: str
    request_id: str
    timestamp: str
    metadata: Mapping[str, object]
    payload: Mapping[str, object]
    agent_id: str
    session_id: str
    nonce: str | None
    turn_id: str | None
    tenant_id: str | None
    client_chain_hash: str | None

    @classmethod
    def of(cls, document: object) -> "RequestEnvelope":
        """The view over a document that passed `request-envelope`. Raises `EnvelopeMalformed`."""
        root = _object(document, "")
        params = _object(root.get("params"), "/params")
        metadata = _object(params.get("metadata"), "/params/metadata")
        return cls(
            document=root,
            id=_rpc_id(root.get("id")),
            method=_text(root, "method", ""),
            params=params,
            acs_version=_text(params, "acs_version", "/params"),
            request_id=_text(params, "request_id", "/params"),
            timestamp=_text(params, "timestamp", "/params"),
            metadata=metadata,
            payload=_object(params.get("payload"), "/params/payload"),
            agent_id=_text(metadata, "agent_id", "/params/metadata"),
            session_id=_text(metadata, "session_id", "/params/metadata"),
            nonce=_optional_text(params, "nonce", "/params"),
            turn_id=_optional_text(metadata, "turn_id", "/params/metadata"),
            tenant_id=_optional_text(params, "tenant_id", "/params"),
            client_chain_hash=_client_chain_hash(metadata),
        )

    @classmethod
    def of_valid(cls, document: dict[str, Any]) -> "RequestEnvelope":
        """The view over a document that has just passed `request-envelope`: nothing is checked again."""
        params: dict[str, Any] = document["params"]
        metadata: dict[str, Any] = params["metadata"]
        return cls(
            document=document,
            id=document["id"],
            method=document["method"],
            params=params,
            acs_version=params["acs_version"],
            request_id=params["request_id"],
            timestamp=params["timestamp"],
            metadata=metadata,
            payload=params["payload"],
            agent_id=metadata["agent_id"],
            session_id=metadata["session_id"],
            nonce=params.get("nonce"),
            turn_id=metadata.get("turn_id"),
            tenant_id=params.get("tenant_id"),
            client_chain_hash=metadata.get("session_state", _NOTHING).get("chain_hash"),
        )


def build_request(
    *,
    method: str,
    rpc_id: str | int,
    request_id: str,
    timestamp: str,
    agent_id: str,
    session_id: str,
    payload: Mapping[str, object],
    nonce: str | None = None,
    turn_id: str | None = None,
    acs_version: str = ACS_VERSION,
    chain_hash: str | None = None,
    tenant_id: str | None = None,
    metadata: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """An unsigned request. What has no value is left out; `metadata` adds further members beside the named ones."""
    described = dict(metadata or {}) | _present(agent_id=agent_id, session_id=session_id, turn_id=turn_id)
    if chain_hash is not None:
        described["session_state"] = {"chain_hash": chain_hash}
    params = _present(
        acs_version=acs_version, request_id=request_id, timestamp=timestamp, nonce=nonce, tenant_id=tenant_id
    )
    params |= {"metadata": described, "payload": dict(payload)}
    return {"jsonrpc": JSONRPC_VERSION, "id": rpc_id, "method": method, "params": params}


def build_result(rpc_id: RpcId, result: Mapping[str, object]) -> dict[str, object]:
    """An unsigned answer that carries a result."""
    return {"jsonrpc": JSONRPC_VERSION, "id": rpc_id, "result": dict(result)}


def build_error(rpc_id: RpcId, code: int, message: str, data: Mapping[str, object] | None = None) -> dict[str, object]:
    """An unsigned answer that carries an error; `rpc_id` is None only where the request's id cannot be known."""
    error: dict[str, object] = {"code": int(code), "message": message}
    if data:
        error["data"] = dict(data)
    return {"jsonrpc": JSONRPC_VERSION, "id": rpc_id, "error": error}


def rpc_id_of(document: object) -> RpcId:
    """The JSON-RPC id to answer with: the request's own, or None where it has none that may be echoed."""
    value = document.get("id") if is_object(document) else None
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def same_major(version: str, negotiated: str) -> bool:
    """Whether two `X.Y.Z` versions share their major number (CORE-WIRE-07)."""
    return version.partition(".")[0] == negotiated.partition(".")[0]


def _present(**members: object) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}


def _object(value: object, pointer: str) -> dict[str, object]:
    if not is_object(value):
        raise EnvelopeMalformed(f"{pointer or 'the root'} is not an object", detail={"pointer": pointer})
    return value


def _text(members: Mapping[str, object], name: str, pointer: str) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise EnvelopeMalformed(f"{pointer}/{name} is not a string", detail={"pointer": f"{pointer}/{name}"})
    return value


def _optional_text(members: Mapping[str, object], name: str, pointer: str) -> str | None:
    return _text(members, name, pointer) if name in members else None


def _rpc_id(value: object) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise EnvelopeMalformed("/id is neither a string nor a number", detail={"pointer": "/id"})
    return value


def _client_chain_hash(metadata: Mapping[str, object]) -> str | None:
    if "session_state" not in metadata:
        return None
    pointer = "/params/metadata/session_state"
    return _optional_text(_object(metadata["session_state"], pointer), "chain_hash", pointer)
