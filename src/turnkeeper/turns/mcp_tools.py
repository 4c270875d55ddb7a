"""What an MCP server offers, as tools that a model can be told about, and what a call gave, as text.

Pure. Answers for names, schemas and lengths that can be passed on, for a digest of everything a tool says about itself,
and for resources and prompts as tools of their own: an agent has no other way to them, and none past the Guardian.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import orjson

from turnkeeper.acs import JsonObject, JsonValue, canonicalize
from turnkeeper.inspect.agbom import ServedTool
from turnkeeper.sandbox.protocol import ToolSpec
from turnkeeper.turns.mcp_server import (
    GET_PROMPT,
    LIST_PROMPTS,
    LIST_RESOURCES,
    READ_RESOURCE,
    McpServer,
    tool_name,
)

MAX_TOOLS: Final = 64
MAX_DESCRIPTION_CHARACTERS: Final = 4_000
MAX_SCHEMA_BYTES: Final = 16_384

_URI: Final[Mapping[str, object]] = {"type": "string", "description": "The URI of the resource."}
_CURSOR: Final[Mapping[str, object]] = {"type": "string", "description": "Where an earlier list went on."}


def _object(properties: Mapping[str, object], *required: str) -> dict[str, object]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class Feature:
    """Something of MCP that is no tool, as a tool: the method it becomes and what is said about it."""

    name: str
    method: str
    capability: str
    description: str
    parameters: Mapping[str, object]


FEATURES: Final = (
    Feature(
        LIST_RESOURCES,
        "resources/list",
        "resources",
        "List the resources that the server {server} offers to read.",
        _object({"cursor": _CURSOR}),
    ),
    Feature(
        READ_RESOURCE,
        "resources/read",
        "resources",
        "Read a resource of the server {server}.",
        _object({"uri": _URI}, "uri"),
    ),
    Feature(
        LIST_PROMPTS,
        "prompts/list",
        "prompts",
        "List the prompts that the server {server} offers.",
        _object({"cursor": _CURSOR}),
    ),
    Feature(
        GET_PROMPT,
        "prompts/get",
        "prompts",
        "Get a prompt of the server {server}, filled in with arguments.",
        _object(
            {
                "name": {"type": "string", "description": "The name of the prompt."},
                "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            "name",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class McpTool:
    """Something that a server offers. `method` is what a call becomes, `own_name` what the server calls it."""

    spec: ToolSpec
    own_name: str
    method: str
    digest: str

    @property
    def served(self) -> ServedTool:
        """The tool as a part of the agent."""
        return ServedTool(self.spec.name, self.digest)

    def params(self, arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """The params of a call."""
        if self.method != "tools/call":
            return arguments
        return {"name": self.own_name, "arguments": dict(arguments)}


def features_of(server: McpServer, capabilities: JsonObject) -> list[McpTool]:
    """What the server can do beside tools, as tools. An allow list of tools names them like those."""
    return [
        _feature(server, feature)
        for feature in FEATURES
        if isinstance(capabilities.get(feature.capability), dict) and server.offers(feature.name)
    ]


def read_tools(server: McpServer, listed: Sequence[JsonValue]) -> tuple[list[McpTool], list[str]]:
    """The tools of a `tools/list` that can be offered, and the names of those that cannot."""
    found: dict[str, McpTool] = {}
    left_out: list[str] = []
    for item in listed:
        members = cast("JsonObject", item) if isinstance(item, dict) else {}
        own_name = members.get("name")
        shown = own_name[:100] if isinstance(own_name, str) else "?"
        if isinstance(own_name, str) and not server.offers(own_name):
            continue
        tool = _tool(server, members)
        if tool is None or tool.spec.name in found or len(found) >= MAX_TOOLS:
            left_out.append(shown)
        else:
            found[tool.spec.name] = tool
    return list(found.values()), left_out


def text_of(method: str, result: JsonObject) -> tuple[str, bool]:
    """What a result says to a model, and whether it says that the call failed."""
    if method == "tools/call":
        texts = [_block(block) for block in _list(result.get("content"))]
        structured = result.get("structuredContent")
        if structured is not None and not texts:
            texts.append(_json(structured))
        return "\n".join(texts), result.get("isError") is True
    if method == "resources/read":
        return "\n".join(_contents(item) for item in _list(result.get("contents"))), False
    if method == "prompts/get":
        return "\n".join(_prompt_message(item) for item in _list(result.get("messages"))), False
    return _json({name: value for name, value in result.items() if name != "_meta"}), False


def _feature(server: McpServer, feature: Feature) -> McpTool:
    name = tool_name(server.name, feature.name) or feature.name
    spec = ToolSpec(name, feature.description.format(server=server.name), dict(feature.parameters))
    return McpTool(spec, feature.name, feature.method, _digest(spec))


def _tool(server: McpServer, members: JsonObject) -> McpTool | None:
    own_name, description, schema = (members.get(name) for name in ("name", "description", "inputSchema"))
    if not isinstance(own_name, str) or not isinstance(schema, dict) or schema.get("type") != "object":
        return None
    name = tool_name(server.name, own_name)
    text = description if isinstance(description, str) else ""
    if name is None or len(text) > MAX_DESCRIPTION_CHARACTERS or len(orjson.dumps(schema)) > MAX_SCHEMA_BYTES:
        return None
    spec = ToolSpec(name, text or f"{own_name}, of the server {server.name}.", cast("dict[str, object]", schema))
    return McpTool(spec, own_name, "tools/call", hashlib.sha256(canonicalize(members)).hexdigest())


def _digest(spec: ToolSpec) -> str:
    return hashlib.sha256(canonicalize([spec.name, spec.description, spec.parameters])).hexdigest()


def _block(block: JsonValue) -> str:
    members = _members(block)
    kind = members.get("type")
    if kind == "text":
        return str(members.get("text", ""))
    if kind == "resource":
        return _contents(members.get("resource"))
    if kind == "resource_link":
        return f"[a resource: {members.get('uri')}]"
    return f"[{kind} of type {members.get('mimeType')}, left out]"


def _contents(item: JsonValue) -> str:
    members = _members(item)
    text = members.get("text")
    return text if isinstance(text, str) else f"[{members.get('uri')}: {members.get('mimeType')}, left out]"


def _prompt_message(item: JsonValue) -> str:
    members = _members(item)
    return f"{members.get('role')}: {_block(members.get('content'))}"


def _members(value: JsonValue) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
