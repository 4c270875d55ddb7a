"""What a MODIFY changes (ACS 6.3 and 6.5, ledger section 8): is it one meaning, and what does it make of a payload?

Answers for both sides: a Guardian sends nothing that is refused here, and an Observed Agent treats it as DENY. Pointers
start at the payload; an override of an argument stands at `/arguments/<name>/value`, in a wrapped MCP call at
`/params/arguments/<name>`. Must never hand back a payload in which an asked-for change is missing: what cannot be
applied raises. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, cast

from turnkeeper.errors import TurnkeeperError

DEFAULT_REPLACEMENT: Final = "[REDACTED]"
MAX_EDITS: Final = 1_000
MAX_POINTER_CHARACTERS: Final = 4_096

_CONTENT: Final = "modified_content"
_REDACTIONS: Final = "redactions"
_OVERRIDES: Final = "parameter_overrides"
_ARGUMENTS: Final = "arguments"
_WRAPPED_ARGUMENTS: Final = ("params", "arguments")
_MEMBERS = frozenset({_CONTENT, _REDACTIONS, _OVERRIDES})
# Where a hook keeps the text that `modified_content` is about: messages, results and memory, and a compaction.
_CONTENT_MEMBERS = ("content", "outputs", "results", "summary")
_BAD_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")

Segments = tuple[str, ...]


class ModificationsRejected(TurnkeeperError):
    """Modifications that have no single meaning. The agent denies the step; a Guardian never sends them."""

    code = "modify_composition"


class ModificationsInapplicable(TurnkeeperError):
    """Modifications that this payload has no place for. The agent denies the step."""

    code = "modify_unsupported"


def check_modifications(modifications: Mapping[str, object]) -> None:
    """Raises `ModificationsRejected` for what is malformed, changes nothing, or changes one place twice."""
    if unknown := sorted(set(modifications) - _MEMBERS):
        raise ModificationsRejected(f"unknown members: {', '.join(unknown)}")
    if _CONTENT in modifications:
        if len(modifications) > 1:
            raise ModificationsRejected(f"{_CONTENT} cannot be combined with other modifications")
        if not isinstance(modifications[_CONTENT], str):
            raise ModificationsRejected(f"{_CONTENT} is not a text")
        return
    redactions, overrides = _redactions(modifications), _overrides(modifications)
    if not redactions and not overrides:
        raise ModificationsRejected("the modifications change nothing")
    if len(redactions) + len(overrides) > MAX_EDITS:
        raise ModificationsRejected(f"more than {MAX_EDITS} modifications")
    _check_disjoint(
        [
            *redactions,
            *((_ARGUMENTS, name) for name in overrides),
            *((*_WRAPPED_ARGUMENTS, name) for name in overrides),
        ]
    )
    _check_other_root(redactions, overrides)


def merge_modifications(parts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Several modifications as one, checked. Raises `ModificationsRejected` where they do not fit together.

    The same edit asked for twice is one edit; two edits of one place are refused, ancestors and descendants included.
    """
    merged: dict[str, object] = {}
    redactions: list[object] = []
    for part in parts:
        check_modifications(part)
        for redaction in cast("Sequence[object]", part.get(_REDACTIONS, ())):
            if redaction not in redactions:
                redactions.append(redaction)
        _merge_members(merged, {name: part[name] for name in (_CONTENT,) if name in part})
        if _OVERRIDES in part:
            overrides = cast("dict[str, object]", merged.setdefault(_OVERRIDES, {}))
            _merge_members(overrides, cast("Mapping[str, object]", part[_OVERRIDES]))
    if redactions:
        merged[_REDACTIONS] = redactions
    check_modifications(merged)
    return merged


def apply_modifications(payload: Mapping[str, object], modifications: Mapping[str, object]) -> dict[str, object]:
    """The payload with every modification applied; the one given stays as it is.

    Raises `ModificationsRejected` as `check_modifications` does, and `ModificationsInapplicable` for a place that
    the payload does not have. An argument keeps its provenance: version 0.1 has no origin for a Guardian's value.
    """
    check_modifications(modifications)
    if _CONTENT in modifications:
        return _with_content(payload, cast("str", modifications[_CONTENT]))
    changed: object = payload
    for segments, replacement in _redactions(modifications).items():
        changed = _replaced(changed, segments, replacement, "/".join(("", *segments)))
    for name, value in _overrides(modifications).items():
        changed = _replaced(changed, _override_place(payload, name), value, f"argument {name!r}")
    return cast("dict[str, object]", changed)


def parse_pointer(pointer: object) -> Segments:
    """The unescaped segments of an RFC 6901 pointer, empty for the whole. Raises `ModificationsRejected`."""
    if not isinstance(pointer, str):
        raise ModificationsRejected("a redaction has no path")
    if len(pointer) > MAX_POINTER_CHARACTERS:
        raise ModificationsRejected(f"a path has more than {MAX_POINTER_CHARACTERS} characters")
    if pointer and not pointer.startswith("/"):
        raise ModificationsRejected(f"the path {pointer!r} does not start with a slash")
    if _BAD_ESCAPE.search(pointer):
        raise ModificationsRejected(f"the path {pointer!r} has a tilde that escapes nothing")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def _override_place(payload: Mapping[str, object], name: str) -> Segments:
    if _ARGUMENTS not in payload and isinstance(payload.get(_WRAPPED_ARGUMENTS[0]), Mapping):
        return (*_WRAPPED_ARGUMENTS, name)
    return (_ARGUMENTS, name, "value")


def _redactions(modifications: Mapping[str, object]) -> dict[Segments, str]:
    items = modifications.get(_REDACTIONS, [])
    if not isinstance(items, list):
        raise ModificationsRejected(f"{_REDACTIONS} is not a list")
    found: dict[Segments, str] = {}
    for item in cast("list[object]", items):
        segments, replacement = _redaction(item)
        if found.setdefault(segments, replacement) != replacement:
            raise ModificationsRejected("one place has two replacements")
    return found


def _redaction(item: object) -> tuple[Segments, str]:
    if not isinstance(item, dict):
        raise ModificationsRejected(f"{_REDACTIONS} holds something that is no object")
    members = cast("dict[str, object]", item)
    segments = parse_pointer(members.get("path"))
    if not segments:
        raise ModificationsRejected("the whole payload cannot be redacted")
    replacement = members.get("replacement", DEFAULT_REPLACEMENT)
    if not isinstance(replacement, str):
        raise ModificationsRejected("a replacement is not a text")
    return segments, replacement


def _overrides(modifications: Mapping[str, object]) -> Mapping[str, object]:
    overrides = modifications.get(_OVERRIDES, {})
    if not isinstance(overrides, dict):
        raise ModificationsRejected(f"{_OVERRIDES} is not an object")
    return cast("dict[str, object]", overrides)


def _check_disjoint(targets: Sequence[Segments]) -> None:
    # Sorted by segments, a place comes directly before everything below it.
    ordered = sorted(targets)
    for upper, lower in pairwise(ordered):
        if lower[: len(upper)] == upper:
            raise ModificationsRejected(f"two modifications touch /{'/'.join(upper)}")


def _check_other_root(redactions: Mapping[Segments, str], overrides: Mapping[str, object]) -> None:
    # Some agents read pointers from the argument map: what overlaps by their reading is not sent either.
    for segments in redactions:
        if segments[0] in overrides:
            raise ModificationsRejected(f"a redaction and an override both touch {segments[0]!r}")


def _merge_members(into: dict[str, object], members: Mapping[str, object]) -> None:
    for name, value in members.items():
        if name in into and not _same(into[name], value):
            raise ModificationsRejected(f"{name} has two new values")
        into[name] = value


def _same(left: object, right: object) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)


def _with_content(payload: Mapping[str, object], text: str) -> dict[str, object]:
    name = next(_content_members(payload), None)
    if name is None:
        raise ModificationsInapplicable("the payload has no content that a text could replace")
    old = payload[name]
    if isinstance(old, dict):
        return {**payload, name: {**cast("dict[str, object]", old), "value": text}}
    parts = cast("list[object]", old)
    # Several parts come from several sources, and the new text from none of them.
    kept = cast("dict[str, object]", parts[0]) if len(parts) == 1 and isinstance(parts[0], dict) else {}
    typed = {"type": "text"} if name == "content" else {}
    return {**payload, name: [{**kept, **typed, "value": text}]}


def _content_members(payload: Mapping[str, object]) -> Iterator[str]:
    for name in _CONTENT_MEMBERS:
        if isinstance(payload.get(name), (list, dict)):
            yield name


def _replaced(node: object, segments: Segments, value: object, place: str) -> object:
    """A copy of `node` with one place changed; only what leads there is copied."""
    head, rest = segments[0], segments[1:]
    if isinstance(node, Mapping) and head in node:
        members = cast("Mapping[str, object]", node)
        return {**members, head: _replaced(members[head], rest, value, place) if rest else value}
    if isinstance(node, list) and _INDEX.fullmatch(head) and int(head) < len(cast("list[object]", node)):
        items = cast("list[object]", node)
        index = int(head)
        changed = _replaced(items[index], rest, value, place) if rest else value
        return [*items[:index], changed, *items[index + 1 :]]
    raise ModificationsInapplicable(f"the payload has no {place}")
