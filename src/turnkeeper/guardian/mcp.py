"""Wrapped MCP messages (extend_mcp, MCP-01 to 09): their names, their shape, and which call a response answers.

Answers for `protocols/MCP/<method>` and `wrapped:mcp-<version>/<method>`, which mean the same. Must never enumerate
MCP's methods: a later revision of MCP works without a change here. Pure.
"""

import re
from collections.abc import Mapping
from typing import Final, cast

from turnkeeper.acs import AcsError, AcsErrorCode, CanonicalizationRejected, RequestEnvelope, canonicalize

TOOL_CALL: Final = "steps/toolCallRequest"
MCP: Final = "MCP"
MCP_TOOL_CALL: Final = "tools/call"
ARGUMENTS_POINTER: Final = "/params/arguments"
"""Where the arguments of a wrapped call stand in the payload."""

_NAME = re.compile(r"(?:protocols/MCP|wrapped:mcp-(?P<version>[A-Za-z0-9._-]+))/(?P<method>.+)", re.DOTALL)
_NO_MEMBERS: Mapping[str, object] = {}


def mcp_method(method: str) -> str | None:
    """The MCP method that a wrapped method carries; None for any other method."""
    if not method.startswith(("protocols/MCP/", "wrapped:mcp-")):
        return None
    found = _NAME.fullmatch(method)
    return None if found is None else found["method"]


def is_offered(method: str, versions: frozenset[str]) -> bool:
    """Whether a well-formed wrapped method fits the MCP versions that a client declared (MCP-05)."""
    found = _NAME.fullmatch(method)
    if found is None or not versions:
        return False
    return found["version"] is None or found["version"] in versions


def is_tool_call(request: RequestEnvelope) -> bool:
    """Whether a step asks to call a tool, itself or inside a wrapped message."""
    return request.method == TOOL_CALL or (mcp_method(request.method) == MCP_TOOL_CALL and "method" in request.payload)


def is_response(payload: Mapping[str, object]) -> bool:
    """Whether a wrapped message answers another."""
    return "method" not in payload


def check_shape(request: RequestEnvelope) -> None:
    """Raises `AcsError` (-32602) for a wrapped message that is no JSON-RPC message of its method (MCP-04)."""
    problem = _problem(request.payload, mcp_method(request.method))
    if problem is not None:
        raise AcsError(AcsErrorCode.INVALID_PARAMS, "wrapped_message_invalid", problem)


def message_id(payload: Mapping[str, object]) -> str | None:
    """A message's id in a form in which equal ids are equal: 1 and 1.0 are. None for a notification."""
    if "id" not in payload:
        return None
    try:
        return canonicalize(payload["id"]).decode()
    except CanonicalizationRejected:
        return repr(payload["id"])


def tool_of(payload: Mapping[str, object]) -> str:
    """The tool that a wrapped `tools/call` names; empty where it names none."""
    name = _object(payload.get("params")).get("name")
    return name if isinstance(name, str) else ""


def as_tool_call(tool: str, payload: Mapping[str, object]) -> dict[str, object]:
    """A wrapped call in the members that a toolCallRequest has, for rules that look at tools and arguments."""
    arguments = _object(_object(payload.get("params")).get("arguments"))
    return {"tool": {"name": tool}, "arguments": {name: {"value": value} for name, value in arguments.items()}}


def _problem(payload: Mapping[str, object], method: str | None) -> str | None:
    if payload.get("jsonrpc") != "2.0":
        return "/jsonrpc is not '2.0'"
    if "id" in payload and not _is_id(payload["id"]):
        return "/id is neither a string nor a number"
    return _problem_of_request(payload, method) if "method" in payload else _problem_of_response(payload)


def _problem_of_request(payload: Mapping[str, object], method: str | None) -> str | None:
    if payload["method"] != method:
        return "/method is not the method that the name of the step carries"
    if "result" in payload or "error" in payload:
        return "the message is a request and a response at once"
    if not isinstance(payload.get("params", _NO_MEMBERS), Mapping):
        return "/params is not an object"
    return None


def _problem_of_response(payload: Mapping[str, object]) -> str | None:
    if "id" not in payload:
        return "a response has no /id"
    if ("result" in payload) == ("error" in payload):
        return "a response has exactly one of /result and /error"
    if "result" in payload:
        return None if isinstance(payload["result"], Mapping) else "/result is not an object"
    error = _object(payload["error"])
    code = error.get("code")
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(error.get("message"), str):
        return "/error has no integer code and text message"
    return None


def _is_id(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else _NO_MEMBERS
