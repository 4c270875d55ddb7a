"""The agent's bill of materials (ACS Inspect): which model and which tools an agent version is made of.

Pure: takes what the platform knows, returns the document that `agbom/snapshot` carries. Must never hold a secret,
an instruction text or a provider's address: components are named, not described.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote

from turnkeeper.acs import canonicalize

AGBOM_VERSION: Final = "0.1.0"
UNKNOWN_CONTEXT_WINDOW: Final = 0
"""The schema demands a number; a provider that tells us none gets this one."""

UNKNOWN_VERSION: Final = "unknown"

_BUILTIN_VERSION = "1"
_PROVIDER = "turnkeeper"
_LOCAL = "urn:turnkeeper:mcp:"
_SKILL = "urn:turnkeeper:skill:"
_DIGEST = "sha256:"


@dataclass(frozen=True, slots=True)
class ModelComponent:
    """The model an agent uses: a configured provider's name and the provider's model id."""

    provider: str
    model_id: str
    params: Mapping[str, object]
    context_window: int = UNKNOWN_CONTEXT_WINDOW


@dataclass(frozen=True, slots=True)
class ToolComponent:
    """A tool the agent may ask for. `capability` is what the tool lets it do."""

    name: str
    capability: str


@dataclass(frozen=True, slots=True)
class CapabilityComponent:
    """Something that the agent can do beside calling tools: a loop of another make, a task it can hand on."""

    id: str
    name: str
    description: str
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A tool that an MCP server offers; `digest` is of everything it says about it."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class ServerComponent:
    """An MCP server and what it was found to offer. `version` is its own word; `url` is empty for one in the box."""

    name: str
    url: str = ""
    version: str = ""
    tools: tuple[ServedTool, ...] = ()


@dataclass(frozen=True, slots=True)
class SkillComponent:
    """A version of a skill that the agent may load; `sha256` is of its archive."""

    name: str
    skill_id: str
    version: int
    description: str
    sha256: str


def skill_ref(skill_id: str) -> str:
    """How a version of a skill is named to a Guardian; its archive is shown to the project's keys alone."""
    return f"{_SKILL}{skill_id}"


def render_agbom(
    *,
    agent_id: str,
    agent_name: str,
    agent_version: int,
    model: ModelComponent,
    tools: Sequence[ToolComponent],
    servers: Sequence[ServerComponent] = (),
    capabilities: Sequence[CapabilityComponent] = (),
    skills: Sequence[SkillComponent] = (),
) -> dict[str, object]:
    """The document for `agbom/document`; the same agent version always gives the same one, hash included.

    Raises `CanonicalizationRejected` where a model parameter has no canonical form.
    """
    document: dict[str, object] = {
        "agbom_version": AGBOM_VERSION,
        "agent": {"agent_id": agent_id, "name": agent_name, "version": str(agent_version)},
        "components": [
            *(
                _registered(component)
                for component in (
                    _model(model),
                    *(_tool(tool) for tool in sorted(tools, key=lambda tool: tool.name)),
                    *(_capability(each) for each in sorted(capabilities, key=lambda each: each.id)),
                )
            ),
            *(part for server in sorted(servers, key=lambda server: server.name) for part in _server(server)),
            *(_registered(_skill(skill)) for skill in sorted(skills, key=lambda skill: skill.name)),
        ],
    }
    return document | {"agbom_hash": hashlib.sha256(canonicalize(document)).hexdigest()}


def servers_in(document: Mapping[str, object]) -> dict[str, ServerComponent]:
    """The MCP servers of a document of ours, by name."""
    components = cast("list[Mapping[str, Any]]", document["components"])
    tools = {part["id"]: part for part in components if part["type"] == "tool"}
    return {part["name"]: _server_of(part, tools) for part in components if part["type"] == "mcp_server"}


def _server_of(part: Mapping[str, Any], tools: Mapping[str, Mapping[str, Any]]) -> ServerComponent:
    served = (tools[tool_id] for tool_id in part["mcp_server_fields"]["tools"])
    return ServerComponent(
        name=part["name"],
        url="" if part["endpoint"].startswith(_LOCAL) else part["endpoint"],
        version="" if part["version"] == UNKNOWN_VERSION else part["version"],
        tools=tuple(ServedTool(tool["name"], tool["version"].removeprefix(_DIGEST)) for tool in served),
    )


def _server(server: ServerComponent) -> list[dict[str, object]]:
    name = f"mcp_server:{server.name}"
    component = {
        "id": name,
        "type": "mcp_server",
        "name": server.name,
        "version": server.version or UNKNOWN_VERSION,
        "endpoint": server.url or f"{_LOCAL}{server.name}",
        "mcp_server_fields": {"tools": [f"tool:{tool.name}" for tool in server.tools]},
    }
    return [_registered(component), *(_found(_served(tool, server), server) for tool in server.tools)]


def _served(tool: ServedTool, server: ServerComponent) -> dict[str, object]:
    return {
        "id": f"tool:{tool.name}",
        "type": "tool",
        "name": tool.name,
        # What a tool says of itself is all there is to tell one version of it from another.
        "version": f"{_DIGEST}{tool.digest}",
        "provider": f"mcp:{server.name}",
        "tool_fields": {"capability": tool.name},
    }


def _found(component: Mapping[str, object], server: ServerComponent) -> dict[str, object]:
    provenance = {
        "provenance_id": f"agbom:{component['id']}",
        "origin": "external",
        "source_id": f"mcp:{server.name}",
    }
    return {**component, "registration_provenance": provenance}


def _registered(component: Mapping[str, object]) -> dict[str, object]:
    # It was configured, and not found at run time (INSP-06).
    provenance = {"provenance_id": f"agbom:{component['id']}", "origin": "system", "source_id": _PROVIDER}
    return {**component, "registration_provenance": provenance}


def _model(model: ModelComponent) -> dict[str, object]:
    name = quote(f"{model.provider}/{model.model_id}", safe="")
    return {
        "id": f"model:{name}",
        "type": "model",
        "name": model.model_id,
        "version": model.model_id,
        "provider": model.provider,
        # An address may hold a host name that is nobody's business; a name identifies the component as well.
        "endpoint": f"urn:turnkeeper:model:{name}",
        "model_fields": {"context_window": model.context_window, "args": dict(model.params)},
    }


def _capability(capability: CapabilityComponent) -> dict[str, object]:
    return {
        "id": f"agent_capability:{capability.id}",
        "type": "agent_capability",
        "name": capability.name,
        "agent_capability_fields": {
            "description": capability.description,
            "tools": [f"tool:{name}" for name in capability.tools],
        },
    }


def _skill(skill: SkillComponent) -> dict[str, object]:
    digest = {"algorithm": "sha-256", "value": skill.sha256}
    return {
        "id": f"skill:{skill.name}",
        "type": "skill",
        "name": skill.name,
        "version": str(skill.version),
        "provider": _PROVIDER,
        "skill_fields": {
            "description": skill.description,
            "definition": {"ref": skill_ref(skill.skill_id), "digest": digest},
            "declared_capabilities": [],
        },
    }


def _tool(tool: ToolComponent) -> dict[str, object]:
    return {
        "id": f"tool:{tool.name}",
        "type": "tool",
        "name": tool.name,
        "version": _BUILTIN_VERSION,
        "provider": _PROVIDER,
        "tool_fields": {"capability": tool.capability},
    }
