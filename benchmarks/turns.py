"""Accept, start, governed tool step and event-to-stream, as an app sees them over HTTP.

`python -m benchmarks.turns [--short]` starts a real `turnkeeper serve` with a stub model on loopback and prints a
table. Times between stored events have the events' own resolution of one millisecond.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import httpx
from benchmarks.measure import Row, flush_cost, render
from tests.acceptance.server import NO_WARM_BOXES, Json, Server
from tests.acceptance.stub import StubModel

TOOL_CALLS = 5
STEP_AIM = "p50 <= 10 on a quiet disk"
REFILL_S = 5.0
"""How long the warm start's turns wait for the pool to have boxes again; the cold start's do not wait."""


def main() -> int:
    """Runs everything and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the samples")
    samples = 20 if parser.parse_args().short else 200
    with tempfile.TemporaryDirectory() as name, StubModel() as model:
        folder = Path(name)
        baseline = flush_cost(folder)
        with Server(folder, model.config(), environment={"STUB_KEY": "k"}) as server:
            rows = measure(server, samples)
        with Server(folder / "quiet", model.config(NO_WARM_BOXES), environment={"STUB_KEY": "k"}) as server:
            _, steps = start_times(server, new_agent(server), max(10, samples // 5), warm=False)
        rows.insert(-1, Row("governed tool step, no box being made ready beside it", tuple(steps), STEP_AIM))
    sys.stdout.write(render(rows, baseline) + "\n\n" + NOTES)
    return 0


NOTES = """\
Governed step: from `tool.requested` to `tool.completed`, a shell `true` included. It holds four transactions of the
turn store (request + tool.requested; answer + tool.decided + tool.started; result request; answer + tool.completed)
and two of the Guardian's (each: reservation, entry, counters, signed answer).
"""


def measure(server: Server, samples: int) -> list[Row]:
    """All rows, one after the other on an otherwise idle server."""
    agent = new_agent(server)
    accept = Row("accept: POST turn -> 202", tuple(accept_times(server, agent, samples)), "p99 <= 25")
    turns = max(10, samples // 5)
    time.sleep(REFILL_S)
    warm, steps = start_times(server, agent, turns, warm=True)
    cold, _ = start_times(server, agent, turns, warm=False)
    return [
        accept,
        Row("GET /healthz (HTTP alone)", tuple(health_times(server, samples))),
        Row("start, box warm: queued -> started", tuple(warm), "p50 <= 150"),
        Row("start, box cold: queued -> started", tuple(cold)),
        Row("governed tool step, boxes being made ready beside it", tuple(steps), STEP_AIM),
        Row("event commit -> SSE frame", tuple(stream_times(server, agent, max(5, samples // 10)))),
    ]


def new_agent(server: Server) -> Json:
    """An agent with a shell on the stub model."""
    model = {"provider": "stub", "id": "m"}
    return server.post("/v1/agents", {"name": "bench", "model": model, "instructions": "x", "tools": ["shell"]})


def accept_times(server: Server, agent: Json, samples: int) -> Iterator[float]:
    """Turns posted to sessions whose queue does not move meanwhile: only accepting is measured."""
    with server.client() as client:
        for _ in range(samples):
            session = client.post("/v1/sessions", json={"agent_id": agent["id"]}).json()
            begin = time.perf_counter()
            answer = client.post(f"/v1/sessions/{session['id']}/turns", json={"input": "text=ok"})
            yield (time.perf_counter() - begin) * 1000
            assert answer.status_code == 202
            server.ended(answer.json()["id"])


def health_times(server: Server, samples: int) -> Iterator[float]:
    """The cheapest request there is."""
    with server.client() as client:
        for _ in range(samples):
            begin = time.perf_counter()
            client.get("/healthz")
            yield (time.perf_counter() - begin) * 1000


def start_times(server: Server, agent: Json, turns: int, *, warm: bool) -> tuple[list[float], list[float]]:
    """Start times and governed steps, read from stored events; a start of the other kind is left out."""
    starts: list[float] = []
    steps: list[float] = []
    for _ in range(turns):
        session = server.post("/v1/sessions", {"agent_id": agent["id"]})
        body = {"input": f"tools={TOOL_CALLS} command=true text=ok"}
        server.ended(server.post(f"/v1/sessions/{session['id']}/turns", body)["id"])
        events = server.events(session["id"])
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
        session = server.post("/v1/sessions", {"agent_id": agent["id"]})
        received: list[tuple[float, Json]] = []
        with stream(server, session["id"], received):
            server.ended(server.post(f"/v1/sessions/{session['id']}/turns", {"input": "tools=2 text=ok"})["id"])
            server.post(f"/v1/sessions/{session['id']}/close", {"mode": "drain"})
        for at, event in received:
            if "created_at" in event and event["type"] != "session.created":
                yield max(0.0, (at - datetime.fromisoformat(event["created_at"]).timestamp()) * 1000)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except httpx.TransportError as error:
        sys.exit(f"the server went away: {error}")
