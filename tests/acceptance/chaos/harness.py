"""An agent's loop that begins at once: what runs in the loop boxes of chaos runs, instead of the built-in one.

The built-in loop takes two seconds of processor to import, and hundreds of turns have to begin. Everything else about a
box is as it always is: this speaks the runner protocol and calls the model through the gateway. It is handed to the
interpreter as a text, because a box sees no test.
"""

import http.client
import json
import os
import socket
import time
from contextlib import suppress
from typing import Any

from turnkeeper.harness.hardening import claim_frame_pipes, forbid_dumping
from turnkeeper.sandbox.protocol import (
    Cancel,
    Canceled,
    FromHarness,
    HistoryItem,
    Ready,
    Report,
    ResponseDenied,
    Start,
    Started,
    ToHarness,
    ToolRequest,
    ToolResult,
    parse_to_harness,
    render_frame,
)

Json = dict[str, Any]
PAYMENT_REQUIRED = 402
OK = 200


class Stopped(Exception):
    """The worker asked to stop, or is gone."""


class Gateway(http.client.HTTPConnection):
    """HTTP over the unix socket in the box."""

    def __init__(self, path: str) -> None:
        super().__init__("gateway")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


class Loop:
    """One turn."""

    def __init__(self) -> None:
        pipes = claim_frame_pipes()
        self._in = os.fdopen(pipes.frames_in, "rb")
        self._out = os.fdopen(pipes.frames_out, "wb", 0)
        self._text = ""
        self._began_ns = time.monotonic_ns()
        self._usage = {"input_tokens": 0, "output_tokens": 0, "model_calls": 0}

    def run(self) -> None:
        """From the start to the worker's last word."""
        self.say(Ready("chaos", "1"))
        start = self.hear()
        if not isinstance(start, Start):
            return
        self.say(Started(start.turn_id))
        report = self._answer(start)
        self.say(report)
        while isinstance(said := self.hear(), ResponseDenied) and said.attempts_left:
            self.say(report)

    def say(self, frame: FromHarness) -> None:
        """Tells the worker."""
        self._out.write(render_frame(frame))

    def hear(self) -> ToHarness:
        """What the worker says next. Raises `Stopped`."""
        line = self._in.readline()
        if not line:
            raise Stopped
        frame = parse_to_harness(line)
        if isinstance(frame, Cancel):
            self.say(Canceled(self._text))
            raise Stopped
        return frame

    def _answer(self, start: Start) -> Report:
        messages = [message for item in start.history for message in told(item)]
        if start.pending is None:
            messages.append({"role": "user", "content": start.input})
        else:
            messages += self._called(start.pending)
        while True:
            status, answer = self._ask(start, messages)
            if status == PAYMENT_REQUIRED:
                return self._report("budget_reached")
            if status != OK:
                return self._report("model_error", json.dumps(answer)[:200])
            message = answer["choices"][0]["message"]
            calls: list[Json] = message.get("tool_calls") or []
            self._text = message.get("content") or self._text
            if not calls:
                return self._report("end_turn")
            for call in calls:
                asked = call["function"]
                item = HistoryItem("tool", "", call["id"], asked["name"], asked["arguments"])
                messages += self._called(item)

    def _ask(self, start: Start, messages: list[Json]) -> tuple[int, Json]:
        tools = [
            {
                "type": "function",
                "function": {"name": one.name, "description": one.description, "parameters": one.parameters},
            }
            for one in start.tools
        ]
        gateway = Gateway(start.gateway_socket)
        body = json.dumps({"model": start.model, "messages": messages, "tools": tools})
        gateway.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = gateway.getresponse()
        said: Json = json.loads(answer.read())
        if answer.status == OK:
            self._usage["model_calls"] += 1
            self._usage["input_tokens"] += said["usage"]["prompt_tokens"]
            self._usage["output_tokens"] += said["usage"]["completion_tokens"]
        return answer.status, said

    def _called(self, item: HistoryItem) -> list[Json]:
        """The call and what came of it, once the worker has said that."""
        self.say(ToolRequest(item.call_id, item.name, item.arguments))
        result = self.hear()
        assert isinstance(result, ToolResult)
        return told(HistoryItem("tool", result.content, item.call_id, item.name, item.arguments))

    def _report(self, reason: Any, error: str | None = None) -> Report:
        spent_ms = (time.monotonic_ns() - self._began_ns) // 1_000_000
        status = "completed" if error is None else "failed"
        return Report(status, reason, self._text, None, None, dict(self._usage), spent_ms, error)


def told(item: HistoryItem) -> list[Json]:
    """An item of the history as the model reads it."""
    if item.kind != "tool":
        return [{"role": "user" if item.kind == "user" else "assistant", "content": item.text}]
    function = {"name": item.name, "arguments": item.arguments}
    call = {"id": item.call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": item.call_id, "content": item.text},
    ]


if __name__ == "__main__":
    forbid_dumping()
    with suppress(Stopped, ConnectionError):
        Loop().run()
