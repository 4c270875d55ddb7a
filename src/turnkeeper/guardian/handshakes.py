"""What the Guardian says to a hello (ACS 4, CORE-HS-12).

Answers for the terms of a new session and for a second hello: the same ClientHello under the same key and agent gets
the saved terms again, so that a restarted client can learn them; anything else is refused, for there is no
renegotiation. Pure.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Final, cast

import orjson

from turnkeeper.acs import (
    AcsError,
    AcsErrorCode,
    ClientHello,
    GuardianTerms,
    HandshakeRefused,
    SchemaViolation,
    ServerHello,
    canonicalize,
    hook_spec,
    negotiate,
)
from turnkeeper.guardian.calls import OFFERED_METHODS, Call
from turnkeeper.guardian.capabilities import APPROVER_TYPES
from turnkeeper.guardian.mcp import MCP, is_offered
from turnkeeper.guardian.ports import PROVENANCE_PROFILE, SessionTerms
from turnkeeper.guardian.settings import MAX_IDENTIFIER_CHARACTERS, GuardianSettings

OFFERED_PROFILES: Final = frozenset({"acs-core", "acs-audit", PROVENANCE_PROFILE})
MAX_WRAPPED_METHODS: Final = 256
"""Wrapped methods that a session may have; further ones are not evaluated, and the handshake says so."""
MAX_MCP_VERSIONS: Final = 16

_VERSION = re.compile(r"[A-Za-z0-9._-]{1,64}")


def first_terms(call: Call, settings: GuardianSettings) -> SessionTerms:
    """The terms of a session that begins with this hello. Raises `AcsError`."""
    hello = client_hello(call)
    # The schema lets a name stand twice; terms are kept in memory, so they have no room for that.
    hello = replace(
        hello,
        methods=tuple(dict.fromkeys(hello.methods)),
        profiles=None if hello.profiles is None else tuple(dict.fromkeys(hello.profiles)),
    )
    terms = GuardianTerms(
        methods=OFFERED_METHODS | _wrapped_methods(hello, _mcp_versions(hello)),
        transports=call.door.transports,
        default_timeout_ms=settings.default_timeout_ms,
        skew_window_ms=settings.skew_window_ms,
        on_decision_failure=settings.on_decision_failure,
        profiles=OFFERED_PROFILES,
        policy_requires_provenance=settings.policy_requires_provenance,
        approver_types=APPROVER_TYPES,
    )
    return agreed_terms(
        hello,
        ServerHello.of(negotiate(hello, terms)),
        session_id=call.envelope.session_id,
        key_id=call.key.key_id,
        agent_id=call.envelope.agent_id,
        created_at_ms=call.received_at_ms,
    )


def agreed_terms(
    hello: ClientHello, answer: ServerHello, *, session_id: str, key_id: str, agent_id: str, created_at_ms: int
) -> SessionTerms:
    """The terms that a hello and its answer make, whoever negotiated them."""
    return SessionTerms(
        session_id=session_id,
        key_id=key_id,
        agent_id=agent_id,
        acs_version=answer.negotiated_version,
        skew_window_ms=answer.skew_window_ms,
        methods=frozenset(answer.methods_evaluated),
        hello_hash=hello_hash(hello),
        server_hello=orjson.dumps(answer.document),
        created_at_ms=created_at_ms,
        provenance_producer=hello.provenance_producer,
        profiles=frozenset(answer.profiles_accepted),
        mcp_versions=_mcp_versions(hello),
    )


def saved_terms(call: Call, terms: SessionTerms, *, closed: bool) -> Mapping[str, object]:
    """The ServerHello of a session that shook hands before. Raises `AcsError`."""
    if closed:
        raise HandshakeRefused(AcsErrorCode.SESSION_REFUSED, "session_closed", "the session has ended")
    if hello_hash(client_hello(call)) != terms.hello_hash:
        raise HandshakeRefused(
            AcsErrorCode.SESSION_REFUSED,
            "renegotiation_not_supported",
            "the session has other terms; a new session can have new ones",
        )
    return cast("dict[str, object]", orjson.loads(terms.server_hello))


def _mcp_versions(hello: ClientHello) -> frozenset[str]:
    """The MCP versions that the client declares, as far as a method's name can carry them."""
    declared = cast("list[dict[str, str]]", hello.document.get("wrapped_protocols", []))
    found = (one["version"] for one in declared if one["protocol"] == MCP)
    return frozenset(islice((version for version in found if _VERSION.fullmatch(version)), MAX_MCP_VERSIONS))


def _wrapped_methods(hello: ClientHello, versions: frozenset[str]) -> frozenset[str]:
    offered = (
        method
        for method in hello.methods
        if len(method) <= MAX_IDENTIFIER_CHARACTERS and hook_spec(method) is not None and is_offered(method, versions)
    )
    return frozenset(islice(offered, MAX_WRAPPED_METHODS))


def client_hello(call: Call) -> ClientHello:
    """The hello in a call. Raises `AcsError`."""
    try:
        return ClientHello.of(call.envelope.payload)
    except SchemaViolation as violation:
        raise AcsError(
            AcsErrorCode.INVALID_PARAMS, "payload_invalid", violation.message, violation.detail
        ) from violation


def hello_hash(hello: ClientHello) -> str:
    """What makes two hellos the same: SHA-256 of the canonical payload."""
    return hashlib.sha256(canonicalize(hello.document)).hexdigest()
