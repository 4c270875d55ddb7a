"""Stream tokens (contract 2.4): what a browser shows in place of an API key, which its `EventSource` cannot send.

Pure. A token is signed and says whose it is, for which session, and until when. It opens streams of that session and
nothing else; whether its key still may is for the door to ask. A token is never stored.
"""

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from turnkeeper.clock import epoch_ms, from_epoch_ms
from turnkeeper.errors import TurnkeeperError

MAX_TTL_S: Final = 900
DEFAULT_TTL_S: Final = 300
TOKEN_PREFIX: Final = "stk_"  # noqa: S105  what a token begins with, not one
MAX_TOKEN_CHARACTERS: Final = 256

_TAG_BYTES: Final = 32
_CLAIMS: Final = re.compile(rb"(ses_[0-9A-Z]{26})\.(key_[0-9A-Z]{26})\.([0-9]{1,15})\Z")


class StreamTokenInvalid(TurnkeeperError):
    """Not a token of ours, one for another session, or one whose time is over."""

    code = "key_invalid"


@dataclass(frozen=True, slots=True)
class StreamToken:
    """What a token says."""

    session_id: str
    key_id: str
    expires_at: datetime


def render_stream_token(token: StreamToken, secret: bytes) -> str:
    """The token as text that fits into a URL."""
    claims = f"{token.session_id}.{token.key_id}.{epoch_ms(token.expires_at)}".encode()
    return TOKEN_PREFIX + base64.urlsafe_b64encode(_tag(claims, secret) + claims).rstrip(b"=").decode()


def verify_stream_token(text: str, secret: bytes, now: datetime) -> StreamToken:
    """What a token says, if we signed it and its time is not over. Raises `StreamTokenInvalid`."""
    raw = _decoded(text)
    tag, claims = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
    if not hmac.compare_digest(tag, _tag(claims, secret)):
        raise _invalid("was not made here")
    found = _CLAIMS.match(claims)
    if found is None:
        raise _invalid("was not made here")
    session_id, key_id, expires_ms = found.groups()
    token = StreamToken(session_id.decode(), key_id.decode(), from_epoch_ms(int(expires_ms)))
    if token.expires_at <= now:
        raise _invalid("has expired")
    return token


def _decoded(text: str) -> bytes:
    body = text.removeprefix(TOKEN_PREFIX)
    if body == text or len(text) > MAX_TOKEN_CHARACTERS:
        raise _invalid("was not made here")
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _invalid("was not made here") from error


def _tag(claims: bytes, secret: bytes) -> bytes:
    # The word in front keeps a list cursor, which the same secret signs, from ever being a token.
    return hmac.digest(secret, b"stream_token\0" + claims, hashlib.sha256)


def _invalid(why: str) -> StreamTokenInvalid:
    return StreamTokenInvalid(
        f"the stream_token {why}", hint="Ask for another one with POST /v1/sessions/{id}/stream_tokens."
    )
