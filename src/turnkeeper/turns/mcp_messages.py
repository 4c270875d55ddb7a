"""MCP messages as JSON-RPC (MCP 2025-06-18, base protocol): read strictly, written plainly.

Pure. Answers for messages that have one meaning and that a signature can cover: what is shown to the Guardian is what
is gone on with. Must never enumerate MCP's methods.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

import orjson

from turnkeeper.acs import (
    CanonicalizationRejected,
    JsonLimits,
    JsonObject,
    JsonRejected,
    canonicalize,
    parse_object,
)
from turnkeeper.errors import RemoteProtocolError

PROTOCOL_VERSIONS: Final = ("2025-06-18", "2025-03-26", "2024-11-05")
"""The newest first: that one is asked for, and a server may answer with any of them."""
MAX_MESSAGE_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32

METHOD_NOT_FOUND: Final = -32601
NO_ANSWER: Final = -32001
"""The code with which we close a call at the Guardian that its server never answered."""

MessageKind: TypeAlias = Literal["request", "notification", "response"]

_LIMITS = JsonLimits(max_bytes=MAX_MESSAGE_BYTES, max_depth=MAX_DEPTH)


class McpMessageInvalid(RemoteProtocolError):
    """A server said what is no message of MCP, or none that can be shown to a Guardian as it is."""

    code = "mcp_message_invalid"


@dataclass(frozen=True, slots=True)
class McpMessage:
    """A message as it came."""

    document: JsonObject
    kind: MessageKind

    @property
    def method(self) -> str:
        """Of a request or a notification."""
        return cast("str", self.document.get("method", ""))

    @property
    def result(self) -> JsonObject | None:
        """Of a response that is no error."""
        return cast("JsonObject | None", self.document.get("result"))

    @property
    def error(self) -> tuple[int, str]:
        """Code and message of a response that is one."""
        error = cast("JsonObject", self.document["error"])
        return cast("int", error["code"]), cast("str", error["message"])


def parse_message(line: bytes) -> McpMessage:
    """Raises `McpMessageInvalid`."""
    try:
        document = parse_object(line.strip(), _LIMITS)
        canonicalize(document)
    except (JsonRejected, CanonicalizationRejected) as error:
        raise McpMessageInvalid(f"no usable JSON object: {error.message}") from error
    return McpMessage(document, _kind(document))


def request(message_id: str, method: str, params: Mapping[str, object]) -> dict[str, object]:
    """A question to a server."""
    return {"jsonrpc": "2.0", "id": message_id, "method": method, "params": dict(params)}


def notification(method: str, params: Mapping[str, object] | None = None) -> dict[str, object]:
    """Word to a server."""
    return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": dict(params)})}


def answer(message_id: object, result: Mapping[str, object]) -> dict[str, object]:
    """The answer to a server's own question."""
    return {"jsonrpc": "2.0", "id": message_id, "result": dict(result)}


def failure(message_id: object, code: int, message: str) -> dict[str, object]:
    """That a question has no answer."""
    return {"jsonrpc": "2.0", "id": message_id, "error": {"code": code, "message": message}}


def render(document: Mapping[str, object]) -> bytes:
    """One line, without its end."""
    return orjson.dumps(document)


def _kind(document: JsonObject) -> MessageKind:
    if document.get("jsonrpc") != "2.0":
        raise McpMessageInvalid("its jsonrpc is not 2.0")
    if "id" in document and not _is_id(document["id"]):
        raise McpMessageInvalid("its id is neither a text nor a number")
    if "method" in document:
        if not isinstance(document["method"], str) or not isinstance(document.get("params", {}), dict):
            raise McpMessageInvalid("its method is no text, or its params are no object")
        return "request" if "id" in document else "notification"
    if "id" not in document or ("result" in document) == ("error" in document):
        raise McpMessageInvalid("it is neither a request nor a response")
    if not (_is_error(document["error"]) if "error" in document else isinstance(document["result"], dict)):
        raise McpMessageInvalid("its result is no object, or its error has no code and message")
    return "response"


def _is_error(error: object) -> bool:
    if not isinstance(error, dict):
        return False
    members = cast("JsonObject", error)
    code = members.get("code")
    return isinstance(code, int) and not isinstance(code, bool) and isinstance(members.get("message"), str)


def _is_id(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
