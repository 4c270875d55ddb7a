"""Reading what a client prints: lines of JSON whose members may have any form, because the box may have written them.

Pure.
"""

import json
from collections.abc import Mapping
from typing import cast


def parse_line(line: bytes) -> Mapping[str, object] | None:
    """The object of a line; None for anything else."""
    try:
        document: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", document) if isinstance(document, dict) else None


def text_member(document: Mapping[str, object], name: str) -> str:
    """A member that is text, else none."""
    value = document.get(name)
    return value if isinstance(value, str) else ""


def member(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A member that is an object, else an empty one."""
    value = document.get(name)
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def objects(document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    """The objects in a member that is a list."""
    value = document.get(name)
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]
