"""Schemas of an agent's subagents."""

from typing import Any, Final

from turnkeeper.api.agent_subagents import MAX_INSTRUCTIONS_CHARACTERS, MAX_SUBAGENTS
from turnkeeper.api.agent_tools import MAX_DESCRIPTION_CHARACTERS

_SUBAGENT: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "description", "instructions"],
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
        "description": {"type": "string", "minLength": 1, "maxLength": MAX_DESCRIPTION_CHARACTERS},
        "instructions": {"type": "string", "minLength": 1, "maxLength": MAX_INSTRUCTIONS_CHARACTERS},
        "tools": {
            "anyOf": [{"type": "array", "items": {"type": "string"}, "uniqueItems": True}, {"type": "null"}],
            "description": "Some of the agent's own that run in its tool box; none where it is left out.",
        },
    },
}
SUBAGENTS: Final[dict[str, Any]] = {
    "anyOf": [{"type": "array", "maxItems": MAX_SUBAGENTS, "items": _SUBAGENT}, {"type": "null"}]
}
