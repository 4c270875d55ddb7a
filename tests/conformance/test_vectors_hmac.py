"""Session keys and HMAC signatures against vectors of several implementations (ledger 13)."""

from typing import Any

import pytest
from tests.vectors.reading import read_vectors

from turnkeeper.acs import (
    Keyring,
    SessionKey,
    SignatureRejected,
    canonicalize,
    sign_request,
    sign_response,
    verify_request,
    verify_response,
)

_VECTORS = read_vectors("hmac")


def _named(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in cases]


def _key_of(case: dict[str, Any]) -> SessionKey:
    label = case["envelope"][case["place"]]["signature"]["key_id"]
    return Keyring({label: bytes.fromhex(case["secret_hex"])}).session_key(label, case["session_id"])


def _without_signature(case: dict[str, Any]) -> dict[str, Any]:
    envelope, place = case["envelope"], case["place"]
    members = {name: value for name, value in envelope[place].items() if name != "signature"}
    return {**envelope, place: members}


@pytest.mark.parametrize("case", _named(_VECTORS["derivations"]))
def test_a_session_key_is_derived_from_the_secret_and_the_session_id(case: dict[str, Any]) -> None:
    key = Keyring({"label": bytes.fromhex(case["secret_hex"])}).session_key("label", case["session_id"])
    assert key.secret.hex() == case["session_key_hex"]


@pytest.mark.parametrize("case", _named(_VECTORS["other_derivations"]))
def test_a_key_derived_another_way_is_another_key(case: dict[str, Any]) -> None:
    key = Keyring({"label": bytes.fromhex(case["secret_hex"])}).session_key("label", case["session_id"])
    assert key.secret.hex() != case["session_key_hex"]


@pytest.mark.parametrize("case", _named(_VECTORS["signed"]))
def test_the_signed_bytes_are_the_canonical_envelope_without_the_signature(case: dict[str, Any]) -> None:
    assert canonicalize(_without_signature(case)).decode() == case["signing_input"]


@pytest.mark.parametrize("case", _named(_VECTORS["signed"]))
def test_an_envelope_gets_the_signature_that_others_give_it(case: dict[str, Any]) -> None:
    sign = sign_request if case["place"] == "params" else sign_response
    assert sign(_without_signature(case), _key_of(case)) == case["envelope"]


@pytest.mark.parametrize("case", _named([case for case in _VECTORS["signed"] if case["place"] == "params"]))
def test_a_request_signed_by_others_verifies(case: dict[str, Any]) -> None:
    key = _key_of(case)
    match = verify_request(case["envelope"], Keyring({key.key_id: bytes.fromhex(case["secret_hex"])}))
    assert match.session_key == key


@pytest.mark.parametrize("case", _named([case for case in _VECTORS["signed"] if case["place"] != "params"]))
def test_an_answer_signed_by_others_verifies(case: dict[str, Any]) -> None:
    verify_response(case["envelope"], _key_of(case))


@pytest.mark.parametrize("case", _named(_VECTORS["requests"]))
def test_a_request_is_accepted_under_its_own_label_and_the_right_derivation_only(case: dict[str, Any]) -> None:
    keyring = Keyring({label: bytes.fromhex(secret) for label, secret in case["secrets_hex"].items()})
    if case["accepted"]:
        assert verify_request(case["request"], keyring).key_id == case["request"]["params"]["signature"]["key_id"]
        return
    with pytest.raises(SignatureRejected):
        verify_request(case["request"], keyring)


@pytest.mark.parametrize("case", _named(_VECTORS["answers"]))
def test_an_answer_is_accepted_under_the_label_of_the_request_only(case: dict[str, Any]) -> None:
    keyring = Keyring({label: bytes.fromhex(secret) for label, secret in case["secrets_hex"].items()})
    key = verify_request(case["request"], keyring).session_key
    if case["accepted"]:
        verify_response(case["answer"], key)
        return
    with pytest.raises(SignatureRejected):
        verify_response(case["answer"], key)


@pytest.mark.parametrize("value", _VECTORS["malformed_values"])
def test_a_value_that_is_not_the_base64_of_a_mac_is_refused(value: str | dict[str, Any]) -> None:
    case = next(case for case in _VECTORS["signed"] if case["place"] == "params")
    text = value if isinstance(value, str) else value["repeat"] * value["count"]
    params = case["envelope"]["params"]
    forged = {**case["envelope"], "params": {**params, "signature": {**params["signature"], "value": text}}}
    with pytest.raises(SignatureRejected) as refused:
        verify_request(forged, Keyring({_key_of(case).key_id: bytes.fromhex(case["secret_hex"])}))
    assert refused.value.error_code == "signature_malformed"
