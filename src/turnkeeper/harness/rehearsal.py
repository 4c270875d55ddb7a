"""A turn played once against nothing, before `ready`: what is loaded on first use is loaded then, not in a turn.

The libraries below import, compile and cache lazily; without this the first model call of a turn is later by a
tenth of a second and more.
"""

import httpx2
from pydantic_ai.usage import UsageLimits

from turnkeeper.harness.agents import turn_agent
from turnkeeper.harness.model import TurnModel
from turnkeeper.harness.tools import ProposedTool
from turnkeeper.harness.wires import socket_transport
from turnkeeper.sandbox.protocol import ToolSpec

_TOOL = "rehearse"
_NO_SOCKET = "/nonexistent"


async def rehearse() -> None:
    """One tool call and one text with a stand-in for the gateway, in this process."""
    model = TurnModel("rehearsal", httpx2.MockTransport(_answer), max_calls=2)
    agent = turn_agent(model, _TOOL, [ProposedTool(ToolSpec(_TOOL, _TOOL, {"type": "object"}), _handle)])
    await agent.run(_TOOL, usage_limits=UsageLimits(request_limit=None))
    await socket_transport(_NO_SOCKET).aclose()


async def _handle(arguments: str) -> str:
    return arguments


def _answer(request: httpx2.Request) -> httpx2.Response:
    function = {"name": _TOOL, "arguments": "{}"}
    call = {"id": _TOOL, "type": "function", "function": function}
    first = b'"tool_call_id"' not in request.content
    message = {"role": "assistant", "content": _TOOL} | ({"tool_calls": [call]} if first else {})
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    document = {"id": _TOOL, "object": "chat.completion", "created": 0, "model": _TOOL}
    return httpx2.Response(200, json=document | {"choices": [choice], "usage": usage})
