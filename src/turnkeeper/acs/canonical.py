"""Canonical JSON (RFC 8785, JCS): the bytes that are signed and hashed.

Answers for one byte string per value. Must never write a number that is not finite, or one canonical form for
two different integers. The fast path is orjson with sorted keys, taken exactly where that is byte-identical to
RFC 8785; the rest goes to the reference implementation. Pure.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast

import orjson
import rfc8785

from turnkeeper.errors import TurnkeeperError

Writer: TypeAlias = Callable[[object], bytes]
"""`canonicalize`, or `canonicalize_safe` for a value that is known to need no more."""

MAX_DEPTH: Final = 64
MAX_SAFE_INTEGER: Final = 2**53 - 1

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_ABOVE_SURROGATES = re.compile("[\ue000-\uffff]")
# orjson writes these as 1e-6; RFC 8785 wants 0.000001.
_DECIMAL_FROM = 1e-7
_DECIMAL_UNTIL = 1e-5


class CanonicalizationRejected(TurnkeeperError):
    """The value has no canonical form: not finite, an integer that no double spells, too deep, or not JSON."""

    code = "not_canonicalizable"


class _NeedsReference(Exception):
    """The value is outside the fast path's precondition."""


def canonicalize(value: object) -> bytes:
    """The RFC 8785 form of a JSON value in UTF-8.

    An integer beyond 2**53 - 1 is accepted only as the shortest decimal of a double, so that a canonical form can be
    read again and no two integers share one. Nesting deeper than 64 containers is refused. Raises
    `CanonicalizationRejected`.
    """
    try:
        return orjson.dumps(_fast_form(value, MAX_DEPTH), option=orjson.OPT_SORT_KEYS)
    except _NeedsReference:
        return _reference(value)
    except TypeError as error:
        raise CanonicalizationRejected(f"the value has no canonical form: {error}") from error


def canonical_writer(document: object) -> Writer:
    """What writes the canonical form of a document and of any part of it, in place of `canonicalize`.

    For a document of which several forms are owed: looking it through takes longer than writing it (4.5 µs against 0.9
    for a request of 1.6 KB), and happens once where nothing has to be changed. Raises `CanonicalizationRejected`.
    """
    try:
        return canonicalize_safe if _fast_form(document, MAX_DEPTH) is document else canonicalize
    except _NeedsReference:
        return canonicalize


def canonicalize_safe(value: object) -> bytes:
    """The RFC 8785 form of a document of our own making, without looking it through.

    INVARIANT: keys are ASCII, and values are strings, booleans, null, safe integers, and objects and lists of these.
    With a float in it the result may be wrong. Raises `CanonicalizationRejected` for what orjson refuses.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise CanonicalizationRejected(f"the value has no canonical form: {error}") from error


def _reference(value: object) -> bytes:
    try:
        return rfc8785.dumps(cast("Any", _reference_form(value, MAX_DEPTH)))
    except ValueError as error:
        raise CanonicalizationRejected(f"the value has no canonical form: {error}") from error


def _fast_form(value: object, depth_left: int) -> object:
    """The value as orjson has to see it; the same object where nothing had to be changed."""
    if isinstance(value, dict):
        return _fast_object(cast("dict[object, object]", value), depth_left)
    if isinstance(value, list):
        return _fast_list(cast("list[object]", value), depth_left)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, int):
        return _fast_integer(value)
    if isinstance(value, float):
        return _fast_float(value)
    raise CanonicalizationRejected(f"a {type(value).__name__} is not a JSON value")


def _fast_object(members: dict[object, object], depth_left: int) -> dict[object, object]:
    below = _deeper(depth_left)
    _check_names(members)
    changed: dict[object, object] | None = None
    for name, member in members.items():
        kind = type(member)
        if kind is str or kind is bool:
            continue
        # The most common container without a call between.
        is_object = kind is dict
        form = _fast_object(cast("dict[object, object]", member), below) if is_object else _fast_form(member, below)
        if form is not member:
            changed = changed if changed is not None else dict(members)
            changed[name] = form
    return members if changed is None else changed


def _fast_list(items: list[object], depth_left: int) -> list[object]:
    below = _deeper(depth_left)
    changed: list[object] | None = None
    for index, item in enumerate(items):
        if type(item) is str or type(item) is bool:
            continue
        form = _fast_form(item, below)
        if form is not item:
            changed = changed if changed is not None else list(items)
            changed[index] = form
    return items if changed is None else changed


def _deeper(depth_left: int) -> int:
    if depth_left == 0:
        raise CanonicalizationRejected(f"the value nests deeper than {MAX_DEPTH} levels")
    return depth_left - 1


def _check_names(members: dict[object, object]) -> None:
    try:
        names = "".join(cast("dict[str, object]", members))
    except TypeError as error:
        raise CanonicalizationRejected("the name of a member is not a string") from error
    # UTF-8 and UTF-16 order differ only between characters above U+FFFF and those from U+E000 to U+FFFF.
    if not names.isascii() and _ASTRAL.search(names) and _ABOVE_SURROGATES.search(names):
        raise _NeedsReference


def _fast_integer(value: int) -> object:
    if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return value if type(value) is int else int(value)
    return _fast_float(_double_spelled(value))


def _fast_float(value: float) -> object:
    if not -_LARGEST_DOUBLE <= value <= _LARGEST_DOUBLE:
        raise CanonicalizationRejected("a number is not finite")
    if value.is_integer():
        if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            return int(value)
    elif not _DECIMAL_FROM <= abs(value) < _DECIMAL_UNTIL:
        return value
    return orjson.Fragment(rfc8785.dumps(float(value)))


def _reference_form(value: object, depth_left: int) -> object:
    """The value as `rfc8785` has to see it: large integers as doubles, nothing deeper than the limit."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else _double_spelled(value)
    if not isinstance(value, dict | list):
        return value
    below = _deeper(depth_left)
    if isinstance(value, list):
        return [_reference_form(item, below) for item in cast("list[object]", value)]
    members = cast("dict[object, object]", value)
    return {name: _reference_form(member, below) for name, member in members.items()}


def _double_spelled(value: int) -> float:
    try:
        double = float(value)
    except OverflowError as error:
        raise CanonicalizationRejected("an integer is larger than the largest double") from error
    if Decimal(repr(double)) != value:
        raise CanonicalizationRejected("an integer beyond 2**53 - 1 is not the shortest decimal of a double")
    return double


_LARGEST_DOUBLE: Final = float.fromhex("0x1.fffffffffffffp+1023")
