"""Negotiation (ledger 3), with our reading where implementations disagree."""

from typing import Any

import pytest
from tests.vectors.reading import read_vectors

from turnkeeper.acs import ClientHello, GuardianTerms, HandshakeRefused, ServerHello, negotiate

_CASES = read_vectors("handshake")["cases"]
_METHODS = frozenset({"steps/userMessage", "steps/toolCallRequest", "steps/toolCallResult"})


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in _CASES])
def test_a_hello_gets_the_terms_or_the_refusal_it_should(case: dict[str, Any]) -> None:
    terms = GuardianTerms(
        methods=_METHODS,
        transports=frozenset({"http", "https"}),
        default_timeout_ms=2000,
        policy_requires_provenance=case["policy_requires_provenance"],
    )
    expected = case["expected"]
    if "error" not in expected:
        document = negotiate(ClientHello.of(case["hello"]), terms)
        assert document.items() >= expected.items()
        ServerHello.of(document)
        return
    with pytest.raises(HandshakeRefused) as refused:
        negotiate(ClientHello.of(case["hello"]), terms)
    answer: Any = refused.value.to_document("hello-1")
    assert answer["error"]["code"] == expected["error"]
    assert answer["error"]["data"].items() >= expected.get("data", {}).items()
