"""What the Guardian says to a hello (ACS 4, CORE-HS-12).

Answers for the terms of a new session and for a second hello: the same ClientHello under the same key and agent gets
the saved terms again, so that a restarted client can learn them; anything else is refused, for there is no
renegotiation. Pure.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

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
    negotiate,
)
from turnkeeper.guardian.calls import OFFERED_METHODS, Call
from turnkeeper.guardian.ports import SessionTerms
from turnkeeper.guardian.settings import GuardianSettings


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
        methods=OFFERED_METHODS,
        transports=call.door.transports,
        default_timeout_ms=settings.default_timeout_ms,
        skew_window_ms=settings.skew_window_ms,
        on_decision_failure=settings.on_decision_failure,
    )
    document = negotiate(hello, terms)
    view = ServerHello.of(document)
    return SessionTerms(
        session_id=call.envelope.session_id,
        key_id=call.key.key_id,
        agent_id=call.envelope.agent_id,
        acs_version=view.negotiated_version,
        skew_window_ms=view.skew_window_ms,
        methods=frozenset(view.methods_evaluated),
        hello_hash=hello_hash(hello),
        server_hello=orjson.dumps(document),
        created_at_ms=call.received_at_ms,
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
