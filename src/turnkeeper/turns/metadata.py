"""What `metadata[k]=v` finds (contract 2.2 and 2.3): top-level members of metadata, by name and text.

Pure. Answers for one digest per member that can be found, and for the same digest of a filter that asks for it. A
string is compared by what it says; a number, `true`, `false` and `null` by how the app spelled it. Objects and lists
are not found. Must never change what metadata comes back as: it is read, and kept nowhere.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias, cast

import orjson

MAX_INDEXED_MEMBERS: Final = 64
"""How many top-level members of one metadata object can be found by; those that come first."""
MAX_FILTERS: Final = 4
"""How many members one list is narrowed by."""
MAX_FILTER_CHARACTERS: Final = 512
"""Longest name, and longest text, in a filter. Longer ones are kept and cannot be found by."""

Described: TypeAlias = Literal["session", "turn"]
"""Whose metadata it is."""
MetadataFilter: TypeAlias = tuple[tuple[str, str], ...]
"""Names with the text of each; all must fit."""

_WORDS: Final = {True: "true", False: "false", None: "null"}
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)


def term_of(kind: Described, name: str, text: str) -> str:
    """What stands for a member in the index: a digest, for a member may be longer than an index entry."""
    return hashlib.sha256(orjson.dumps([kind, name, text])).hexdigest()


def terms_of(kind: Described, metadata_json: str) -> list[str]:
    """The terms of the first `MAX_INDEXED_MEMBERS` members that can be found."""
    members = cast("dict[str, Any]", _DECODER.decode(metadata_json))
    found = (term_of(kind, name, text) for name, text in _texts(members))
    return [term for term, _ in zip(found, range(MAX_INDEXED_MEMBERS), strict=False)]


def _texts(members: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in members.items():
        if isinstance(value, (dict, list)):
            continue
        text = value if isinstance(value, str) else _WORDS[value]
        if len(name) <= MAX_FILTER_CHARACTERS and len(text) <= MAX_FILTER_CHARACTERS:
            yield name, text
