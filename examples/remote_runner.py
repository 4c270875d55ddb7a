"""A runner elsewhere: takes turns of a pool from Turnkeeper over HTTP and runs them here. Standard library only.

    TURNKEEPER_POOL_TOKEN=tkw_... python remote_runner.py http://turnkeeper.example:8321 gpu

Its agent's loop is short: the model may call one tool, which names the files of this folder, and then answers. What it
wants to do is asked first (`steps`), what a tool gave is shown before the model reads it, and the report is a proposal.
Read `Lease` for the protocol and `run` for a loop of your own; docs/how-to/remote-runners.md has the rest.
"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

CALL_TIMEOUT_S = 600
PAUSES_S = (0.2, 0.5, 1, 2, *[5] * 20)
NO_TOKENS = dict.fromkeys(
    ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"), 0
)


class Refused(Exception):
    """What Turnkeeper said no to; `code` is the problem's."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(f"{status} {problem.get('code')}: {problem.get('detail')}")
        self.code = problem.get("code")


def post(url: str, token: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """One call. A connection that was lost is tried again: every call may be sent twice."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for pause_s in (*PAUSES_S, None):
        try:
            request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310  the operator's own
            with urllib.request.urlopen(request, timeout=CALL_TIMEOUT_S) as answer:  # noqa: S310
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, json.loads(error.read() or b"{}")) from None
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if pause_s is None:
                raise
            time.sleep(pause_s)
    raise AssertionError


class Lease:
    """One turn that is ours until it is reported, or until `over` is set."""

    def __init__(self, server: str, lease: dict[str, Any]) -> None:
        self.turn = lease["turn"]
        self.gateway = lease["gateway"]
        self.over = threading.Event()
        self.to_stop = threading.Event()
        self._url = f"{server}/worker/v1/turns/{self.turn['id']}"
        self._lease = lease

    def call(self, verb: str, **body: Any) -> dict[str, Any]:
        """One call about this turn. Raises `Refused`; 202 means that the turn waits for somebody."""
        status, answer = post(f"{self._url}/{verb}", self._lease["token"], {"fence": self._lease["fence"], **body})
        if status == 202:
            raise Refused(status, {"code": "paused", "detail": "the turn is leased again when it goes on"})
        return answer

    def start(self) -> None:
        """Says that the agent's code runs from here on, and that we live, again and again."""
        self.call("started", sandbox_id=self._lease["sandbox_id"])
        threading.Thread(target=self._beat, daemon=True).start()

    def allowed(self, call_id: str, name: str, arguments: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """The arguments that a tool may be called with, or None and why it may not be."""
        payload = {"tool_call_id": call_id, "name": name, "arguments": arguments}
        ruling = self.call("steps", hook="toolCallRequest", payload=payload)
        return (None, ruling["reason"]) if ruling["decision"] == "deny" else (ruling["arguments"], "")

    def shown(self, call_id: str, status: str, output: str) -> str:
        """What the model may read of an output."""
        payload = {"tool_call_id": call_id, "status": status, "output": output}
        return self.call("steps", hook="toolCallResult", payload=payload)["output"]

    def submit(self, value: Any) -> dict[str, Any]:
        """Hands in a value for the turn's `output_schema`."""
        return self.call("submissions", value=value)

    def report(self, text: str, *, result: Any = None, error: dict[str, Any] | None = None) -> dict[str, Any]:
        """The seven fields. What we count ourselves is nothing: the gateway counts."""
        usage = {**NO_TOKENS, "total_tokens": 0, "model_calls": 0, "tool_calls": 0, "sandbox_ms": 0}
        status = "canceled" if self.to_stop.is_set() else "completed" if error is None else "failed"
        reasons = {"canceled": "canceled", "completed": "end_turn", "failed": "agent_error"}
        return self.call(
            "report",
            status=status,
            stop_reason=reasons[status],
            output={"text": text},
            result=result,
            result_error=None,
            usage={**usage, "cost": None, "by_model": [], "estimated": False},
            duration_ms=0,
            **({"error": error} if status == "failed" else {}),
        )

    def _beat(self) -> None:
        beat = 0
        while not self.over.wait(self._lease["heartbeat_ms"] / 1000):
            beat += 1
            try:
                if self.call("heartbeat", beat=beat)["cancel"]["requested"]:
                    self.to_stop.set()
            except Refused:
                self.over.set()


def ask_model(lease: Lease, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The model's next message, in Chat Completions through the gateway."""
    tool: dict[str, Any] = {
        "name": "list_files",
        "description": "The files here.",
        "parameters": {"type": "object", "properties": {}},
    }
    body = {"model": lease.turn["model"]["id"], "messages": messages, "tools": [{"type": "function", "function": tool}]}
    _, answer = post(f"{lease.gateway['url']}/v1/chat/completions", lease.gateway["token"], body)
    return answer["choices"][0]["message"]


def run(lease: Lease) -> str:
    """The agent: what it says at last."""
    turn = lease.turn
    messages = [{"role": "system", "content": turn["instructions"]}, {"role": "user", "content": turn["input"]}]
    while not lease.to_stop.is_set():
        said = ask_model(lease, messages)
        messages.append(said)
        if not said.get("tool_calls"):
            return said.get("content") or ""
        messages += [carried_out(lease, call) for call in said["tool_calls"]]
    return ""


def carried_out(lease: Lease, call: dict[str, Any]) -> dict[str, Any]:
    """What the model reads of a call that it wants made, as far as it may be made."""
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    granted, output = lease.allowed(call["id"], name, arguments)
    if granted is not None:
        output = lease.shown(call["id"], "ok", "\n".join(sorted(os.listdir())))
    return {"role": "tool", "tool_call_id": call["id"], "content": output}


def serve(server: str, pool: str, token: str) -> None:
    """Takes one turn after the other."""
    while True:
        wanted = {"pool": pool, "kinds": ["remote"], "capacity": 1, "wait_ms": 20_000}
        status, answer = post(f"{server}/worker/v1/leases", token, wanted)
        if status == 204:
            continue
        lease = Lease(server, answer)
        try:
            lease.start()
            ended = lease.report(run(lease))
            print(f"{lease.turn['id']}: {ended}", flush=True)
        except Refused as refused:
            # Whatever it is, the turn is not ours any more, or will be leased again.
            print(f"{lease.turn['id']}: {refused}", file=sys.stderr, flush=True)
        finally:
            lease.over.set()


if __name__ == "__main__":
    serve(sys.argv[1].rstrip("/"), sys.argv[2], os.environ["TURNKEEPER_POOL_TOKEN"])
