"""Questions about keys: how they are derived, which label opens what, and how a deployment names them.

A question holds a message, the text that was signed and how its key was derived. Where the ids of the message are no
longer those of the text it was respelled after signing, and its signature says nothing any more: it is signed again,
exactly as the question says it was.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, cast

import orjson
from tests.conformance.corpus.answers import Question, Said, allowed, as_uuid, denied, of_answer
from tests.conformance.corpus.guardian import Play, played
from tests.unit.guardian.kit import engine

from turnkeeper.acs import AnswerRejected, Keyring, ObservedSession, canonicalize
from turnkeeper.acs.keys import LabelDerived, check_label

Message = dict[str, Any]


def labelled(question: Question) -> Said:
    """Labels and their secrets, as our own check of a key file sees them."""
    for entry in question["record"]["deployment_key_config"]:
        try:
            check_label(str(entry["key_id"]), bytes.fromhex(entry["secret_hex"]))
        except LabelDerived as derived:
            return denied(None, derived.message)
    return allowed("no label shows its secret")


def sent(question: Question) -> Said:
    """A request of the standard to a Guardian that has the labels and secrets of the question."""
    secrets = {label: bytes.fromhex(secret) for label, secret in question["verifier"]["secret_hex"].items()}
    request = _request(question, secrets)
    params = request["params"]
    named = params["signature"]["key_id"]

    async def work(play: Play) -> Said:
        agent = play.agent({"metadata": params["metadata"]}, named if named in secrets else next(iter(secrets)))
        await agent.hello()
        return of_answer(await play.send(orjson.dumps(request)))

    return played(work, engine(), at=params["timestamp"], keyring=Keyring(secrets))


def answered(question: Question) -> Said:
    """An answer read by an agent that knows several labels, under the one that its request names."""
    params, secrets = question["request"]["params"], question["observed_agent"]["secret_hex"]
    keyring = Keyring({label: bytes.fromhex(secret) for label, secret in secrets.items()})
    session_id = as_uuid(params["metadata"]["session_id"])
    session = ObservedSession.open(
        agent_id=params["metadata"]["agent_id"],
        session_id=session_id,
        keyring=keyring,
        key_id=params["signature"]["key_id"],
    )
    response = cast("Message", question["response"])
    if _is_respelled(response, "result", question["response_signed_input"]):
        label = response["result"]["signature"]["key_id"]
        response = _signed(response, "result", keyring.session_key(label, session_id).secret)
    try:
        session.answer(orjson.dumps(response), request_id=params["request_id"], rpc_id=question["request"]["id"])
    except AnswerRejected as rejected:
        return denied(None, rejected.message)
    return allowed("the answer holds")


def _request(question: Question, secrets: Mapping[str, bytes]) -> Message:
    request = cast("Message", question["request"])
    if not _is_respelled(request, "params", question["signed_input"]):
        return request
    derivation = question["signer_derivation"]
    metadata = request["params"]["metadata"]
    metadata = metadata | {"session_id": as_uuid(metadata["session_id"])}
    moved = request | {"params": request["params"] | {"metadata": metadata}}
    return _signed(moved, "params", _derived(derivation, secrets[derivation["secret_key_id"]]))


def _is_respelled(message: Message, place: str, text: str) -> bool:
    members = {name: value for name, value in message[place].items() if name != "signature"}
    return json.loads(text) != message | {place: members}


def _signed(message: Message, place: str, key: bytes) -> Message:
    """The message with another value in its signature; what else the signature says stays."""
    members = {name: value for name, value in message[place].items() if name != "signature"}
    mac = hmac.digest(key, canonicalize(message | {place: members}), "sha256")
    signature = message[place]["signature"] | {"value": base64.b64encode(mac).decode()}
    return message | {place: members | {"signature": signature}}


def _derived(derivation: Mapping[str, Any], secret: bytes) -> bytes:
    """The key that a signer derived, rightly or wrongly."""
    if derivation["kdf"] == "none":
        return secret
    if derivation["kdf"] != "HKDF-SHA256":
        raise ValueError(f"no such derivation: {derivation['kdf']}")
    info = str(derivation["info_utf8"])
    extracted = hmac.digest(bytes.fromhex(derivation["salt_hex"]) or bytes(32), secret, hashlib.sha256)
    made, block = b"", b""
    for number in range(1, -(-int(derivation["length"]) // 32) + 1):
        block = hmac.digest(extracted, block + (as_uuid(info) if info else "").encode() + bytes([number]), "sha256")
        made += block
    return made[: int(derivation["length"])]
