"""The Observed Agent believes an answer that is bound, signed and well-formed, and no other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.acs.samples import AT, JSON_OBJECTS, KEY, KEYRING, REQUEST_ID, SESSION, SESSION_ID

from turnkeeper.acs import (
    AcsError,
    AcsErrorCode,
    AnswerRejected,
    Decision,
    Disposition,
    KeyUnknown,
    ObservedSession,
    Recorded,
    Refusal,
    RequestEnvelope,
    ServerHello,
    Verdict,
    build_error,
    build_result,
    canonicalize,
    parse_object,
    render_result,
    sign_response,
    validator,
    verify_request,
)

_OTHER_ID = "11111111-1111-4111-8111-111111111111"
_HELLO: dict[str, Any] = {
    "negotiated_version": "0.1.0",
    "methods_evaluated": [],
    "selected_transport": "http",
    "timeout_config": {"default_ms": 1},
}


def _asked(payload: dict[str, Any], **members: Any) -> bytes:
    return SESSION.request("steps/userMessage", payload, request_id=REQUEST_ID, timestamp=AT, nonce="n" * 16, **members)


def _result(request_id: str = REQUEST_ID, **members: Any) -> dict[str, Any]:
    decision = Decision(Disposition.DENY, "no", reason_codes=("rate_limited",))
    result = render_result(decision, acs_version="0.1.0", request_id=request_id, chain_hash="ab" * 32)
    return build_result(REQUEST_ID, result | members)


def _signed(document: dict[str, Any]) -> bytes:
    return canonicalize(sign_response(document, KEY))


def _refused(raw: bytes) -> AnswerRejected:
    with pytest.raises(AnswerRejected) as refused:
        SESSION.answer(raw, request_id=REQUEST_ID)
    return refused.value


@given(JSON_OBJECTS)
def test_a_request_arrives_valid_and_signed(payload: dict[str, Any]) -> None:
    document = parse_object(_asked(payload, turn_id="trn", chain_hash="ab" * 32, metadata={"platform": "t"}))
    validator("request-envelope").check(document)
    assert verify_request(document, KEYRING).session_key == KEY
    view = RequestEnvelope.of(document)
    assert (view.id, view.request_id, view.turn_id, view.client_chain_hash) == (
        REQUEST_ID,
        REQUEST_ID,
        "trn",
        "ab" * 32,
    )


def test_a_session_is_opened_under_a_label() -> None:
    opened = ObservedSession.open(agent_id="agt", session_id=SESSION_ID, keyring=KEYRING, key_id="label")
    assert opened == SESSION
    with pytest.raises(KeyUnknown):
        ObservedSession.open(agent_id="agt", session_id=SESSION_ID, keyring=KEYRING, key_id="unheard-of")


def test_a_decision_is_read_with_its_members() -> None:
    verdict = SESSION.answer(_signed(_result()), request_id=REQUEST_ID)
    assert isinstance(verdict, Verdict)
    assert (verdict.decision, verdict.reasoning) == (Disposition.DENY, "no")
    assert (verdict.reason_codes, verdict.chain_hash) == (("rate_limited",), "ab" * 32)
    assert verdict.result["type"] == "final"


def test_a_server_hello_is_read_as_the_terms_of_the_session() -> None:
    terms = SESSION.answer(_signed(build_result("hello-1", _HELLO)), request_id=REQUEST_ID, rpc_id="hello-1")
    assert isinstance(terms, ServerHello)
    assert terms.default_timeout_ms == 1


def test_a_signed_error_is_a_refusal_with_its_reason() -> None:
    error = AcsError(AcsErrorCode.UNSUPPORTED_VERSION, "unsupported_version", "m", {"supported_versions": ["0.1.0"]})
    refusal = SESSION.answer(_signed(error.to_document(REQUEST_ID)), request_id=REQUEST_ID)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.reason, refusal.recorded) == (-32001, "unsupported_version", None)
    assert refusal.message == "unsupported version"


@pytest.mark.parametrize(
    ("data", "recorded"),
    [
        ({"recorded": {"decision": "deny", "chain_hash": "ab" * 32}}, Recorded(Disposition.DENY, "ab" * 32)),
        ({"recorded": {"decision": "allow", "chain_hash": None}}, Recorded(Disposition.ALLOW, None)),
        ({"recorded": {"decision": None, "chain_hash": None, "code": -32602}}, Recorded(None, None, -32602)),
        ({"recorded": {"decision": "maybe", "chain_hash": None}}, None),
        ({"recorded": {"decision": ["deny"]}}, None),
        ({"recorded": {"decision": "deny", "chain_hash": 5}}, None),
        ({"recorded": "deny"}, None),
        ({"reason": 5}, None),
        ([1], None),
        (None, None),
    ],
)
def test_a_repeat_tells_what_was_recorded_where_the_guardian_says_so(data: Any, recorded: Recorded | None) -> None:
    document = build_error(REQUEST_ID, -32005, "replay detected")
    document["error"] = {"code": -32005, "message": "replay detected", "data": data}
    refusal = SESSION.answer(_signed(document), request_id=REQUEST_ID)
    assert isinstance(refusal, Refusal)
    assert (refusal.recorded, refusal.reason) == (recorded, None)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"jsonrpc": "2.0", "id": REQUEST_ID},
        {"jsonrpc": "2.0", "id": REQUEST_ID, "result": "allow"},
        {"jsonrpc": "2.0", "id": REQUEST_ID, "result": {"decision": "allow"}},
        {"jsonrpc": "2.0", "id": REQUEST_ID, "error": "no"},
        {"jsonrpc": "2.0", "id": REQUEST_ID, "error": {"code": 1}, "result": {}},
        _result(decision="maybe"),
        _result(decision="modify"),
        _result() | {"error": {"code": 1, "message": "m"}},
        build_result(REQUEST_ID, {**_HELLO, "timeout_config": None}),
        _result(negotiated_version="0.1.0"),
    ],
)
def test_an_answer_of_another_shape_is_no_decision(document: dict[str, Any]) -> None:
    assert _refused(canonicalize(document)).error_code == "answer_malformed"


@pytest.mark.parametrize("raw", [b"", b"<html>502</html>", b"[]", b'{"a":1,"a":2}', b"[" * 100_000, b" " * 2_000_000])
def test_a_body_that_is_no_json_object_is_no_decision(raw: bytes) -> None:
    assert _refused(raw).error_code == "answer_malformed"


def test_an_answer_to_another_request_is_no_decision() -> None:
    assert _refused(_signed(_result() | {"id": _OTHER_ID})).error_code == "answer_not_bound"
    assert _refused(_signed(_result(request_id=_OTHER_ID))).error_code == "answer_not_bound"


def test_an_error_without_an_id_is_bound_to_nothing_but_shown() -> None:
    refused = _refused(_signed(build_error(None, -32700, "parse error")))
    assert refused.error_code == "answer_not_bound"
    assert isinstance(refused.detail["unproven_error"], dict)


def test_an_unsigned_answer_is_no_decision_and_an_unsigned_error_is_shown() -> None:
    assert _refused(canonicalize(_result())).error_code == "answer_unsigned"
    refused = _refused(canonicalize(build_error(REQUEST_ID, -32004, "signature invalid")))
    assert refused.error_code == "answer_unsigned"
    assert refused.detail["unproven_error"] == {"code": -32004, "message": "signature invalid"}


@given(st.sampled_from(["decision", "reasoning", "chain_hash", "request_id"]), st.integers(0, 3))
def test_a_changed_decision_is_no_decision(member: str, at: int) -> None:
    document: Any = sign_response(_result(), KEY)
    changed = {"decision": "allow", "reasoning": "yes", "chain_hash": "cd" * 32, "request_id": _OTHER_ID}
    document["result"][member] = changed[member]
    document["result"]["x_vendor"] = at
    assert _refused(canonicalize(document)).error_code == "answer_signature_invalid"
