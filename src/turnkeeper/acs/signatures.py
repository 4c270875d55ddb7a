"""Signatures (ACS 10, ledger section 13): HMAC-SHA256 over the canonical envelope without its signature member.

Answers for signing and for verifying requests and answers. The signature stands at `params.signature`,
`result.signature` or `error.signature`, and only there is it left out of the signed bytes: a member of that name
anywhere else is signed like any other. Must never say yes by a return value: a check returns the key or raises. Pure.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final, Literal, Protocol, cast

from turnkeeper.acs.canonical import CanonicalizationRejected, Writer, canonical_writer, canonicalize
from turnkeeper.acs.keys import KeyUnknown, SessionKey
from turnkeeper.acs.strictjson import is_object
from turnkeeper.errors import LocalProtocolError, TurnkeeperError
from turnkeeper.records import record

HMAC_SHA256: Final = "HMAC-SHA256"
OFFERED_ALGORITHMS: Final = (HMAC_SHA256,)

_Place = Literal["params", "result", "error"]
_MAC_BYTES = 32
_BASE64_OF_MAC = re.compile(r"[A-Za-z0-9+/]{43}=")


class SignatureRejected(TurnkeeperError):
    """The signature is missing, malformed or wrong (-32004). `error_code` says which, for the log.

    One of `signature_missing`, `signature_malformed`, `algorithm_not_offered`, `key_unknown`, `not_canonicalizable`,
    `signature_mismatch`.
    """

    code = "signature_mismatch"


@record
class KeyMatch:
    """Who signed: the label of the secret and the session key, with which the answer is owed.

    `params_hash` is the SHA-256 of the canonical params as received, which a chain calls `request_hash`.
    """

    key_id: str
    session_key: SessionKey
    params_hash: str


@record
class _Claim:
    """What a signature member says, well-formed."""

    key_id: str
    mac: bytes


def sign_request(document: Mapping[str, object], key: SessionKey) -> dict[str, object]:
    """The request with `params.signature`; a signature it already had is replaced.

    Raises `CanonicalizationRejected`, and `LocalProtocolError` where `params` is no object.
    """
    return _signed(document, "params", key)


def sign_response(document: Mapping[str, object], key: SessionKey, write: Writer = canonicalize) -> dict[str, object]:
    """The answer with `result.signature` or `error.signature`.

    `write` is `canonicalize_safe` where whoever made the answer knows that it may be.
    Raises `CanonicalizationRejected`, and `LocalProtocolError` where there is neither.
    """
    return _signed(document, _answer_place(document), key, write)


class KeySource(Protocol):
    """Where keys are found by their labels: a `Keyring`, or labels that come and go."""

    def session_key(self, key_id: str, session_id: str) -> SessionKey:
        """The key of one session under one label. Raises `KeyUnknown`."""
        ...


def verify_request(document: object, keyring: KeySource) -> KeyMatch:
    """The key that signed this request. Raises `SignatureRejected`; needs no schema check before it."""
    root = _object(document)
    params = _object(root.get("params"))
    session_id = _object(params.get("metadata")).get("session_id")
    if not isinstance(session_id, str):
        raise SignatureRejected("the request names no session to derive a key for", code="signature_malformed")
    claim = _claim(params)
    try:
        key = keyring.session_key(claim.key_id, session_id)
    except KeyUnknown as error:
        raise SignatureRejected("the signature names a key that is not configured", code="key_unknown") from error
    try:
        # Two canonical forms are owed, of the document without its signature and of the params with it.
        write = canonical_writer(root)
        _check_mac(root, "params", claim, key, write)
        return KeyMatch(claim.key_id, key, hashlib.sha256(write(params)).hexdigest())
    except CanonicalizationRejected as error:
        raise SignatureRejected(error.message, code="not_canonicalizable") from error


def verify_response(document: object, key: SessionKey) -> None:
    """Returns where the answer is signed with this very key, label included. Raises `SignatureRejected`."""
    root = _object(document)
    try:
        place = _answer_place(root)
    except LocalProtocolError as error:
        raise SignatureRejected(error.message, code="signature_missing") from error
    claim = _claim(_object(root[place]))
    if claim.key_id != key.key_id:
        raise SignatureRejected("the answer is signed under another label than the request", code="key_unknown")
    try:
        _check_mac(root, place, claim, key)
    except CanonicalizationRejected as error:
        raise SignatureRejected(error.message, code="not_canonicalizable") from error


def _signed(
    document: Mapping[str, object], place: _Place, key: SessionKey, write: Writer = canonicalize
) -> dict[str, object]:
    members = document.get(place)
    if not isinstance(members, Mapping):
        raise LocalProtocolError(f"{place} is not an object, so it cannot carry a signature")
    signature = {
        "algorithm": HMAC_SHA256,
        "value": base64.b64encode(_mac(document, place, key, write)).decode(),
        "key_id": key.key_id,
    }
    return {**document, place: {**cast("Mapping[str, object]", members), "signature": signature}}


def _mac(document: Mapping[str, object], place: _Place, key: SessionKey, write: Writer = canonicalize) -> bytes:
    unsigned = dict(cast("Mapping[str, object]", document[place]))
    unsigned.pop("signature", None)
    return hmac.digest(key.secret, write({**document, place: unsigned}), "sha256")


def _check_mac(
    document: Mapping[str, object],
    place: _Place,
    claim: _Claim,
    key: SessionKey,
    write: Writer = canonicalize,
) -> None:
    if not hmac.compare_digest(_mac(document, place, key, write), claim.mac):
        raise SignatureRejected("the signature does not cover this envelope")


def _claim(members: Mapping[str, object]) -> _Claim:
    if "signature" not in members:
        raise SignatureRejected("the envelope is not signed", code="signature_missing")
    signature = _object(members["signature"])
    algorithm, value, key_id = signature.get("algorithm"), signature.get("value"), signature.get("key_id")
    if algorithm not in OFFERED_ALGORITHMS:
        raise SignatureRejected(
            f"the algorithm is not offered here; offered: {', '.join(OFFERED_ALGORITHMS)}",
            code="algorithm_not_offered",
        )
    if not isinstance(key_id, str) or not isinstance(value, str):
        raise SignatureRejected("the signature lacks key_id or value", code="signature_malformed")
    return _Claim(key_id, _decoded_mac(value))


def _decoded_mac(value: str) -> bytes:
    if _BASE64_OF_MAC.fullmatch(value) is not None:
        mac = binascii.a2b_base64(value)
        # Two texts can stand for one MAC (the last digit has spare bits); only the one an encoder writes is accepted.
        if len(mac) == _MAC_BYTES and base64.b64encode(mac).decode() == value:
            return mac
    raise SignatureRejected(
        f"the signature's value is not the padded base64 of {_MAC_BYTES} bytes", code="signature_malformed"
    )


def _answer_place(document: Mapping[str, object]) -> _Place:
    if isinstance(document.get("result"), Mapping):
        return "result"
    if isinstance(document.get("error"), Mapping):
        return "error"
    raise LocalProtocolError("the answer has neither a result nor an error to carry a signature")


def _object(value: object) -> dict[str, object]:
    if not is_object(value):
        raise SignatureRejected("the envelope has no object where a signature belongs", code="signature_malformed")
    return value
