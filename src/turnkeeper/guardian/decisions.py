"""The signed decision log (ledger CORE-CH-16, AUD-02): what was decided, without what it was decided about.

The chain commits to requests alone; a decision stands in its signed answer. Answers for a record of each decision that
is signed on its own, so that it outlasts the content of its answer, and for a log of those records beside their
entries. Must never put a byte of a payload, a modification or a reasoning into a record. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import orjson

from turnkeeper.acs import (
    JsonRejected,
    Keyring,
    KeyUnknown,
    SessionKey,
    SignatureRejected,
    canonicalize,
    parse_object,
    sign_response,
    verify_response,
)
from turnkeeper.acs.strictjson import is_object
from turnkeeper.guardian.ports import RecordedStep
from turnkeeper.guardian.views import render_ms

DECISION: Final = "guardian.decision"
SCHEMA_VERSION: Final = 1
LOG_MEMBERS: Final = ("decision", "entry")

_TOLD = ("reason_codes", "policy_references")


@dataclass(frozen=True, slots=True)
class DecisionAbout:
    """What a record has to agree with: the row it stands beside, as far as the row still says it."""

    session_id: str
    key_id: str | None
    recorded: int | None
    entry: Mapping[str, object] | None
    request_digest: bytes | None
    response_digest: bytes | None


def decision_record(step: RecordedStep, key: SessionKey) -> bytes:
    """The signed record of what a step was answered; the one that is stored where its content is erased.

    Raises `CanonicalizationRejected`.
    """
    if step.decision_log is not None:
        return step.decision_log
    document: dict[str, object] = {
        "object": DECISION,
        "schema_version": SCHEMA_VERSION,
        "session_id": key.session_id,
        "recorded": step.recorded,
        "request_id": step.request_id,
        "method": step.method,
        "turn_id": step.turn_id,
        "received_at": render_ms(step.received_at_ms),
        "decision": step.decision,
        "error_code": step.error_code,
        "chain_hash": step.chain_hash,
        "request_sha256": step.request_digest.hex(),
        "response_sha256": step.response_digest.hex(),
        **_told(step.response),
    }
    return canonicalize(sealed(document, key))


def sealed(document: Mapping[str, object], key: SessionKey) -> dict[str, object]:
    """A document of ours with a signature under a session's key. Raises `CanonicalizationRejected`.

    What is signed is no envelope, for it names no JSON-RPC, so neither can pass for the other.
    """
    return cast("dict[str, object]", sign_response({"result": document}, key)["result"])


def check_sealed(
    document: Mapping[str, object], keyring: Keyring, session_id: str, *, key_id: str | None = None
) -> None:
    """Returns where a document of ours is signed with this session's key, under the label where one is named.

    Raises `SignatureRejected`.
    """
    signature = document.get("signature")
    stated = signature.get("key_id") if is_object(signature) else None
    label = key_id or (stated if isinstance(stated, str) else "")
    try:
        key = keyring.session_key(label, session_id)
    except KeyUnknown as unknown:
        raise SignatureRejected("the signature names a key that is not at hand", code="key_unknown") from unknown
    verify_response({"result": document}, key)


def check_record(record: bytes, about: DecisionAbout, keyring: Keyring) -> Iterator[tuple[str, str]]:
    """What is wrong with a stored record, each as code and sentence."""
    try:
        document = parse_object(record)
        check_sealed(document, keyring, about.session_id, key_id=about.key_id)
    except JsonRejected as rejected:
        yield "decision_unreadable", f"the signed decision is not usable JSON: {rejected.message}"
        return
    except SignatureRejected as rejected:
        yield "decision_signature_invalid", f"the signed decision is not the Guardian's: {rejected.message}"
        return
    entry = about.entry or {}
    expected = {
        "session_id": about.session_id,
        "chain_hash": entry.get("entry_hash"),
        "recorded": document.get("recorded") if about.recorded is None else about.recorded,
        "request_id": entry.get("entry_id", document.get("request_id")),
        "request_sha256": _hex(about.request_digest, document.get("request_sha256")),
        "response_sha256": _hex(about.response_digest, document.get("response_sha256")),
    }
    for name, value in expected.items():
        if document.get(name) != value:
            yield "decision_differs", f"{name} of the signed decision is not that of its row"


def is_log_line(members: Mapping[str, object]) -> bool:
    """Whether a line is one of a decision log."""
    return tuple(members) == LOG_MEMBERS


def log_lines(steps: Iterable[RecordedStep], key: SessionKey) -> Iterator[bytes]:
    """The decision log of a session: a line for each row, its signed record and its entry, newline included."""
    for step in steps:
        decision = orjson.Fragment(decision_record(step, key)) if step.request_digest else None
        line = {"decision": decision, "entry": None if step.entry is None else orjson.Fragment(step.entry)}
        yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _told(response: bytes | None) -> dict[str, object]:
    """What an answer says beside its decision, codes and names alone."""
    try:
        result = parse_object(response or b"").get("result")
    except JsonRejected:
        return {}
    members = result if is_object(result) else {}
    return {name: members[name] for name in _TOLD if name in members}


def _hex(digest: bytes | None, unknown: object) -> object:
    return unknown if digest is None else digest.hex()
