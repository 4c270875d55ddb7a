"""The MCP servers of an agent, and what their tools are called here (contract 2.1 `mcp_servers`).

Pure. A tool is `mcp__<server>__<tool>` to the model, to permissions, to the Guardian's rules and in events. A server's
name has no underscore, so that each such name can be read in one way only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MCP_PREFIX: Final = "mcp__"
MAX_TOOL_NAME: Final = 64
"""What providers of models take."""
SERVER_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,22}[a-z0-9])?\Z")

LIST_RESOURCES: Final = "list_resources"
READ_RESOURCE: Final = "read_resource"
LIST_PROMPTS: Final = "list_prompts"
GET_PROMPT: Final = "get_prompt"

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server that an agent uses: a `command` in its tool box, or a `url` that is reached through the egress.

    `environment` is what the command gets beside the box's own. In the values of `headers`, `${NAME}` stands for the
    session's secret of that name. `tools` are those that are offered, `None` being all.
    """

    name: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    tools: tuple[str, ...] | None = None

    def offers(self, tool: str) -> bool:
        """Whether the agent's own list lets it have this tool."""
        return self.tools is None or tool in self.tools


def tool_name(server: str, tool: str) -> str | None:
    """What a server's tool is called; None where no model could be given it."""
    name = f"{MCP_PREFIX}{server}__{tool}"
    return name if len(name) <= MAX_TOOL_NAME and _TOOL_NAME.match(tool) else None


def server_of(name: str) -> str | None:
    """The server that a tool is of; None for a tool that is of none."""
    if not name.startswith(MCP_PREFIX):
        return None
    server, separator, tool = name.removeprefix(MCP_PREFIX).partition("__")
    return server if separator and tool and SERVER_NAME.match(server) else None
