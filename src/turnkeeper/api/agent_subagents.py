"""The `subagents` of an agent that is created: whom it may hand a task to, within what it may do itself.

Answers for names that no tool has, and for tools that the agent has too and that run in its tool box.
"""

import re
from collections.abc import Collection
from typing import Final

from turnkeeper.acs.strictjson import JsonObject
from turnkeeper.api.agent_tools import MAX_DESCRIPTION_CHARACTERS, MAX_NAME_CHARACTERS, RESERVED_NAMES
from turnkeeper.api.fields import Fields
from turnkeeper.api.unbuilt import SUBAGENT_FIELDS
from turnkeeper.turns.model import Subagent

MAX_SUBAGENTS: Final = 16
MAX_INSTRUCTIONS_CHARACTERS: Final = 65_536

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def parse_subagents(
    agent: Fields, tools: Collection[str], taken: Collection[str], *, brings_tools: bool
) -> tuple[Subagent, ...]:
    """What the agent asks for; what is wrong with it is noted. `tools` are its own, `taken` names a tool has."""
    value = agent.value("subagents")
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_SUBAGENTS:
        agent.note("subagents", "invalid_field", f"/subagents is not a list of at most {MAX_SUBAGENTS} subagents")
        return ()
    if value and brings_tools:
        agent.note("subagents", "invalid_field", "/subagents is not empty, and what runs the loop brings its own tools")
    found = [_subagent(agent.element("subagents", at, one), tools, taken) for at, one in enumerate(value)]
    if len({one.name for one in found}) < len(found):
        agent.note("subagents", "invalid_field", "/subagents names something twice")
    return tuple(found)


def subagent_document(subagent: Subagent) -> JsonObject:
    """A subagent as it is shown, which is also how it may be sent."""
    return {
        "name": subagent.name,
        "description": subagent.description,
        "instructions": subagent.instructions,
        "tools": list(subagent.tools),
    }


def _subagent(one: Fields, tools: Collection[str], taken: Collection[str]) -> Subagent:
    one.close({"name", "description", "instructions", "tools"}, SUBAGENT_FIELDS)
    name = one.required_text("name", max_characters=MAX_NAME_CHARACTERS)
    if name and (_NAME.match(name) is None or name in taken or name in RESERVED_NAMES):
        one.note("name", "invalid_field", f"{name[:100]!r} is taken, or not 1 to 64 letters, digits, _ and -")
    description = one.required_text("description", max_characters=MAX_DESCRIPTION_CHARACTERS, one_line=False)
    instructions = one.required_text("instructions", max_characters=MAX_INSTRUCTIONS_CHARACTERS, one_line=False)
    return Subagent(name, description, instructions, _tools(one, tools))


def _tools(one: Fields, tools: Collection[str]) -> tuple[str, ...]:
    value = one.value("tools")
    if value is None:
        return ()
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(names) < len(value) or len(set(names)) < len(names):
        one.note("tools", "invalid_field", f"{one.pointer('tools')} is not a list of different names")
        return ()
    foreign = [name[:MAX_NAME_CHARACTERS] for name in names if name not in tools]
    if foreign:
        own = ", ".join(sorted(tools)) or "none"
        one.note(
            "tools", "invalid_field", f"{foreign[0]!r} is no tool of the agent that runs in its tool box; those: {own}"
        )
    return tuple(names)
