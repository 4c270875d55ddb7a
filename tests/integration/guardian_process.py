"""Starts the Guardian's process for a test, talks to it, and ends it, kindly or not."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import httpx
from tests.integration.guardian_server import SECRET

from turnkeeper.acs import Keyring, ObservedSession, Refusal, ServerHello, Verdict, build_client_hello
from turnkeeper.clock import render_time

KEYRING = Keyring({"default": SECRET})
METHODS = ("steps/sessionStart", "steps/turnStart", "steps/toolCallRequest", "steps/turnEnd", "steps/sessionEnd")
TOOL_CALL: Mapping[str, object] = {"tool": {"name": "shell"}, "arguments": {"command": {"value": "ls"}}}


@dataclass
class Process:
    """A running Guardian."""

    child: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/acs"

    def kill(self) -> None:
        """Ends it as a power failure would."""
        self.child.send_signal(signal.SIGKILL)
        self.child.wait(timeout=10)


@contextmanager
def guardian_process(folder: Path) -> Generator[Process, None, None]:
    """A Guardian over a folder, on a port of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    program = Path(__file__).with_name("guardian_server.py")
    child = subprocess.Popen([sys.executable, str(program), str(folder), str(port)])
    try:
        _await_port(child, port)
        yield Process(child, port)
    finally:
        if child.poll() is None:
            child.terminate()
        child.wait(timeout=20)


def _await_port(child: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and child.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError("the Guardian did not come up")


@dataclass
class Client:
    """An agent over HTTP. `decided` holds the head each answered step published, by request_id."""

    url: str
    session_id: str = field(default_factory=lambda: str(uuid4()))
    bodies: dict[str, bytes] = field(default_factory=dict[str, bytes])
    decided: dict[str, str] = field(default_factory=dict[str, str])
    unanswered: list[str] = field(default_factory=list[str])

    @property
    def session(self) -> ObservedSession:
        """The signing half."""
        return ObservedSession.open(agent_id="agent", session_id=self.session_id, keyring=KEYRING, key_id="default")

    def body(self, method: str, payload: Mapping[str, object], request_id: str) -> bytes:
        """A signed request with a fresh time and nonce."""
        at = render_time(datetime.now(UTC))
        return self.session.request(method, payload, request_id=request_id, timestamp=at, nonce=str(uuid4()))

    async def post(self, http: httpx.AsyncClient, body: bytes, request_id: str) -> Verdict | Refusal | ServerHello:
        """Sends a body and judges the answer; remembers what was decided."""
        self.bodies[request_id] = body
        self.unanswered.append(request_id)
        response = await http.post(self.url, content=body)
        answer = self.session.answer(response.content, request_id=request_id)
        self.unanswered.remove(request_id)
        if isinstance(answer, Verdict) and answer.chain_hash is not None:
            self.decided[request_id] = answer.chain_hash
        return answer

    async def send(self, http: httpx.AsyncClient, method: str, payload: Mapping[str, object]) -> object:
        """A new request."""
        request_id = str(uuid4())
        return await self.post(http, self.body(method, payload, request_id), request_id)

    async def hello(self, http: httpx.AsyncClient) -> object:
        """Shakes hands."""
        return await self.send(http, "handshake/hello", build_client_hello(methods=METHODS, transports=["http"]))
