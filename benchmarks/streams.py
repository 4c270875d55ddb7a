"""An event on its way to many open streams: from the call that commits it to each reader's socket.

`python -m benchmarks.streams [--short]` serves the API in this process, on SQLite and on the loop that `turnkeeper api`
uses, with the readers in another process, and prints a table. Both share the machine; the load that it was under stands
above the table. The processor time of an event is that of this process alone, from its commit until the next one's: on
a busy machine it is the figure to go by.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import orjson
import uvicorn
from benchmarks.measure import Row, flush_cost, render
from tests.integration.api_door import Api, opened

from turnkeeper.api.deps import ApiSettings
from turnkeeper.api.server import ApiServer
from turnkeeper.api.stream_registry import StreamRegistry
from turnkeeper.cli.listening import run_loop, spare_collector
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns.model import Claim

STREAMS = 1_000
EVENTS = 50
PAUSE_S = 0.5
OPENING = 50
POLL_MS = 10_000
AIM = "p99 <= 100"
MARK = b'"text":"at '


def main() -> int:
    """Runs everything and prints the table; or is the readers, for the process that does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the events")
    parser.add_argument("--readers", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.readers is not None:
        run_loop(read_all(chosen.readers))
        return 0
    events = EVENTS // 10 if chosen.short else EVENTS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        baseline = flush_cost(folder)
        rows = [row for sessions in (1, 100) for row in run_loop(measured(folder, STREAMS, events, sessions=sessions))]
    sys.stdout.write(render(rows, baseline) + "\n")
    return 0


async def measured(folder: Path, streams: int, events: int, *, sessions: int) -> list[Row]:
    """Two rows: `streams` readers spread over `sessions`, every event followed to each who watches it."""
    home = folder / str(sessions)
    home.mkdir()
    registry = StreamRegistry(max_streams=streams, max_per_key=streams)
    async with opened(home, ApiSettings(poll_ms=POLL_MS), registry, 100) as api:
        claims = [await running(api) for _ in range(sessions)]
        server = ApiServer(uvicorn.Config(api.app, port=0, log_config=None, lifespan="off"), registry)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        spare_collector()
        samples, spent = await followed(api, claims, server, streams, events)
        server.should_exit = True
        await serving
    opened_over = f"{streams} streams over {sessions} session(s)"
    return [
        Row(f"commit -> frame, {opened_over}", tuple(samples), AIM),
        Row(f"processor time of an event, {opened_over}", tuple(spent)),
    ]


async def followed(
    api: Api, claims: list[Claim], server: ApiServer, streams: int, events: int
) -> tuple[list[float], list[float]]:
    """Every reader's time for every event that it watched, and this process's for each event, in milliseconds."""
    port = server.servers[0].sockets[0].getsockname()[1]
    watched = [claims[number % len(claims)].turn.session_id for number in range(streams)]
    asked = {"secret": api.secret, "sessions": watched}
    readers = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.streams", "--readers", str(port), stdin=-1, stdout=-1
    )
    assert readers.stdin is not None
    assert readers.stdout is not None
    readers.stdin.write(orjson.dumps(asked) + b"\n")
    await readers.stdout.readline()
    # What opening the last streams still costs is no event's.
    await asyncio.sleep(PAUSE_S)
    spent: list[float] = []
    for number in range(events):
        begin = time.process_time()
        await note(api, claims[number % len(claims)])
        await asyncio.sleep(PAUSE_S)
        spent.append((time.process_time() - begin) * 1000)
    readers.stdin.close()
    samples: list[float] = orjson.loads(await readers.stdout.read())
    await readers.wait()
    expected = sum(streams // len(claims) for _ in range(events))
    assert len(samples) == expected, f"{len(samples)} of {expected} events arrived"
    return samples, spent


async def running(api: Api) -> Claim:
    """A running turn of a session of its own."""
    await api.turn(await api.session())
    return await api.started()


async def note(api: Api, claim: Claim) -> None:
    """One event that says when it was about to be committed."""
    text = f"at {time.monotonic_ns()}"
    data = orjson.dumps({"turn_id": claim.turn.id, "text": text}).decode()
    await api.store.record(claim.fence, [NewEvent("message.completed", "sandbox", data, claim.turn.id, 1)])


async def read_all(port: int) -> None:
    """Opens the streams that stdin names, says so, and prints all times once stdin ends."""
    asked = orjson.loads(sys.stdin.buffer.readline())
    samples: list[float] = []
    places = asyncio.Semaphore(OPENING)
    ready = [asyncio.Event() for _ in asked["sessions"]]
    reading = [
        asyncio.create_task(read_one(port, request(session, asked["secret"]), samples, open_, places))
        for session, open_ in zip(asked["sessions"], ready, strict=True)
    ]
    for open_ in ready:
        await open_.wait()
    os.write(1, b"open\n")
    await asyncio.to_thread(sys.stdin.buffer.read)
    for task in reading:
        task.cancel()
    sys.stdout.buffer.write(orjson.dumps(samples))


def request(session: str, secret: str) -> bytes:
    """What a reader asks for."""
    path = f"/v1/sessions/{session}/events/stream"
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n\r\n".encode()


async def read_one(
    port: int, asked: bytes, samples: list[float], open_: asyncio.Event, places: asyncio.Semaphore
) -> None:
    """One reader, on a bare socket so that it costs as little as it can."""
    async with places:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asked)
        await reader.readuntil(b"stream.ready")
    open_.set()
    async for line in reader:
        now_ns = time.monotonic_ns()
        _, marked, rest = line.partition(MARK)
        if marked:
            samples.append((now_ns - int(rest.partition(b'"')[0])) / 1e6)


if __name__ == "__main__":
    sys.exit(main())
