"""The handshake: terms, refusals in their order, and both hellos as views."""

from dataclasses import replace
from typing import Any

import pytest

from turnkeeper.acs import (
    ClientHello,
    GuardianTerms,
    HandshakeRefused,
    SchemaViolation,
    ServerHello,
    build_client_hello,
    negotiate,
)

_METHODS = ("steps/toolCallRequest", "steps/userMessage")
_TERMS = GuardianTerms(
    methods=frozenset({"steps/userMessage", "steps/toolCallRequest", "steps/turnEnd"}),
    transports=frozenset({"http", "https"}),
    default_timeout_ms=2000,
)


def _hello(**members: Any) -> ClientHello:
    return ClientHello.of(build_client_hello(methods=_METHODS, transports=["http"]) | members)


def _refusal(hello: ClientHello, terms: GuardianTerms = _TERMS) -> tuple[int, str]:
    with pytest.raises(HandshakeRefused) as refused:
        negotiate(hello, terms)
    return refused.value.rpc_code, refused.value.reason


def test_terms_keep_the_clients_order_and_list_only_what_is_evaluated() -> None:
    hello = _hello(methods_implemented=["steps/userMessage", "steps/skillLoad", "steps/toolCallRequest"])
    assert negotiate(hello, _TERMS)["methods_evaluated"] == ["steps/userMessage", "steps/toolCallRequest"]


def test_terms_read_back_are_the_terms_that_were_offered() -> None:
    terms = replace(
        _TERMS,
        per_method_timeout_ms={"steps/toolCallRequest": 50},
        skew_window_ms=1000,
        approver_types=("human",),
        agbom_serializations=("canonical",),
    )
    document = negotiate(_hello(), terms)
    server = ServerHello.of(document)
    assert (server.timeout_ms("steps/toolCallRequest"), server.timeout_ms("steps/userMessage")) == (50, 2000)
    assert (server.negotiated_version, server.selected_transport, server.skew_window_ms) == ("0.1.0", "http", 1000)
    assert (server.on_decision_failure, server.profiles_accepted) == ("deny", ("acs-core",))
    assert (server.evaluates("steps/userMessage"), server.evaluates("steps/turnEnd")) == (True, False)
    assert document["approver_types_supported"] == ["human"]
    assert document["agbom_serializations_supported"] == ["canonical"]


def test_what_a_server_hello_leaves_out_has_the_default_of_the_standard() -> None:
    server = ServerHello.of(
        {
            "negotiated_version": "0.1.0",
            "methods_evaluated": [],
            "selected_transport": "stdio",
            "timeout_config": {"default_ms": 5.0},
        }
    )
    assert (server.on_decision_failure, server.skew_window_ms, server.profiles_accepted) == ("proceed", 300_000, ())
    assert server.default_timeout_ms == 5


def test_a_client_that_names_no_profiles_is_told_of_none() -> None:
    hello = build_client_hello(methods=_METHODS, transports=["http"], max_payload_size_bytes=9)
    del hello["profiles_supported"]
    view = ClientHello.of(hello)
    assert (view.profiles, view.document["max_payload_size_bytes"]) == (None, 9)
    assert "profiles_accepted" not in negotiate(view, _TERMS)


def test_a_transport_is_chosen_in_the_clients_order() -> None:
    hello = _hello(transports_supported=["stdio", "https", "http"])
    assert negotiate(hello, _TERMS)["selected_transport"] == "https"


def test_refusals_come_in_their_order() -> None:
    terms = replace(_TERMS, policy_requires_provenance=True, required_profiles=frozenset({"acs-audit"}))
    hello = _hello(acs_versions_supported=["1.0.0", "10.0.0"], transports_supported=["stdio"])
    assert _refusal(hello, terms) == (-32001, "unsupported_version")
    hello = replace(hello, acs_versions=("9.0.0", "0.99.1"))
    assert _refusal(hello, terms) == (-32002, "provenance_required")
    hello = replace(hello, provenance_producer="deterministic")
    assert _refusal(hello, terms) == (-32000, "no_common_transport")
    hello = replace(hello, transports=("http",))
    assert _refusal(hello, terms) == (-32000, "profile_required")
    assert negotiate(replace(hello, profiles=("acs-audit",)), terms)["profiles_accepted"] == []


def test_a_required_profile_is_refused_to_a_client_that_names_none() -> None:
    terms = replace(_TERMS, required_profiles=frozenset({"acs-core"}))
    assert _refusal(replace(_hello(), profiles=None), terms) == (-32000, "profile_required")


@pytest.mark.parametrize(
    "member", ["acs_versions_supported", "methods_implemented", "transports_supported", "provenance_producer"]
)
def test_a_hello_lacks_none_of_its_members(member: str) -> None:
    hello = build_client_hello(methods=_METHODS, transports=["http"])
    del hello[member]
    with pytest.raises(SchemaViolation):
        ClientHello.of(hello)


def test_a_result_that_is_no_server_hello_has_no_view() -> None:
    with pytest.raises(SchemaViolation):
        ServerHello.of({"type": "final"})
