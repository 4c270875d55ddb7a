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
from collections.abc import Generator, Iterable, Iterator
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
    step_processor_ms,
    stream_times,
    takeover_times,
    webhook_times,
)
from tests.acceptance.server import NO_WARM_BOXES, Server
from tests.acceptance.stub import StubModel
from tests.integration.postgres_place import postgres_place

SAMPLES = 200
ACCEPT_AIM = "p99 <= 25"
STEP_AIM = "p50 <= 10 on a quiet disk"
START_AIM = "p50 <= 150, p99 <= 500"
CANCEL_AIM = "p99 <= 2000"
OPEN_TO_LOOPBACK = '[webhooks]\nallow_http = true\nnetworks = ["127.0.0.0/8"]\n'


def main() -> int:
    """Runs everything and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the samples")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of the cheapest row; others have fewer")
    parser.add_argument("--only", choices=("SQLite", "PostgreSQL"), help="one database")
    parser.add_argument("--without-peer", action="store_true", help="measure no other product")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, StubModel() as model:
        run = Run(Path(name), model, chosen.samples // 10 if chosen.short else chosen.samples)
        baseline = flush_cost(run.folder)
        rows: list[Row] = []
        if chosen.only in {None, "SQLite"}:
            rows += on_database(run, "SQLite", "")
        if chosen.only in {None, "PostgreSQL"}:
            with postgres_url() as url:
                rows += on_database(run, "PostgreSQL", f'[store]\nurl = "{url}"\n')
            takeovers = tuple(takeover_times(run.folder, max(2, run.samples // 20)))
            rows += told([Row("kill -9 of a worker -> its turn ended by another, PostgreSQL", takeovers)])
        if not chosen.without_peer:
            rows += told(beside(run))
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
        rows = [*told(with_warm_boxes(server, run.samples), f", {database}")]
    with Server(folder / "quiet", run.model.config(NO_WARM_BOXES + config), environment=environment) as server:
        rows += told(without_warm_boxes(server, run.samples), f", {database}")
    return rows


def with_warm_boxes(server: Server, samples: int) -> Iterator[Row]:
    """What a server does that has boxes at hand."""
    agent, few = new_agent(server), max(5, samples // 5)
    time.sleep(REFILL_S)
    yield Row("GET /healthz (HTTP alone)", tuple(health_times(server, samples)))
    yield Row("post -> answer, one model call, box warm", tuple(answer_times(server, agent, few)))
    warm, steps = start_times(server, agent, few, warm=True)
    yield Row("start, box warm: queued -> started", tuple(warm), START_AIM)
    yield Row("governed tool step, boxes being made ready beside it", tuple(steps), STEP_AIM)
    yield Row("event commit -> SSE frame", tuple(stream_times(server, agent, max(3, samples // 10))))
    yield Row("event commit -> webhook", tuple(webhook_times(server, agent, max(3, samples // 10))))


def without_warm_boxes(server: Server, samples: int) -> Iterator[Row]:
    """What a server does that makes no box ready beside it."""
    agent, few = new_agent(server), max(5, samples // 5)
    accept, spent_ms = accept_times(server, agent, samples)
    yield Row("accept: POST turn -> 202", tuple(accept), ACCEPT_AIM)
    yield Row("accept, mean processor time of the server", (spent_ms,))
    cold, steps = start_times(server, agent, few, warm=False)
    yield Row("start, box cold: queued -> started", tuple(cold))
    yield Row("governed tool step, no box being made ready beside it", tuple(steps), STEP_AIM)
    yield Row("governed tool step, mean processor time of the server", (step_processor_ms(server, agent),))
    yield Row("cancel -> no process of its boxes left", tuple(cancel_times(server, agent, few)), CANCEL_AIM)
    recovered = tuple(restart_times(server, agent, max(3, few // 8)))
    yield Row("kill -9 of serve, started again -> its turn ended", recovered)


def told(rows: Iterable[Row], of: str = "") -> Iterator[Row]:
    """The rows, each said as soon as it is there: the whole takes its time."""
    for row in rows:
        named = Row(f"{row.name}{of}", row.samples_ms, row.aim)
        figures = ", ".join(f"{named.quantile(share):.1f}" for share in (0.5, 0.95, 0.99)) if row.samples_ms else "none"
        print(f"{named.name}: {figures} ms (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)
        yield named


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
