"""Tool calls that a model wrote into its text, because its server has no other way for them (prompted tool calling).

Pure. Takes text, finds the objects in it that are calls, and what is left beside them. The arguments stay the text
the model wrote. Must never make a call out of a part of one: where a call was begun that is none, nothing is called.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from turnkeeper.harness.json_text import member_text

MAX_CALLS: Final = 16
"""Calls of one answer. What was written after them is not called."""
MAX_LOOKS: Final = 1_000
"""Opening braces of one answer that are looked at; each may be read to the end of the text."""

_DECODER: Final = json.JSONDecoder()
_BEGUN: Final = re.compile(r'\{\s*"(?:tool"\s*:|name"\s*:\s*"[^"]*"\s*,\s*"(?:arguments|parameters)")')
_TAG: Final = re.compile(r"</?tool_calls?>")
_FENCE: Final = re.compile(r"```[\w-]*\s*```")
_NOTHING: Final = re.compile(r"[\s\[\],;]*\Z")
_NAMES: Final = ("tool", "name")
_ARGUMENTS: Final = ("arguments", "parameters")

_Object: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as it was written; `arguments` is JSON text, of an object or not."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Written:
    """What an answer comes to. `broken`: a call was begun that cannot be read, so `calls` is empty."""

    text: str
    calls: tuple[WrittenCall, ...] = ()
    broken: bool = False


class _Broken(Exception):
    """A call was begun and is none."""


def read_calls(text: str) -> Written:
    """The calls in a model's answer, in the order they were written, and the text without them."""
    calls: list[WrittenCall] = []
    beside: list[str] = []
    position = 0
    try:
        for start, end, call in _calls(text):
            calls.append(call)
            beside.append(text[position:start])
            position = end
    except _Broken:
        return Written(text, broken=True)
    if not calls:
        return Written(text, broken=_TAG.search(text) is not None)
    beside.append(text[position:])
    return Written(_left("".join(beside)), tuple(calls[:MAX_CALLS]))


def render_call(name: str, arguments: str) -> str:
    """A call as a model is told to write it."""
    return f'{{"tool": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}'


def _calls(text: str) -> Iterator[tuple[int, int, WrittenCall]]:
    position = looks = 0
    while (start := text.find("{", position)) >= 0 and looks < MAX_LOOKS:
        looks += 1
        try:
            value, position = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            if _BEGUN.match(text, start):
                raise _Broken from error
            position = start + 1
            continue
        call = _call(cast("_Object", value), text[start:position])
        if call is not None:
            yield start, position, call


def _call(value: _Object, written: str) -> WrittenCall | None:
    key = next((name for name in _NAMES if name in value), None)
    given = next((name for name in _ARGUMENTS if name in value), None)
    if key is None or (key != "tool" and given is None):
        return None
    name = value[key]
    if not isinstance(name, str) or not name:
        raise _Broken
    if given is None:
        return WrittenCall(name, "{}")
    arguments = value[given]
    if isinstance(arguments, str):
        # Some models put the arguments as text inside the text.
        return WrittenCall(name, arguments)
    return WrittenCall(name, member_text(written, given) or json.dumps(arguments))


def _left(text: str) -> str:
    text = _FENCE.sub("", _TAG.sub("", text)).strip()
    return "" if _NOTHING.match(text) else text
