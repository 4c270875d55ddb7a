"""Keys (ACS 10.1, ledger section 13): labelled secrets and the session keys derived from them.

Answers for one key per label and session: HKDF-SHA256 without salt over the secret, `info` the session id as sent,
32 bytes. Must never fall back from an unknown label to another secret, nor show a secret in a repr. Pure.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from turnkeeper.errors import TurnkeeperError

MIN_SECRET_BYTES: Final = 32
DEFAULT_CACHED_KEYS: Final = 4_096

# What a UUID's text needs; a longer id is derived again each time, so that callers cannot fill memory with ids.
_CACHED_SESSION_ID_CHARACTERS = 64
_NO_SALT = bytes(32)
# A shorter piece of a digest is also an ordinary label now and then.
_TELLING_CHARACTERS = 8
_DIGESTS = ("md5", "sha1", "sha256", "sha384", "sha512", "sha3_256", "blake2b", "blake2s")


class KeyUnknown(TurnkeeperError):
    """No secret has this label."""

    code = "key_unknown"


class SecretTooShort(TurnkeeperError):
    """A secret has fewer bytes than HMAC-SHA256 deserves."""

    code = "secret_too_short"


class LabelDerived(TurnkeeperError):
    """A label shows a part of its secret, or of a digest of it, to whoever sees a signature (CORE-SIG-07)."""

    code = "label_derived"


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The 32 bytes that sign one session's envelopes, and the label they are named by on the wire."""

    key_id: str
    session_id: str
    secret: bytes = field(repr=False)


class Keyring:
    """Secrets by label. Safe to share between threads."""

    def __init__(self, secrets: Mapping[str, bytes], *, cached_keys: int = DEFAULT_CACHED_KEYS) -> None:
        """Takes secrets as they are; `read_secret` checks their length. Raises `SecretTooShort` for an empty one."""
        if not all(secrets.values()):
            raise SecretTooShort("a secret is empty")
        self._extracted = {key_id: hmac.digest(_NO_SALT, secret, "sha256") for key_id, secret in secrets.items()}
        self._cached = lru_cache(maxsize=cached_keys)(self._derive)

    @property
    def key_ids(self) -> frozenset[str]:
        """The labels that have a secret."""
        return frozenset(self._extracted)

    def session_key(self, key_id: str, session_id: str) -> SessionKey:
        """The key of one session under one label. Raises `KeyUnknown`."""
        if key_id not in self._extracted:
            raise KeyUnknown("no secret has the label that the signature names")
        if len(session_id) > _CACHED_SESSION_ID_CHARACTERS:
            return self._derive(key_id, session_id)
        return self._cached(key_id, session_id)

    def __repr__(self) -> str:
        return f"Keyring({sorted(self._extracted)})"

    def _derive(self, key_id: str, session_id: str) -> SessionKey:
        # A peer's id may hold half a surrogate pair where nobody checked; it then simply derives a key of its own.
        info = session_id.encode("utf-8", "surrogatepass")
        secret = hmac.digest(self._extracted[key_id], info + b"\x01", "sha256")
        return SessionKey(key_id, session_id, secret)


def read_secret(content: bytes) -> bytes:
    """The secret in a key file: its bytes without one trailing newline. Raises `SecretTooShort`."""
    secret = content.removesuffix(b"\n")
    if len(secret) < MIN_SECRET_BYTES:
        raise SecretTooShort(
            f"the secret has {len(secret)} bytes, fewer than {MIN_SECRET_BYTES}",
            hint=f"Write at least {MIN_SECRET_BYTES} random bytes into the key file.",
        )
    return secret


def check_label(key_id: str, secret: bytes) -> None:
    """Raises `LabelDerived` for a label made of the secret or of one of its usual digests, in hex or base64.

    A label derived in some other way does not show.
    """
    if len(key_id) < _TELLING_CHARACTERS:
        return
    spoken = key_id.lower()
    for content in (secret, *(hashlib.new(name, secret).digest() for name in _DIGESTS)):
        standard = base64.b64encode(content).decode()
        urlsafe = standard.translate(str.maketrans("+/", "-_"))
        if spoken in content.hex() or key_id in standard or key_id in urlsafe or key_id.encode() in content:
            raise LabelDerived(
                "a key's label is made of its secret, which every signature would then give away",
                hint="Name keys by their date or purpose.",
            )
