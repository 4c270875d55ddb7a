"""The input of a turn: a text, or parts that are texts, JSON values and files (contract 2.3)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from turnkeeper.acs.strictjson import member_slices
from turnkeeper.api.bodies import element_slices
from turnkeeper.api.fields import Fields
from turnkeeper.ids import is_id
from turnkeeper.turns.turn_files import MAX_TURN_FILES

MAX_PARTS: Final = 100
MAX_PART_CHARACTERS: Final = 262_144


@dataclass(frozen=True, slots=True)
class Input:
    """What was posted: its text, and the ids of its files, each with the pointer of its part."""

    text: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])


def parse_input(fields: Fields, slices: Mapping[str, str], max_bytes: int) -> Input:
    """The member `input`; what is wrong with it is noted."""
    value = fields.value("input")
    if isinstance(value, str):
        found = Input(value)
    elif isinstance(value, list):
        found = _parts(fields, slices)
    else:
        fields.note("input", "invalid_field", "/input is required: a string, or a list of parts")
        return Input()
    if not found.text.strip() and not found.files:
        fields.note("input", "invalid_field", "/input is empty")
    elif len(found.text.encode()) > max_bytes:
        fields.note("input", "invalid_field", f"/input is longer than {max_bytes} bytes")
    elif len(found.files) > MAX_TURN_FILES:
        fields.note("input", "invalid_field", f"/input has more than {MAX_TURN_FILES} files")
    return found


def _parts(fields: Fields, slices: Mapping[str, str]) -> Input:
    texts: list[str] = []
    files: dict[str, str] = {}
    parts = fields.objects("input", max_items=MAX_PARTS)
    for part, raw in zip(parts, element_slices(slices["input"]), strict=False):
        if part.value("type") == "file":
            _note_file(part, files)
        else:
            texts.append(_text(part, raw))
    return Input("\n".join(texts), files)


def _note_file(part: Fields, files: dict[str, str]) -> None:
    part.close({"type", "file_id"}, {})
    file_id = part.required_text("file_id", max_characters=MAX_PART_CHARACTERS)
    if file_id and not is_id(file_id, "fil"):
        part.note("file_id", "file_not_ready", f"{part.pointer('file_id')} is not the id of a file")
    elif file_id in files:
        part.note("file_id", "invalid_field", f"{part.pointer('file_id')} is named twice")
    files[file_id] = part.pointer("file_id")


def _text(part: Fields, part_json: str) -> str:
    kind = part.value("type")
    if kind == "text":
        part.close({"type", "text"}, {})
        return part.required_text("text", max_characters=MAX_PART_CHARACTERS, one_line=False)
    if kind != "json":
        part.note("type", "invalid_field", f"{part.pointer('type')} is not text, json or file")
        return ""
    part.close({"type", "value"}, {})
    if "value" not in part.members():
        part.note("value", "invalid_field", f"{part.pointer('value')} is required")
        return ""
    return member_slices(part_json)["value"]
