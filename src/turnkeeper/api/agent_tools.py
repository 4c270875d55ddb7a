"""The tools and permissions of an agent that is created (contract 2.1): names of tools we run, tools that the app runs.

Answers for client-side tools whose parameters are a JSON Schema object, and for patterns that can match a name.
"""

import re
from collections.abc import Mapping
from typing import Final, cast

import orjson

from turnkeeper.acs.strictjson import JsonValue
from turnkeeper.api.fields import Fields
from turnkeeper.turns.mcp_server import MCP_PREFIX
from turnkeeper.turns.model import ClientTool
from turnkeeper.turns.permissions import MAX_PERMISSIONS, PATTERN_FORM, PERMISSIONS, Permission
from turnkeeper.turns.skills import LOAD_SKILL

MAX_TOOLS: Final = 64
MAX_TOOL_BYTES: Final = 16_384
MAX_DESCRIPTION_CHARACTERS: Final = 2_000
MAX_NAME_CHARACTERS: Final = 200
RESERVED_NAMES: Final = frozenset({"submit_result", LOAD_SKILL})

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def parse_tools(fields: Fields, known: frozenset[str]) -> tuple[tuple[str, ...], tuple[ClientTool, ...]]:
    """The names of tools that run in the tool box, and the tools that the app runs."""
    value = fields.value("tools")
    if value is None:
        return (), ()
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        fields.note("tools", "invalid_field", f"/tools is not a list of at most {MAX_TOOLS} tools")
        return (), ()
    names = [tool for tool in value if isinstance(tool, str)]
    unknown = [name[:MAX_NAME_CHARACTERS] for name in names if name not in known]
    if unknown:
        fields.note("tools", "invalid_field", f"{unknown[0]!r} is not a tool; there are: {', '.join(sorted(known))}")
    of_app = [
        _client_tool(fields.element("tools", index, tool), known)
        for index, tool in enumerate(value)
        if not isinstance(tool, str)
    ]
    every = [*names, *(tool.name for tool in of_app)]
    if len(set(every)) < len(every):
        fields.note("tools", "invalid_field", "/tools names something twice")
    return tuple(names), tuple(of_app)


def parse_permissions(fields: Fields) -> Mapping[str, Permission]:
    """What the agent may do by itself, by patterns of tool names."""
    found = fields.object("permissions")
    if found is None:
        return {}
    members = found.members()
    if len(members) > MAX_PERMISSIONS:
        found.note_whole("invalid_field", f"has more than {MAX_PERMISSIONS} patterns")
    for pattern in members:
        if PATTERN_FORM.match(pattern) is None:
            found.note(
                pattern, "invalid_field", f"{pattern[:100]!r} is not a name of a tool, with * for any characters"
            )
    return {pattern: cast("Permission", found.choice(pattern, PERMISSIONS, "deny")) for pattern in members}


def _client_tool(tool: Fields, known: frozenset[str]) -> ClientTool:
    tool.close({"kind", "name", "description", "input_schema"}, {})
    if tool.value("kind") != "client":
        tool.note("kind", "invalid_field", f"{tool.pointer('kind')} is not client")
    name = tool.required_text("name", max_characters=MAX_NAME_CHARACTERS)
    if name and (_NAME.match(name) is None or name in known or name in RESERVED_NAMES or name.startswith(MCP_PREFIX)):
        tool.note("name", "invalid_field", f"{name[:100]!r} is taken, or not 1 to 64 letters, digits, _ and -")
    description = tool.required_text("description", max_characters=MAX_DESCRIPTION_CHARACTERS, one_line=False)
    return ClientTool(name, description, _schema(tool))


def _schema(tool: Fields) -> Mapping[str, object]:
    parameters = tool.required_object("input_schema").members()
    if parameters and parameters.get("type") != "object":
        tool.note("input_schema", "invalid_field", "the input of a tool is an object: `type` is `object`")
    if not _is_storable(parameters):
        tool.note("input_schema", "invalid_field", f"is longer than {MAX_TOOL_BYTES} bytes, or has too large a number")
    return parameters


def _is_storable(parameters: Mapping[str, JsonValue]) -> bool:
    try:
        return len(orjson.dumps(parameters)) <= MAX_TOOL_BYTES
    except TypeError:
        return False
