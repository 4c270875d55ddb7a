"""Prefixed ULIDs (`trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB`) and their UUID form, which ACS requires on the wire.

A ULID has 128 bits: 48 of time and 80 of chance. The UUID form carries the same bits, so it can be turned back.
"""

import re
import secrets
from collections.abc import Callable
from typing import Literal, Protocol
from uuid import UUID

from turnkeeper.clock import Clock, epoch_ms
from turnkeeper.errors import TurnkeeperError

Prefix = Literal[
    "agt",
    "ses",
    "trn",
    "evt",
    "msg",
    "tcl",
    "key",
    "sbx",
    "prj",
    "req",
    "sub",
    "apr",
    "whe",
    "whd",
    "bud",
    "fil",
    "art",
    "sec",
    "thr",
    "skl",
]

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUE = {character: value for value, character in enumerate(_ALPHABET)}
_SHAPE = re.compile(r"[a-z]{3}_[0-9A-HJKMNP-TV-Z]{26}\Z")
_RANDOM_BITS = 80
_ULID_BITS = 128


class IdMalformed(TurnkeeperError):
    """The text is not an id of the wanted kind."""

    code = "id_malformed"


class IdSource(Protocol):
    """Where new ids come from."""

    def new(self, prefix: Prefix) -> str:
        """A fresh id, later in text order than those this source made before in another millisecond."""
        ...

    def uuid(self) -> str:
        """A fresh random UUID (version 4) as text, for ACS request ids and nonces."""
        ...


class RandomIds:
    """Ids from the clock and the system's random source; within one millisecond they still increase."""

    def __init__(self, clock: Clock, random_bits: Callable[[int], int] = secrets.randbits) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._last = 0

    def new(self, prefix: Prefix) -> str:
        """A fresh id, later in text order than every id this source made before."""
        value = (epoch_ms(self._clock.now()) << _RANDOM_BITS) | self._random_bits(_RANDOM_BITS)
        if value <= self._last:
            value = self._last + 1
        self._last = value
        return f"{prefix}_{_encode(value)}"

    def uuid(self) -> str:
        """A fresh random UUID (version 4) as text."""
        bits = self._random_bits(_ULID_BITS)
        return str(UUID(int=bits, version=4))


def is_id(text: str, prefix: Prefix) -> bool:
    """Whether `text` has the form of an id with this prefix, as a reader accepts it."""
    return _SHAPE.match(text) is not None and text.startswith(prefix + "_")


def is_any_id(text: str) -> bool:
    """Whether `text` has the form of an id, whatever its prefix."""
    return _SHAPE.match(text) is not None


def uuid_of(identifier: str) -> str:
    """The id's 128 bits as UUID text. Raises `IdMalformed`."""
    if _SHAPE.match(identifier) is None or identifier[4] > "7":
        raise IdMalformed(f"{identifier!r} is not an id of 128 bits")
    value = 0
    for character in identifier[4:]:
        value = value << 5 | _VALUE[character]
    return str(UUID(int=value))


def made_at_ms(identifier: str) -> int:
    """When an id was made, in milliseconds since 1970, as it says itself. Raises `IdMalformed`."""
    return UUID(uuid_of(identifier)).int >> _RANDOM_BITS


def id_from_uuid(prefix: Prefix, text: str) -> str:
    """The id whose bits a UUID text carries. Raises `IdMalformed`."""
    try:
        return f"{prefix}_{_encode(UUID(text).int)}"
    except ValueError as error:
        raise IdMalformed(f"{text!r} is not a UUID") from error


def _encode(value: int) -> str:
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))
