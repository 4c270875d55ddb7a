"""Schemas of the skills that an agent names."""

from typing import Any, Final

from turnkeeper.api.skill_intake import MAX_AGENT_SKILLS, MAX_NAME_CHARACTERS, MAX_VERSION

_SKILL: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "description": "A version of a skill by its `id`, or by its `name`: the newest one where no `version` is named.",
    "properties": {
        "id": {"type": "string", "pattern": "^skl_[0-9A-HJKMNP-TV-Z]{26}$"},
        "name": {"type": "string", "maxLength": MAX_NAME_CHARACTERS},
        "version": {"type": "integer", "minimum": 1, "maximum": MAX_VERSION},
    },
}
AGENT_SKILLS: Final[dict[str, Any]] = {
    "anyOf": [{"type": "array", "maxItems": MAX_AGENT_SKILLS, "items": _SKILL}, {"type": "null"}]
}
