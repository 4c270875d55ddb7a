"""List cursors (contract 14): opaque, signed, bound to the filter they were made for.

Pure. A cursor says after which id a list goes on. A client cannot make one, nor carry one to another list.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

import orjson

from turnkeeper.errors import TurnkeeperError

MAX_CURSOR_CHARACTERS: Final = 512
_TAG_BYTES: Final = 16


class CursorInvalid(TurnkeeperError):
    """Not a cursor of ours, or one that belongs to another list."""

    code = "cursor_invalid"


def render_cursor(after: str, filters: Mapping[str, str | None], secret: bytes) -> str:
    """The cursor for what follows `after` in the list that `filters` describe (path and order among them)."""
    position = after.encode()
    return base64.urlsafe_b64encode(_tag(position, filters, secret) + position).rstrip(b"=").decode()


def parse_cursor(cursor: str, filters: Mapping[str, str | None], secret: bytes) -> str:
    """The `after` a cursor was made of. Raises `CursorInvalid`."""
    if len(cursor) > MAX_CURSOR_CHARACTERS:
        raise CursorInvalid(f"a cursor has at most {MAX_CURSOR_CHARACTERS} characters")
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise CursorInvalid("this is not a cursor") from error
    tag, position = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
    if not hmac.compare_digest(tag, _tag(position, filters, secret)):
        raise CursorInvalid(
            "this cursor does not belong to this list", hint="Ask for the first page with the same filters again."
        )
    return position.decode()


def _tag(position: bytes, filters: Mapping[str, str | None], secret: bytes) -> bytes:
    bound = orjson.dumps(dict(filters), option=orjson.OPT_SORT_KEYS)
    return hmac.digest(secret, b"cursor\0" + bound + b"\0" + position, hashlib.sha256)[:_TAG_BYTES]
