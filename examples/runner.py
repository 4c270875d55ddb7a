"""An agent's loop of your own, in plain Python: it speaks the runner protocol over its standard input and output.

It runs in the loop box, which has the model's socket, no tools and no network. It may only propose: each tool call is
asked of the Guardian, runs elsewhere, and comes back as a result. See docs/how-to/bring-your-own-loop.md.
"""

import http.client
import json
import socket
import sys
from typing import Any


def say(**frame: object) -> None:
    print(json.dumps(frame), flush=True)


def hear() -> dict[str, Any]:
    return json.loads(sys.stdin.readline())


def ask_model(start: dict[str, Any], text: str) -> str:
    connection = http.client.HTTPConnection("gateway")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(start["gateway_socket"])
    body = {"model": start["model"], "messages": [{"role": "user", "content": text}]}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    return json.load(connection.getresponse())["choices"][0]["message"]["content"]


say(type="ready", harness="example", version="1", protocol=1)
start = hear()
say(type="started", turn_id=start["turn_id"])
call = {"name": "shell", "arguments": json.dumps({"command": "ls"})}
say(type="tool_request", call_id="1", **call)
files = hear()
answer = ask_model(start, f"{start['input']}\n\nThe files here ({files['status']}):\n{files['content']}")
report = {"status": "completed", "stop_reason": "end_turn", "result": None, "result_error": None}
say(type="report", text=answer, usage={}, duration_ms=0, **report)
hear()
