"""Idempotency keys (contract 9): their grammar, and what makes two requests the same.

Pure. A key belongs to the project; what it stands for is the store's to remember, in the transaction that makes it.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Final

from turnkeeper.acs.canonical import CanonicalizationRejected, canonicalize
from turnkeeper.acs.strictjson import JsonValue
from turnkeeper.errors import TurnkeeperError

MAX_KEY_CHARACTERS: Final = 255
IN_PROGRESS_WAIT_MS: Final = 2_000
"""How long a request waits for the first one with its key."""
RETRY_AFTER_MS: Final = 1_000
_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}\Z")


class IdempotencyKeyInvalid(TurnkeeperError):
    """The header's value is not a key."""

    code = "idempotency_key_invalid"


class IdempotencyKeyReused(TurnkeeperError):
    """The key was used for another request; `detail` has the id of what that one made."""

    code = "idempotency_key_reused"

    def __init__(self, thing_id: str) -> None:
        name = "turn_id" if thing_id.startswith("trn_") else "resource_id"
        super().__init__(
            "this Idempotency-Key was used for another request",
            detail={name: thing_id},
            hint="Use a new key for a new request.",
        )


class IdempotencyInProgress(TurnkeeperError):
    """The first request with this key is still being committed."""

    code = "idempotency_in_progress"

    def __init__(self) -> None:
        super().__init__(
            "the first request with this Idempotency-Key is still being accepted",
            detail={"retry_after_ms": RETRY_AFTER_MS},
        )


class IdempotencyResourceDeleted(TurnkeeperError):
    """What the key stands for was deleted; it is not made again."""

    code = "idempotency_resource_deleted"

    def __init__(self, thing_id: str) -> None:
        super().__init__(
            f"this Idempotency-Key stands for {thing_id}, which was deleted", detail={"resource_id": thing_id}
        )


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request that makes something at most once: whose its key is, the key, and what it asks for."""

    project_id: str
    key: str
    fingerprint: str


def parse_key(header: str) -> str:
    """The key in an `Idempotency-Key` header. Double quotes around it (the IETF form) are not part of it.

    Raises `IdempotencyKeyInvalid` unless it is 1 to 255 printable ASCII characters.
    """
    key = header[1:-1] if len(header) >= 2 and header[0] == header[-1] == '"' else header
    if _KEY.match(key) is None or not key.strip():
        raise IdempotencyKeyInvalid(f"an Idempotency-Key is 1 to {MAX_KEY_CHARACTERS} printable ASCII characters")
    return key


def fingerprint(method: str, path: str, body: JsonValue) -> str:
    """SHA-256 over method, path and the RFC 8785 form of the body, as hex.

    Key order and white space do not matter, and `1` is `1.0`; another session in the path is another request.
    """
    text = f"{method.upper()}\n{path}\n".encode()
    return hashlib.sha256(text + _canonical(body)).hexdigest()


def _canonical(body: JsonValue) -> bytes:
    try:
        return canonicalize(body)
    except CanonicalizationRejected:
        # RFC 8785 has no form for integers beyond 2^53, which an app's metadata may well hold.
        return b"\0" + json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
