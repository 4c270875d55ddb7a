"""Turns as an app sees them over HTTP: accepted, started, governed, streamed, delivered, canceled, recovered.

`python -m benchmarks.turns [--short] [--only SQLite] [--without-peer]` starts a real `turnkeeper serve` with a stub
model on loopback, on each database, then a peer that does the same job with the same model, and prints a table. Times
between stored events have the events' own resolution of one millisecond.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from benchmarks import peer
from benchmarks.measure import Row, flush_cost, render
from benchmarks.turn_times import (
    REFILL_S,
    accept_times,
    answer_times,
    cancel_times,
    health_times,
    new_agent,
    restart_times,
    start_times,
    stream_times,
    takeover_times,
    webhook_times,
)
from tests.acceptance.server import NO_WARM_BOXES, Server
from tests.acceptance.stub import StubModel
from tests.integration.postgres_place import postgres_place

ACCEPT_AIM = "p99 <= 25"
STEP_AIM = "p50 <= 10 on a quiet disk"
START_AIM = "p50 <= 150, p99 <= 500"
CANCEL_AIM = "p99 <= 2000"
OPEN_TO_LOOPBACK = '[webhooks]\nallow_http = true\nnetworks = ["127.0.0.0/8"]\n'
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Runs everything and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the samples")
    parser.add_argument("--only", choices=("SQLite", "PostgreSQL"), help="one database")
    parser.add_argument("--without-peer", action="store_true", help="measure no other product")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, StubModel() as model:
        run = Run(Path(name), model, 20 if chosen.short else 200)
        baseline = flush_cost(run.folder)
        rows: list[Row] = []
        if chosen.only in {None, "SQLite"}:
            rows += on_database(run, "SQLite", "")
        if chosen.only in {None, "PostgreSQL"}:
            with postgres_url() as url:
                rows += on_database(run, "PostgreSQL", f'[store]\nurl = "{url}"\n')
            takeovers = tuple(takeover_times(run.folder, max(3, run.samples // 20)))
            rows.append(Row("kill -9 of a worker -> its turn ended by another, PostgreSQL", takeovers))
        if not chosen.without_peer:
            rows += beside(run)
    sys.stdout.write("\n\n".join((render(rows, baseline), "\n".join(run.notes), NOTES)))
    return 0


@dataclass(frozen=True)
class Run:
    """A run of the benchmark: where, with which model, how many samples, and what is to be said below the table."""

    folder: Path
    model: StubModel
    samples: int
    notes: list[str] = field(default_factory=list[str])


NOTES = """\
Governed step: from `tool.requested` to `tool.completed`, a shell `true` included. It holds four transactions of the
turn store (request + tool.requested; answer + tool.decided + tool.started; result request; answer + tool.completed)
and two of the Guardian's (each: reservation, entry, counters, signed answer).
"""


@contextmanager
def postgres_url() -> Generator[str]:
    """The store's URL of a server for this run."""
    with postgres_place() as place:
        yield place.url.replace("postgresql://", "postgresql+psycopg://", 1)


def on_database(run: Run, database: str, config: str) -> list[Row]:
    """All rows of one database: first with boxes kept warm, then on a server that makes none ready."""
    folder, environment = run.folder / database, {"STUB_KEY": "k"}
    folder.mkdir()
    with Server(folder / "warm", run.model.config(OPEN_TO_LOOPBACK + config), environment=environment) as server:
        rows = with_warm_boxes(server, run.samples)
    with Server(folder / "quiet", run.model.config(NO_WARM_BOXES + config), environment=environment) as server:
        rows += without_warm_boxes(server, run.samples)
        spent_ms = accept_cpu_ms(server)
    run.notes.append(f"Accept, {database}: {spent_ms:.1f} ms of the server's processor time each.")
    return [Row(f"{row.name}, {database}", row.samples_ms, row.aim) for row in rows]


def with_warm_boxes(server: Server, samples: int) -> list[Row]:
    """What a server does that has boxes at hand."""
    agent, few = new_agent(server), max(10, samples // 5)
    time.sleep(REFILL_S)
    answers = tuple(answer_times(server, agent, few))
    warm, steps = start_times(server, agent, few, warm=True)
    return [
        Row("GET /healthz (HTTP alone)", tuple(health_times(server, samples))),
        Row("start, box warm: queued -> started", tuple(warm), START_AIM),
        Row("post -> answer, one model call, box warm", answers),
        Row("governed tool step, boxes being made ready beside it", tuple(steps), STEP_AIM),
        Row("event commit -> SSE frame", tuple(stream_times(server, agent, max(5, samples // 10)))),
        Row("event commit -> webhook", tuple(webhook_times(server, agent, max(5, samples // 10)))),
    ]


def without_warm_boxes(server: Server, samples: int) -> list[Row]:
    """What a server does that makes no box ready beside it."""
    agent, few = new_agent(server), max(10, samples // 5)
    accept = tuple(accept_times(server, agent, samples))
    cold, steps = start_times(server, agent, few, warm=False)
    return [
        Row("accept: POST turn -> 202", accept, ACCEPT_AIM),
        Row("start, box cold: queued -> started", tuple(cold)),
        Row("governed tool step, no box being made ready beside it", tuple(steps), STEP_AIM),
        Row("cancel -> no process of its boxes left", tuple(cancel_times(server, agent, few)), CANCEL_AIM),
        Row("kill -9 of serve, started again -> its turn ended", tuple(restart_times(server, agent, max(3, few // 8)))),
    ]


def accept_cpu_ms(server: Server, posts: int = 90) -> float:
    """The processor time of accepting one turn, those of one session after the first waiting behind it."""
    agent = new_agent(server)
    with server.client() as client:
        session = client.post("/v1/sessions", json={"agent_id": agent["id"]}).json()["id"]
        first = client.post(f"/v1/sessions/{session}/turns", json={"input": "tools=1 command=sleep+30 text=ok"})
        first.raise_for_status()
        until_running(client, first.json()["id"])
        begin = processor_ms(server.pid)
        for _ in range(posts):
            client.post(f"/v1/sessions/{session}/turns", json={"input": "text=ok"}).raise_for_status()
        spent = processor_ms(server.pid) - begin
        client.post(f"/v1/sessions/{session}/close", json={"mode": "cancel"}).raise_for_status()
    return spent / posts


def until_running(client: httpx.Client, turn_id: str) -> None:
    """Waits for the turn's start, and a moment more for its tool."""
    while client.get(f"/v1/turns/{turn_id}").json()["status"] != "running":
        time.sleep(0.05)
    time.sleep(1)


def processor_ms(pid: int) -> float:
    """The processor time that a process has had, in user and kernel, without its children's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_MS


def beside(run: Run) -> list[Row]:
    """The peer's rows; why there are none, among the notes."""
    reason = peer.installed()
    if reason is None:
        home = run.folder / "peer"
        home.mkdir()
        try:
            return peer.measure(home, run.model, max(10, run.samples // 5))
        except TimeoutError as error:
            reason = str(error)
    run.notes.append(f"No peer: {reason}.")
    return []


if __name__ == "__main__":
    try:
        sys.exit(main())
    except httpx.TransportError as error:
        sys.exit(f"the server went away: {error}")
