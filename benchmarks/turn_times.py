"""What the benchmark of turns measures, each as an app or an operator would see it of a running server."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from tests.acceptance.apart import apart
from tests.acceptance.server import Json, ProcessMark, Server, alive

REFILL_S = 5.0
"""How long the warm start's turns wait for the pool to have boxes again; the cold start's do not wait."""

TOOL_CALLS = 5
FEW_TOOLS = 2
MANY_TOOLS = 32
LONG = "tools=1 command=sleep+60 text=late"
DEADLINE_S = 60.0
BEHIND = 90
"""How many turns are posted behind one: fewer than a session's queue takes."""

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def new_agent(server: Server) -> Json:
    """An agent with a shell on the stub model."""
    model = {"provider": "stub", "id": "m"}
    return server.post("/v1/agents", {"name": "bench", "model": model, "instructions": "x", "tools": ["shell"]})


def new_session(server: Server, agent: Json) -> str:
    """A session of the agent's."""
    return str(server.post("/v1/sessions", {"agent_id": agent["id"]})["id"])


def accept_times(server: Server, agent: Json, samples: int) -> tuple[list[float], float]:
    """Turns posted behind one that runs, so that no box is begun for them; and the server's processor time of each."""
    taken: list[float] = []
    spent_ms = 0.0
    with server.client() as client:
        while len(taken) < samples:
            session = new_session(server, agent)
            first = client.post(f"/v1/sessions/{session}/turns", json={"input": LONG}).json()
            until(partial(_runs, client, first["id"]), "the first turn runs its command")
            begin_ms = processor_ms(server.pid)
            for _ in range(min(BEHIND, samples - len(taken))):
                begin = time.perf_counter()
                answer = client.post(f"/v1/sessions/{session}/turns", json={"input": "text=ok"})
                taken.append((time.perf_counter() - begin) * 1000)
                answer.raise_for_status()
            spent_ms += processor_ms(server.pid) - begin_ms
            client.post(f"/v1/sessions/{session}/close", json={"mode": "cancel"}).raise_for_status()
            server.ended(first["id"])
    return taken, spent_ms / samples


def _runs(client: httpx.Client, turn_id: str) -> bool:
    events = client.get(f"/v1/turns/{turn_id}/events?after=0&limit=100").json()["data"]
    return any(event["type"] == "tool.started" for event in events)


def processor_ms(pid: int) -> float:
    """The processor time that a process has had, in user and kernel, without its children's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_MS


def health_times(server: Server, samples: int) -> Iterator[float]:
    """The cheapest request there is."""
    with server.client() as client:
        for _ in range(samples):
            begin = time.perf_counter()
            client.get("/healthz")
            yield (time.perf_counter() - begin) * 1000


def answer_times(server: Server, agent: Json, samples: int) -> Iterator[float]:
    """From the post of a turn that is one model call to its answer, with a box at hand."""
    with server.client() as client:
        for _ in range(samples):
            time.sleep(REFILL_S)
            session = new_session(server, agent)
            begin = time.perf_counter()
            turn = client.post(f"/v1/sessions/{session}/turns", json={"input": "text=ok"}).json()
            ended = client.get(f"/v1/turns/{turn['id']}?wait_ms=30000").json()
            yield (time.perf_counter() - begin) * 1000
            assert ended["output"] == {"text": "ok"}, ended


def start_times(server: Server, agent: Json, turns: int, *, warm: bool) -> tuple[list[float], list[float]]:
    """Start times and governed steps, read from stored events; a start of the other kind is left out."""
    starts: list[float] = []
    steps: list[float] = []
    for _ in range(turns):
        session = new_session(server, agent)
        body = {"input": f"tools={TOOL_CALLS} command=true text=ok"}
        server.ended(server.post(f"/v1/sessions/{session}/turns", body)["id"])
        events = server.events(session)
        started = next(event for event in events if event["type"] == "turn.started")
        queued = next(event for event in events if event["type"] == "turn.queued")
        if started["data"]["warm"] is warm:
            starts.append(between(queued, started))
        requested = [event for event in events if event["type"] == "tool.requested"]
        completed = [event for event in events if event["type"] == "tool.completed"]
        steps.extend(between(first, last) for first, last in zip(requested, completed, strict=True))
        if warm:
            time.sleep(REFILL_S)
    return starts, steps


def step_processor_ms(server: Server, agent: Json) -> float:
    """The server's processor time of one governed step: that of a turn with many, less that of one with few."""
    spent: list[float] = []
    for tools in (FEW_TOOLS, MANY_TOOLS):
        session = new_session(server, agent)
        begin_ms = processor_ms(server.pid)
        body = {"input": f"tools={tools} command=true text=ok"}
        server.ended(server.post(f"/v1/sessions/{session}/turns", body)["id"])
        spent.append(processor_ms(server.pid) - begin_ms)
    return (spent[1] - spent[0]) / (MANY_TOOLS - FEW_TOOLS)


def between(first: Json, last: Json) -> float:
    """Milliseconds from one event's commit time to another's."""
    begin, end = (datetime.fromisoformat(event["created_at"]) for event in (first, last))
    return (end - begin).total_seconds() * 1000


@contextmanager
def stream(server: Server, session_id: str, received: list[tuple[float, Json]]) -> Generator[None]:
    """Collects frames of a session's stream with the wall time each arrived."""
    opened = threading.Event()

    def read() -> None:
        with (
            server.client(timeout_s=30) as client,
            client.stream("GET", f"/v1/sessions/{session_id}/events/stream?after=0") as answer,
        ):
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    received.append((time.time(), json.loads(line[5:])))
                    opened.set()
                    if received[-1][1].get("type") == "session.closed":
                        return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert opened.wait(10)
    yield
    thread.join(timeout=30)


def stream_times(server: Server, agent: Json, sessions: int) -> Iterator[float]:
    """From an event's commit time to its frame at a client on the same machine."""
    for _ in range(sessions):
        session = new_session(server, agent)
        received: list[tuple[float, Json]] = []
        with stream(server, session, received):
            server.ended(server.post(f"/v1/sessions/{session}/turns", {"input": "tools=2 text=ok"})["id"])
            server.post(f"/v1/sessions/{session}/close", {"mode": "drain"})
        yield from since_commit(received)


def since_commit(received: list[tuple[float, Json]]) -> Iterator[float]:
    """How long after its commit each event arrived; the one that was there before is left out."""
    for at, event in received:
        if "created_at" in event and event["type"] != "session.created":
            yield max(0.0, (at - datetime.fromisoformat(event["created_at"]).timestamp()) * 1000)


@contextmanager
def webhook_receiver(received: list[tuple[float, Json]]) -> Generator[str]:
    """A receiver that takes everything at once and notes when; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            at = time.time()
            received.append((at, json.loads(self.rfile.read(int(self.headers["content-length"])))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as taking:
        thread = threading.Thread(target=taking.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{taking.server_port}/hook"
        taking.shutdown()
        thread.join()


def webhook_times(server: Server, agent: Json, sessions: int) -> list[float]:
    """From an event's commit time to its first delivery at a receiver on the same machine."""
    received: list[tuple[float, Json]] = []
    expected: set[str] = set()
    with webhook_receiver(received) as url:
        endpoint = server.post("/v1/webhook_endpoints", {"url": url, "types": ["*"]})
        for _ in range(sessions):
            session = new_session(server, agent)
            server.ended(server.post(f"/v1/sessions/{session}/turns", {"input": "tools=2 text=ok"})["id"])
            expected |= {event["id"] for event in server.events(session)}
            until(partial(_are_in, expected, received), "every event was delivered")
        with server.client() as client:
            client.delete(f"/v1/webhook_endpoints/{endpoint['id']}").raise_for_status()
    return list(since_commit(received))


def cancel_times(server: Server, agent: Json, turns: int) -> Iterator[float]:
    """From the request to cancel a turn at once until no process of its boxes is left."""
    for _ in range(turns):
        before = server.descendants()
        turn = server.post(f"/v1/sessions/{new_session(server, agent)}/turns", {"input": LONG})
        boxes = sleeping(server, before)
        begin = time.perf_counter()
        server.post(f"/v1/turns/{turn['id']}/cancel", {"mode": "immediate"})
        until(partial(_are_gone, boxes), "the boxes are gone")
        yield (time.perf_counter() - begin) * 1000
        server.ended(turn["id"])


def _are_in(expected: set[str], received: list[tuple[float, Json]]) -> bool:
    return expected <= {event["id"] for _, event in received}


def _are_gone(boxes: set[ProcessMark]) -> bool:
    return not alive(boxes)


def sleeping(server: Server, before: set[ProcessMark]) -> set[ProcessMark]:
    """The processes of the turn's boxes, once its command sleeps in one."""
    found: set[ProcessMark] = set()

    def asleep() -> bool:
        found.clear()
        found.update(server.descendants() - before)
        return any(_command(mark).startswith(b"sleep\0") for mark in found)

    until(asleep, "the command runs")
    return found


def _command(mark: ProcessMark) -> bytes:
    try:
        return Path(f"/proc/{mark.pid}/cmdline").read_bytes()
    except OSError:
        return b""


def restart_times(server: Server, agent: Json, turns: int) -> Iterator[float]:
    """From `kill -9` of the server, started again at once, to the end of the turn that it ran."""
    for _ in range(turns):
        before = server.descendants()
        turn = server.post(f"/v1/sessions/{new_session(server, agent)}/turns", {"input": LONG})
        sleeping(server, before)
        begin = time.perf_counter()
        server.kill()
        server.start()
        server.ended(turn["id"])
        yield (time.perf_counter() - begin) * 1000


def takeover_times(folder: Path, turns: int) -> Iterator[float]:
    """From `kill -9` of a worker to the end of its turn by another one, on PostgreSQL."""
    for number in range(turns):
        home = folder / f"takeover-{number}"
        home.mkdir()
        with apart(home) as place:
            workers = [place.work(name) for name in ("one", "two")]
            turn = place.post(f"/v1/sessions/{place.session()}/turns", {"input": LONG})
            place.until(turn["id"], "running")
            held = next(part for part in workers if _has_workspace(part.log_file.parent / f"{part.name}-data"))
            begin = time.perf_counter()
            held.send(signal.SIGKILL)
            ended = place.turn(turn["id"], wait_ms=60_000)
            yield (time.perf_counter() - begin) * 1000
            assert ended["stop_reason"] == "sandbox_lost", ended


def _has_workspace(data_dir: Path) -> bool:
    return any((data_dir / "workspaces").iterdir())


def until(reached: Callable[[], bool], what: str) -> None:
    """Waits for something that the machine does by itself."""
    deadline = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.002)
