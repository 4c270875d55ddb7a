"""The handshake (ACS 4, ledger section 3): what the agent can do, what the Guardian will do, and when neither fits.

Answers for reading both hellos and for the negotiation. Must never list a method as evaluated that the Guardian does
not evaluate. A second hello for a session is the Guardian's business. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, cast

from turnkeeper.acs.envelope import ACS_VERSION
from turnkeeper.acs.errors import AcsError, AcsErrorCode
from turnkeeper.acs.replay import DEFAULT_SKEW_WINDOW_MS
from turnkeeper.acs.schemas import validator
from turnkeeper.acs.signatures import OFFERED_ALGORITHMS

Posture: TypeAlias = Literal["proceed", "deny"]
"""What a missing decision means for a step (ACS 6.4)."""

PROCEED: Final = "proceed"
DENY: Final = "deny"
NO_PROVENANCE: Final = "none"
HTTP_TRANSPORTS: Final = frozenset({"http", "https"})
STDIO_TRANSPORTS: Final = frozenset({"stdio"})
HANDSHAKE_REFUSALS: Final = frozenset(
    {AcsErrorCode.SESSION_REFUSED, AcsErrorCode.UNSUPPORTED_VERSION, AcsErrorCode.PROVENANCE_REQUIRED}
)
"""Errors that answer a hello with a decision: the session must not start, whatever the posture (CORE-HS-15)."""

_MAJOR = ACS_VERSION.partition(".")[0]
_NO_TIMEOUTS: Mapping[str, int] = MappingProxyType({})


class HandshakeRefused(AcsError):
    """The session must not start: -32000, -32001 or -32002. A refusal is a decision, so no posture applies."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What an Observed Agent says of itself; `document` is its payload as sent."""

    document: Mapping[str, object]
    acs_versions: tuple[str, ...]
    methods: tuple[str, ...]
    transports: tuple[str, ...]
    provenance_producer: str
    profiles: tuple[str, ...] | None

    @classmethod
    def of(cls, payload: object) -> "ClientHello":
        """The view over a hello's payload. Raises `SchemaViolation`."""
        validator("handshake/client-hello").check(payload)
        document = cast("dict[str, object]", payload)
        profiles = document.get("profiles_supported")
        return cls(
            document=document,
            acs_versions=_texts(document["acs_versions_supported"]),
            methods=_texts(document["methods_implemented"]),
            transports=_texts(document["transports_supported"]),
            provenance_producer=cast("str", document["provenance_producer"]),
            profiles=None if profiles is None else _texts(profiles),
        )


@dataclass(frozen=True, slots=True)
class ServerHello:
    """The terms of a session; `document` is the result as sent. What it leaves out has the standard's default."""

    document: Mapping[str, object]
    negotiated_version: str
    methods_evaluated: tuple[str, ...]
    selected_transport: str
    default_timeout_ms: int
    per_method_timeout_ms: Mapping[str, int]
    skew_window_ms: int
    on_decision_failure: str
    profiles_accepted: tuple[str, ...]

    @classmethod
    def of(cls, result: object) -> "ServerHello":
        """The view over a hello's result. Raises `SchemaViolation`."""
        validator("handshake/server-hello").check(result)
        document = cast("dict[str, object]", result)
        timeouts = cast("dict[str, object]", document["timeout_config"])
        return cls(
            document=document,
            negotiated_version=cast("str", document["negotiated_version"]),
            methods_evaluated=_texts(document["methods_evaluated"]),
            selected_transport=cast("str", document["selected_transport"]),
            # 2000.0 is an integer to the schema.
            default_timeout_ms=int(cast("float", timeouts["default_ms"])),
            per_method_timeout_ms=_limits(timeouts.get("per_method_ms", {})),
            skew_window_ms=int(cast("float", document.get("skew_window_ms", DEFAULT_SKEW_WINDOW_MS))),
            on_decision_failure=cast("str", document.get("on_decision_failure", PROCEED)),
            profiles_accepted=_texts(document.get("profiles_accepted", [])),
        )

    def timeout_ms(self, method: str) -> int:
        """How long to wait for the decision on a step."""
        return self.per_method_timeout_ms.get(method, self.default_timeout_ms)

    def evaluates(self, method: str) -> bool:
        """Whether the Guardian looks at this method at all."""
        return method in self.methods_evaluated


@dataclass(frozen=True, slots=True)
class GuardianTerms:
    """What a Guardian brings to a negotiation. `transports` are those of the door the hello came through."""

    methods: frozenset[str]
    transports: frozenset[str]
    default_timeout_ms: int
    per_method_timeout_ms: Mapping[str, int] = field(default_factory=lambda: _NO_TIMEOUTS)
    skew_window_ms: int = DEFAULT_SKEW_WINDOW_MS
    on_decision_failure: str = DENY
    profiles: frozenset[str] = frozenset({"acs-core"})
    required_profiles: frozenset[str] = frozenset()
    policy_requires_provenance: bool = False
    algorithms: tuple[str, ...] = OFFERED_ALGORITHMS
    approver_types: tuple[str, ...] = ()
    agbom_serializations: tuple[str, ...] = ()


def negotiate(hello: ClientHello, terms: GuardianTerms) -> dict[str, object]:
    """The ServerHello's document, unsigned. Raises `HandshakeRefused`; a version nobody shares beats other reasons."""
    _check_version(hello)
    _check_provenance(hello, terms)
    transport = _transport(hello, terms)
    _check_profiles(hello, terms)
    document: dict[str, object] = {
        "negotiated_version": ACS_VERSION,
        "methods_evaluated": [method for method in hello.methods if method in terms.methods],
        "selected_transport": transport,
        "signature_algorithms_supported": list(terms.algorithms),
        "timeout_config": _timeouts(terms),
        "skew_window_ms": terms.skew_window_ms,
        "on_decision_failure": terms.on_decision_failure,
        "policy_requires_provenance": terms.policy_requires_provenance,
    }
    if terms.approver_types:
        document["approver_types_supported"] = list(terms.approver_types)
    if terms.agbom_serializations:
        document["agbom_serializations_supported"] = list(terms.agbom_serializations)
    if hello.profiles is not None:
        document["profiles_accepted"] = [profile for profile in hello.profiles if profile in terms.profiles]
    return document


def build_client_hello(
    *,
    methods: Sequence[str],
    transports: Sequence[str],
    profiles: Sequence[str] = ("acs-core",),
    provenance_producer: str = NO_PROVENANCE,
    max_payload_size_bytes: int | None = None,
    mcp_versions: Sequence[str] = (),
) -> dict[str, object]:
    """The payload of a `handshake/hello`. `mcp_versions` are those whose messages are wrapped (MCP-05)."""
    payload: dict[str, object] = {
        "acs_versions_supported": [ACS_VERSION],
        "methods_implemented": list(methods),
        "transports_supported": list(transports),
        "provenance_producer": provenance_producer,
        "profiles_supported": list(profiles),
    }
    if max_payload_size_bytes is not None:
        payload["max_payload_size_bytes"] = max_payload_size_bytes
    if mcp_versions:
        payload["wrapped_protocols"] = [{"protocol": "MCP", "version": version} for version in mcp_versions]
    return payload


def _check_version(hello: ClientHello) -> None:
    if not any(version.partition(".")[0] == _MAJOR for version in hello.acs_versions):
        raise HandshakeRefused(
            AcsErrorCode.UNSUPPORTED_VERSION,
            "unsupported_version",
            f"this Guardian speaks {ACS_VERSION} with every {_MAJOR}.x",
            {"supported_versions": [ACS_VERSION]},
        )


def _check_provenance(hello: ClientHello, terms: GuardianTerms) -> None:
    if terms.policy_requires_provenance and hello.provenance_producer == NO_PROVENANCE:
        raise HandshakeRefused(
            AcsErrorCode.PROVENANCE_REQUIRED,
            "provenance_required",
            "the policy decides by provenance, and the agent produces none",
        )


def _transport(hello: ClientHello, terms: GuardianTerms) -> str:
    for transport in hello.transports:
        if transport in terms.transports:
            return transport
    raise HandshakeRefused(
        AcsErrorCode.SESSION_REFUSED,
        "no_common_transport",
        "the agent offers no transport that this door serves",
        {"supported_transports": sorted(terms.transports)},
    )


def _check_profiles(hello: ClientHello, terms: GuardianTerms) -> None:
    missing = terms.required_profiles.difference(hello.profiles or ())
    if missing:
        raise HandshakeRefused(
            AcsErrorCode.SESSION_REFUSED,
            "profile_required",
            "the policy requires a profile that the agent does not claim",
            {"required_profiles": sorted(missing)},
        )


def _timeouts(terms: GuardianTerms) -> dict[str, object]:
    timeouts: dict[str, object] = {"default_ms": terms.default_timeout_ms}
    if terms.per_method_timeout_ms:
        timeouts["per_method_ms"] = dict(terms.per_method_timeout_ms)
    return timeouts


def _limits(value: object) -> dict[str, int]:
    return {method: int(limit) for method, limit in cast("dict[str, float]", value).items()}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(cast("list[str]", value))
