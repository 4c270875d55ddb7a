"""Strict JSON: one reading of a text, or a refusal (RFC 8259, I-JSON, ledger sections 1 and 23).

Answers for turning a peer's bytes into values, and for handing back members token for token as they came.
Must never keep one of two members with the same name, read a number as infinity, or let nesting reach the
interpreter's own recursion limit. Pure.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard, cast

import orjson

from turnkeeper.errors import LocalProtocolError, TurnkeeperError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]

_DEEPEST_LIMIT = 200
_SHOWN_KEY_CHARACTERS = 100
_NOT_FINITE = re.compile(r"-?(?:NaN|Infinity)")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_STRING_OR_SPACE = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")|[ \t\n\r]++')
_SPACE = b" \t\n\r"
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """How much a text may ask for before it is refused."""

    max_bytes: int = 1_048_576
    max_depth: int = 64

    def __post_init__(self) -> None:
        # Above this the reader and the writer of the interpreter would stop at limits of their own.
        if not 1 <= self.max_depth <= _DEEPEST_LIMIT:
            raise LocalProtocolError(f"max_depth is {self.max_depth}, not between 1 and {_DEEPEST_LIMIT}")


DEFAULT_LIMITS = JsonLimits()


class JsonRejected(TurnkeeperError):
    """The bytes are not JSON that has exactly one reading.

    `error_code` is one of `invalid_json`, `duplicate_key`, `lone_surrogate`, `too_deep`, `too_large`, `not_finite`.
    """

    code = "invalid_json"


def parse_strict(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> JsonValue:
    """The value of a JSON text in UTF-8.

    Integers of any length up to the largest double are kept exactly, as `int`. Raises `JsonRejected`.
    """
    if len(body) > limits.max_bytes:
        raise JsonRejected(
            f"the text has {len(body)} bytes, more than the limit of {limits.max_bytes}",
            code="too_large",
            detail={"limit_bytes": limits.max_bytes},
        )
    try:
        value: JsonValue = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _explain(body, error) from error
    _check_depth(body, limits.max_depth)
    # A text that the writer reproduces byte for byte had no second member of one name: it would be gone.
    if orjson.dumps(value) == body:
        return value
    return cast("JsonValue", _EXACT.decode(body.decode()))


def parse_object(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> JsonObject:
    """The members of a JSON text whose root is an object. Raises `JsonRejected`."""
    value = parse_strict(body, limits)
    if not isinstance(value, dict):
        raise JsonRejected("the root of the text is not an object")
    return value


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Whether a parsed value is an object."""
    return isinstance(value, dict)


def minify(text: str | bytes, limits: JsonLimits = DEFAULT_LIMITS) -> str:
    """The text without insignificant white space; every token keeps its spelling and place. Raises `JsonRejected`."""
    raw = text if isinstance(text, bytes) else _encoded(text)
    parse_strict(raw, limits)
    return _without_space(raw)


def member_slices(text: str | bytes, limits: JsonLimits = DEFAULT_LIMITS) -> dict[str, str]:
    """The raw text of each member of the root object, as received but for insignificant white space.

    Key order, number spelling and escapes are the sender's. Raises `JsonRejected`.
    """
    raw = text if isinstance(text, bytes) else _encoded(text)
    parse_object(raw, limits)
    return dict(_members(_without_space(raw)))


def item_slices(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> list[bytes]:
    """The raw text of each item of the root array, as received but for insignificant white space.

    Raises `JsonRejected`, also for a root that is no array.
    """
    if not isinstance(parse_strict(body, limits), list):
        raise JsonRejected("the root of the text is not an array")
    return [item.encode() for item in _items(_without_space(body))]


def _items(minified: str) -> Iterator[str]:
    at = 1
    while minified[at] != "]":
        _, end = _EXTENT.raw_decode(minified, at)
        yield minified[at:end]
        at = end + 1 if minified[end] == "," else end


def _members(minified: str) -> Iterator[tuple[str, str]]:
    at = 1
    while minified[at] != "}":
        name, key_end = _EXTENT.raw_decode(minified, at)
        _, value_end = _EXTENT.raw_decode(minified, key_end + 1)
        yield cast("str", name), minified[key_end + 1 : value_end]
        at = value_end + 1 if minified[value_end] == "," else value_end


def _without_space(text: bytes) -> str:
    """Drops white space from a text that is known to be JSON."""
    if b"\\" in text:
        return _STRING_OR_SPACE.sub(rb"\1", text).decode()
    # Without escapes every quotation mark begins or ends a string: the even parts are outside.
    parts = text.split(b'"')
    parts[::2] = [part.translate(None, _SPACE) for part in parts[::2]]
    return b'"'.join(parts).decode()


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise JsonRejected("a string has half of a surrogate pair", code="lone_surrogate") from error


def _check_depth(body: bytes, max_depth: int) -> None:
    """Counts levels in the text, which is known to be JSON: much cheaper than walking the value."""
    if body.count(b"{") + body.count(b"[") <= max_depth:
        return
    outside = _STRING.sub(b"", body) if b"\\" in body else b"".join(body.split(b'"')[::2])
    brackets = outside.translate(_ONE_KIND, _NOT_BRACKETS)
    for _ in range(max_depth):
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise JsonRejected(
            f"the text nests deeper than {max_depth} levels", code="too_deep", detail={"limit_depth": max_depth}
        )


def _explain(body: bytes, error: orjson.JSONDecodeError) -> JsonRejected:
    reason = error.msg
    if "infinity" in reason or _NOT_FINITE.match(error.doc, error.pos):
        return JsonRejected("a number is not finite", code="not_finite", detail={"offset": error.pos})
    if "surrogate" in reason and _is_utf8_but_for_surrogates(body):
        return JsonRejected(
            "a string has half of a surrogate pair", code="lone_surrogate", detail={"offset": error.pos}
        )
    if "depth" in reason:
        return JsonRejected("the text nests too deep", code="too_deep")
    return JsonRejected(f"the text is not JSON: {reason}", detail={"offset": error.pos})


def _is_utf8_but_for_surrogates(body: bytes) -> bool:
    try:
        body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    name = Counter(name for name, _ in pairs).most_common(1)[0][0][:_SHOWN_KEY_CHARACTERS]
    raise JsonRejected(f"the member {name!r} occurs twice in one object", code="duplicate_key", detail={"key": name})


_EXACT = json.JSONDecoder(object_pairs_hook=_no_duplicates)
# Finds where a value ends without paying for its numbers.
_EXTENT = json.JSONDecoder(parse_int=str, parse_float=str)
