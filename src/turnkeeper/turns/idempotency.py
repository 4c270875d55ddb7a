"""Idempotency keys (contract 9): their grammar, and what makes two requests the same.

Pure. A key belongs to the project; which turn it stands for is the store's to remember, in the turn's transaction.
"""

import hashlib
import json
import re
from typing import Final

from turnkeeper.acs.canonical import CanonicalizationRejected, canonicalize
from turnkeeper.acs.strictjson import JsonValue
from turnkeeper.errors import TurnkeeperError

MAX_KEY_CHARACTERS: Final = 255
_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}\Z")


class IdempotencyKeyInvalid(TurnkeeperError):
    """The header's value is not a key."""

    code = "idempotency_key_invalid"


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
