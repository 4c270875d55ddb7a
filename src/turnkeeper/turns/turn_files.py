"""The files of a turn: what its row, its events and its agent are told of them (contract 2.3).

Pure. INVARIANT: a name that a client or an agent chose is shown, and never used as a path; where a file lies for the
agent is `TurnFile.path`, whose last part is made here.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

MAX_TURN_FILES: Final = 50
MAX_FILE_NAME_CHARACTERS: Final = 255
MAX_PATH_NAME_CHARACTERS: Final = 80
INPUT_FOLDER: Final = "inputs"
OUTPUT_FOLDER: Final = "outputs"

_NOT_IN_PATHS: Final = re.compile(r"[^\w.+-]+")


@dataclass(frozen=True, slots=True)
class TurnFile:
    """A file as a turn has it: as it was when the turn was accepted. `path` is relative to the workspace."""

    file_id: str
    name: str
    path: str
    media_type: str
    size_bytes: int
    sha256: str


def path_name(name: str) -> str:
    """A name that is safe as the last part of a path on any system: no separator, no leading dot, not too long."""
    plain = _NOT_IN_PATHS.sub("_", unicodedata.normalize("NFC", name)).lstrip(".")
    stem, dot, suffix = plain.rpartition(".")
    if dot and stem and len(suffix) < MAX_PATH_NAME_CHARACTERS // 2:
        return f"{stem[: MAX_PATH_NAME_CHARACTERS - len(suffix) - 1]}.{suffix}"
    return plain[:MAX_PATH_NAME_CHARACTERS] or "file"


def shown_name(name: str) -> str:
    """A name as people see it: its last part, without control characters, not too long; `file` for none at all."""
    last = re.split(r"[/\\]", name)[-1]
    visible = "".join(character for character in last if unicodedata.category(character)[0] != "C")
    return visible[:MAX_FILE_NAME_CHARACTERS] or "file"


def reference(file: TurnFile) -> dict[str, object]:
    """What events and the Guardian see of a turn's file."""
    return {
        "file_id": file.file_id,
        "name": file.name,
        "path": file.path,
        "media_type": file.media_type,
        "bytes": file.size_bytes,
        "sha256": file.sha256,
    }


def render_turn_files(files: Sequence[TurnFile]) -> str:
    """The files as a turn's row keeps them."""
    return orjson.dumps([reference(file) for file in files]).decode()


def parse_turn_files(files_json: str) -> tuple[TurnFile, ...]:
    """The files of a turn's row."""
    return tuple(turn_file_of(found) for found in cast("list[Mapping[str, Any]]", orjson.loads(files_json)))


def turn_file_of(found: Mapping[str, Any]) -> TurnFile:
    """The file that a reference is of."""
    named = (found["file_id"], found["name"], found["path"], found["media_type"])
    return TurnFile(*named, size_bytes=found["bytes"], sha256=found["sha256"])


def told_input(text: str, files: Sequence[TurnFile]) -> str:
    """What the agent is told: the posted text, and where its files lie."""
    lines = [f"[file {file.path}: {file.media_type}, {file.size_bytes} bytes]" for file in files]
    return "\n".join([*([text] if text else []), *lines])


def free_name(name: str, taken: set[str]) -> str:
    """A name that is safe in a path and not yet `taken`, and taken from now on."""
    made = path_name(name)
    stem, dot, suffix = made.rpartition(".")
    number = 1
    # Two names that differ in case alone are one file on some systems.
    while made.casefold() in taken:
        number += 1
        made = f"{stem}-{number}.{suffix}" if dot else f"{suffix}-{number}"
    taken.add(made.casefold())
    return made
