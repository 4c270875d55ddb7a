"""A model for the acceptance suite: what it says follows from the conversation alone, so restarts do not confuse it.

The prompt is a line of words, one at least: `tools=2` asks for two shell calls first, `text=…` is the last answer. A
turn with a result schema gets `submit_result` with the number of calls it made.
"""

import asyncio
import json
import re
import threading
import time
from typing import Any, Self, cast

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.acceptance.server import free_port

Json = dict[str, Any]


class StubModel:
    """OpenAI Chat Completions, on loopback unless told; `delay_s` before each answer; `bodies` has what was asked."""

    def __init__(self, *, delay_s: float = 0.0, host: str = "127.0.0.1") -> None:
        self.delay_s = delay_s
        self.bodies: list[Json] = []
        self.authorizations: list[str] = []
        self.port = free_port()
        self.base_url = f"http://{host}:{self.port}/v1"
        app = Starlette(routes=[Route("/v1/chat/completions", self._answer, methods=["POST"])])
        config = uvicorn.Config(app, host=host, port=self.port, log_level="warning", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        pause = threading.Event()
        while not self._server.started:
            assert self._thread.is_alive()
            pause.wait(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=20)

    def config(self, more: str = "") -> str:
        """A `turnkeeper.toml` that names this model as provider `stub`."""
        return f'[providers.stub]\nkind = "openai"\nbase_url = "{self.base_url}"\napi_key_env = "STUB_KEY"\n{more}'

    async def _answer(self, request: Request) -> Response:
        body = cast(Json, json.loads(await request.body()))
        self.bodies.append(body)
        self.authorizations.append(request.headers.get("authorization", ""))
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return JSONResponse(_completion(body, _decide(body)))


def _decide(body: Json) -> Json:
    messages = cast("list[Json]", body["messages"])
    # A harness may add a reminder of its own after the prompt; the prompt is the last message with a word in it.
    last_user = max(i for i, message in enumerate(messages) if message["role"] == "user" and "=" in _text_of(message))
    prompt = _text_of(messages[last_user])
    done = [message for message in messages[last_user:] if message["role"] == "tool"]
    wanted = int(_word(prompt, "tools", "0"))
    if len(done) < wanted:
        return _call("shell", {"command": _word(prompt, "command", f"echo call-{len(done) + 1}").replace("+", " ")})
    names = {tool["function"]["name"] for tool in cast("list[Json]", body.get("tools") or [])}
    if "submit_result" in names and len(done) == wanted and "submit=no" not in prompt:
        return _call("submit_result", {"calls": len(done)})
    return {"role": "assistant", "content": _word(prompt, "text", "done")}


def _text_of(message: Json) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return " ".join(cast(str, part.get("text", "")) for part in cast("list[Json]", content))


def _word(prompt: str, name: str, default: str) -> str:
    found = re.search(rf"\b{name}=(\S+)", prompt)
    return found.group(1) if found else default


def _call(name: str, arguments: Json) -> Json:
    call_id = f"call_{time.monotonic_ns()}"
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def _completion(body: Json, message: Json) -> Json:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": f"chatcmpl-{time.monotonic_ns()}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


RESULT_SCHEMA: Json = {
    "type": "object",
    "properties": {"calls": {"type": "integer"}},
    "required": ["calls"],
    "additionalProperties": False,
}
