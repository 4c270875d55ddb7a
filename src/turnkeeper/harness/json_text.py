"""JSON as text: a part of a document taken out without changing its spelling. Pure."""

import json
from typing import Final

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = " \t\r\n"


def member_text(text: str, name: str) -> str | None:
    """The raw text of a member of a JSON object; `None` when the text is no object or has no such member."""
    found = None
    try:
        position = _expect(text, _skip(text, 0), "{")
        while text[position := _skip(text, position)] != "}":
            key, position = _DECODER.raw_decode(text, position)
            start = _skip(text, _expect(text, _skip(text, position), ":"))
            _, position = _DECODER.raw_decode(text, start)
            found = text[start:position] if key == name else found
            position = _skip(text, position)
            if text[position] != "}":
                position = _expect(text, position, ",")
    except (ValueError, IndexError, RecursionError):
        return None
    return found if not text[position + 1 :].strip(_SPACE) else None


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _expect(text: str, position: int, character: str) -> int:
    if text[position] != character:
        raise ValueError(character)
    return position + 1
