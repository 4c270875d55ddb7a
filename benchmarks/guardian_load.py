"""Signed requests made before the clock runs, and an agent per connection that sends them.

A session opens turns of `CALLS` tool calls each, about 1.9 KB a call; turnStart and turnEnd are decisions like the
calls. Whatever is not allowed, or not signed, ends the run.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import uvloop
from benchmarks.guardian_process import KEY_ID, SECRET

from turnkeeper.acs import Keyring, ObservedSession, build_client_hello
from turnkeeper.clock import render_time

CALLS = 30
KEYRING = Keyring({KEY_ID: SECRET})
METHODS = ("steps/turnStart", "steps/toolCallRequest", "steps/turnEnd")
COMMAND = "python3 -m unittest discover -s tests -v && git status --short"


class Script:
    """What one agent sends: a handshake, then steps."""

    def __init__(self, steps: int) -> None:
        self._session = ObservedSession.open(agent_id="bench", session_id=str(uuid4()), keyring=KEYRING, key_id=KEY_ID)
        self._at = render_time(datetime.now(UTC))
        self.hello = self._body("handshake/hello", build_client_hello(methods=METHODS, transports=["http"]), None)
        turns = self._turns()
        self.steps = [next(turns) for _ in range(steps)]

    def _turns(self) -> Iterator[bytes]:
        while True:
            turn_id = str(uuid4())
            yield self._body("steps/turnStart", {"turn_id": turn_id, "triggered_by": "user_message"}, turn_id)
            for _ in range(CALLS):
                yield self._body("steps/toolCallRequest", _tool_call(), turn_id)
            yield self._body("steps/turnEnd", {"turn_id": turn_id, "outcome": "completed"}, turn_id)

    def _body(self, method: str, payload: dict[str, object], turn_id: str | None) -> bytes:
        return self._session.request(
            method, payload, request_id=str(uuid4()), timestamp=self._at, nonce=str(uuid4()), turn_id=turn_id
        )


def _tool_call() -> dict[str, object]:
    provenance = {"provenance_id": str(uuid4()), "origin": "agent_generated"}
    return {
        "tool": {"name": "shell", "provider": "built-in"},
        "operation": "process.run",
        "arguments": {"command": {"value": COMMAND, "provenance": provenance}, "note": {"value": "n" * 900}},
    }


def check(answer: bytes) -> None:
    """Raises `RuntimeError` for an answer that allows nothing."""
    if b'"decision":"allow"' not in answer or b'"signature"' not in answer:
        raise RuntimeError(f"not allowed: {answer!r}")


def drive(port: int, scripts: Sequence[Script], *, checked: bool = True) -> tuple[tuple[float, ...], float]:
    """Every script on a connection of its own, kept alive: the time of each step in ms, and seconds for all steps."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_drive(port, scripts, checked=checked))


async def _drive(port: int, scripts: Sequence[Script], *, checked: bool) -> tuple[tuple[float, ...], float]:
    agents = [await asyncio.open_connection("127.0.0.1", port) for _ in scripts]
    for (reader, writer), script in zip(agents, scripts, strict=True):
        await _exchange(reader, writer, script.hello)

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, script: Script) -> list[float]:
        samples: list[float] = []
        for body in script.steps:
            begin = time.perf_counter()
            answer = await _exchange(reader, writer, body)
            samples.append((time.perf_counter() - begin) * 1000)
            if checked:
                check(answer)
        return samples

    begin = time.perf_counter()
    parts = await asyncio.gather(*(run(*agent, script) for agent, script in zip(agents, scripts, strict=True)))
    elapsed = time.perf_counter() - begin
    for _, writer in agents:
        writer.close()
        await writer.wait_closed()
    return tuple(sample for part in parts for sample in part), elapsed


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> bytes:
    writer.write(b"POST /acs HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return await reader.readexactly(length)
