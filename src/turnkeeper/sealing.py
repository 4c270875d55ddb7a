"""Values that lie encrypted in a database: AES-256-GCM, one nonce per value, bound to what the value belongs to.

Whoever can write the database and has no key can neither read a value, nor change it, nor make it stand for something
else. Whoever has database and key has the values. Randomness is the system's.
"""

import base64
import hashlib
import hmac
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from turnkeeper.errors import TurnkeeperError

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
_VERSION: Final = b"\x01"


class SealBroken(TurnkeeperError):
    """The value was sealed with another key, for something else, or was changed."""

    code = "seal_broken"


class SealKeyMalformed(TurnkeeperError):
    """The key file does not hold 32 bytes in hexadecimal."""

    code = "seal_key_malformed"


class Sealer:
    """Seals and opens with one key."""

    def __init__(self, key_text: bytes) -> None:
        try:
            key = bytes.fromhex(key_text.decode("ascii").strip())
        except (ValueError, UnicodeDecodeError) as error:
            raise SealKeyMalformed("the key for secrets is not hexadecimal") from error
        if len(key) != KEY_BYTES:
            raise SealKeyMalformed(f"the key for secrets has {len(key)} bytes and not {KEY_BYTES}")
        self._cipher = AESGCM(hashlib.sha256(b"seal\0" + key).digest())
        self._marking = hashlib.sha256(b"mark\0" + key).digest()

    def seal(self, value: str, bound: str) -> str:
        """The value as it may be stored, with what it is `bound` to."""
        nonce = os.urandom(NONCE_BYTES)
        return base64.b64encode(_VERSION + nonce + self._cipher.encrypt(nonce, value.encode(), bound.encode())).decode()

    def open(self, sealed: str, bound: str) -> str:
        """The value. Raises `SealBroken`."""
        try:
            raw = base64.b64decode(sealed, validate=True)
        except ValueError as error:
            raise SealBroken("the value is no sealed one") from error
        version, nonce, rest = raw[:1], raw[1 : 1 + NONCE_BYTES], raw[1 + NONCE_BYTES :]
        if version != _VERSION:
            raise SealBroken("the value was sealed in a way that is not known here")
        try:
            return self._cipher.decrypt(nonce, rest, bound.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise SealBroken("the value cannot be opened with this key") from error

    def mark(self, value: str) -> str:
        """What two equal values have in common, and what says nothing about them to whoever has no key."""
        return hmac.new(self._marking, value.encode(), hashlib.sha256).hexdigest()
