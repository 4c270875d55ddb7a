"""Signatures cover every member but themselves, and nothing else verifies."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.acs.samples import JSON_OBJECTS, KEY, KEYRING, SESSION_ID, request, tool_call

from turnkeeper.acs import (
    AcsError,
    AcsErrorCode,
    CanonicalizationRejected,
    KeyMatch,
    SignatureRejected,
    build_result,
    canonicalize,
    parse_object,
    request_hash,
    sign_request,
    sign_response,
    verify_request,
    verify_response,
)
from turnkeeper.errors import LocalProtocolError


def _signed(**members: Any) -> dict[str, Any]:
    return sign_request(request(**members), KEY)


def _refusal(document: object) -> str:
    with pytest.raises(SignatureRejected) as refused:
        verify_request(document, KEYRING)
    return refused.value.error_code


@given(JSON_OBJECTS)
def test_a_signed_request_verifies_after_its_journey(payload: dict[str, Any]) -> None:
    arrived = parse_object(canonicalize(_signed(payload=payload)))
    assert verify_request(arrived, KEYRING) == KeyMatch(
        "label", KEY, request_hash(parse_object(canonicalize(arrived["params"])))
    )


@given(JSON_OBJECTS, JSON_OBJECTS)
def test_another_payload_under_the_same_signature_is_refused(first: dict[str, Any], second: dict[str, Any]) -> None:
    document = _signed(payload=first)
    assume(canonicalize(first) != canonicalize(second))
    document["params"]["payload"] = second
    assert _refusal(document) == "signature_mismatch"


@given(st.integers(0, 255))
def test_one_bit_of_the_signature_counts(bit: int) -> None:
    document = _signed()
    mac = bytearray(base64.b64decode(document["params"]["signature"]["value"]))
    mac[bit // 8] ^= 1 << bit % 8
    document["params"]["signature"]["value"] = base64.b64encode(mac).decode()
    assert _refusal(document) == "signature_mismatch"


def _other_session(document: dict[str, Any]) -> None:
    document["params"]["metadata"]["session_id"] = SESSION_ID.replace("6", "7")


def _other_method(document: dict[str, Any]) -> None:
    document["method"] = "steps/toolCallResult"


def _added_root(document: dict[str, Any]) -> None:
    document["x"] = 1


def _added_nested_signature(document: dict[str, Any]) -> None:
    document["params"]["payload"]["signature"] = {}


@pytest.mark.parametrize("change", [_other_session, _other_method, _added_root, _added_nested_signature])
def test_every_part_of_the_envelope_is_covered(change: Callable[[dict[str, Any]], None]) -> None:
    document = _signed()
    change(document)
    assert _refusal(document) == "signature_mismatch"


def test_members_called_signature_elsewhere_are_signed() -> None:
    payload = tool_call() | {"signature": {"value": "a"}}
    document = _signed(payload=payload, metadata={"signature": "b"})
    assert verify_request(document, KEYRING).key_id == "label"
    document["params"]["metadata"]["signature"] = "c"
    assert _refusal(document) == "signature_mismatch"


@pytest.mark.parametrize(
    ("member", "value", "code"),
    [
        ("algorithm", "none", "algorithm_not_offered"),
        ("algorithm", "ML-DSA-65", "algorithm_not_offered"),
        ("algorithm", ["HMAC-SHA256"], "algorithm_not_offered"),
        ("algorithm", None, "algorithm_not_offered"),
        ("key_id", "unheard-of", "key_unknown"),
        ("key_id", "other", "signature_mismatch"),
        ("key_id", 7, "signature_malformed"),
        ("value", None, "signature_malformed"),
        ("value", "A" * 43, "signature_malformed"),
        ("value", "A" * 42 + "==", "signature_malformed"),
        ("value", "A" * 44, "signature_malformed"),
        ("value", "A" * 42 + "B=", "signature_malformed"),
        ("value", "-" * 43 + "=", "signature_malformed"),
        ("value", "A" * 43 + "=\n", "signature_malformed"),
        ("value", "A" * 1_000_003, "signature_malformed"),
        ("value", "\u0660" * 43 + "=", "signature_malformed"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_a_signature_member_is_refused_by_its_code(member: str, value: object, code: str) -> None:
    document = _signed()
    document["params"]["signature"][member] = value
    assert _refusal(document) == code


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ([], "signature_malformed"),
        ({}, "signature_malformed"),
        ({"params": "x"}, "signature_malformed"),
        ({"params": {"metadata": None}}, "signature_malformed"),
        ({"params": {"metadata": {"session_id": 1}}}, "signature_malformed"),
        ({"params": {"metadata": {"session_id": "s"}}}, "signature_missing"),
        ({"params": {"metadata": {"session_id": "s"}, "signature": None}}, "signature_malformed"),
        ({"params": {"metadata": {"session_id": "s"}, "signature": "x"}}, "signature_malformed"),
    ],
)
def test_a_document_of_any_shape_is_refused_without_a_crash(document: object, code: str) -> None:
    assert _refusal(document) == code


@pytest.mark.parametrize("value", [2**53 + 1, float("inf"), "\ud800"], ids=ascii)
def test_a_request_without_a_canonical_form_is_neither_signed_nor_verified(value: object) -> None:
    with pytest.raises(CanonicalizationRejected):
        _signed(payload=tool_call(x=value))
    document = _signed()
    document["params"]["payload"] = tool_call(x=value)
    assert _refusal(document) == "not_canonicalizable"


def test_signing_again_replaces_the_signature_and_leaves_the_input_alone() -> None:
    document = _signed()
    before = canonicalize(document)
    assert sign_request(document, KEY) == document
    assert canonicalize(document) == before


def test_results_and_errors_are_signed_in_their_own_place() -> None:
    error = AcsError(AcsErrorCode.REPLAY_DETECTED, "replay_detected", "again").to_document("call-1")
    for place, document in (("result", build_result("call-1", {"a": 1})), ("error", error)):
        signed: Any = sign_response(document, KEY)
        assert signed[place]["signature"]["key_id"] == "label"
        verify_response(signed, KEY)


def _answer_refusal(document: object) -> str:
    with pytest.raises(SignatureRejected) as refused:
        verify_response(document, KEY)
    return refused.value.error_code


def test_an_answer_under_another_label_is_refused_though_the_label_is_known() -> None:
    other = KEYRING.session_key("other", SESSION_ID)
    assert _answer_refusal(sign_response(build_result("call-1", {}), other)) == "key_unknown"


def test_an_answer_for_another_request_does_not_verify() -> None:
    signed = sign_response(build_result("call-1", {}), KEY)
    assert _answer_refusal(signed | {"id": "call-2"}) == "signature_mismatch"


def test_an_answer_without_a_place_for_a_signature_is_refused() -> None:
    assert _answer_refusal({"jsonrpc": "2.0", "id": 1, "result": 5}) == "signature_missing"
    assert _answer_refusal(build_result(1, {})) == "signature_missing"
    with pytest.raises(LocalProtocolError):
        sign_response({"jsonrpc": "2.0", "id": 1}, KEY)
    with pytest.raises(LocalProtocolError):
        sign_request({"params": []}, KEY)
