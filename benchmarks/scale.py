"""Whether a full store is slower than an empty one: accept and start, side by side, on SQLite and on PostgreSQL.

`python -m benchmarks.scale [--short]` fills a store with 100,000 finished and 10,000 waiting turns (a tenth of that
with `--short`), asks an empty one and the full one in turns, and prints both with their ratio. What else the machine
does meanwhile slows both alike. It names every statement that reads a growing table whole at that size.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from benchmarks.crowd import Crowd, fill
from benchmarks.measure import Row, flush_cost, quantile, render
from tests.contract.conftest import psycopg_url
from tests.contract.store_rig import ANSWER, Heard, Rig, has_started, is_starting
from tests.contract.test_turn_store_plans import (
    Statement,
    a_turns_life,
    plans_on_postgres,
    plans_on_sqlite,
    reads_too_much,
    statements,
    what_a_worker_polls,
)
from tests.integration.api_door import Api, opened
from tests.integration.postgres_place import postgres_place

from turnkeeper.api.deps import ApiSettings
from turnkeeper.clock import SystemClock
from turnkeeper.ids import RandomIds
from turnkeeper.store.admin import migrate

FULL = Crowd(finished=100_000, waiting=10_000, parked=1_000)
SHORT = Crowd(finished=10_000, waiting=1_000, parked=100)
SAMPLES = 300
QUEUE_DEPTH = 1_000


@dataclass(frozen=True)
class Pair:
    """A database with the URLs of an empty and a full store."""

    database: str
    empty: str
    full: str


@dataclass
class Side:
    """An API on one store, and what was measured there in milliseconds."""

    name: str
    api: Api
    accept: list[float] = field(default_factory=list[float])
    accept_cpu: list[float] = field(default_factory=list[float])
    start: list[float] = field(default_factory=list[float])
    start_cpu: list[float] = field(default_factory=list[float])


def main() -> int:
    """Runs everything and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the turns, and of the samples")
    parser.add_argument("--only", choices=("SQLite", "PostgreSQL"), help="one database")
    chosen = parser.parse_args()
    crowd, samples = (SHORT, SAMPLES // 10) if chosen.short else (FULL, SAMPLES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        baseline = flush_cost(folder)
        for pair in databases(folder, chosen.only):
            begin = time.perf_counter()
            fill(pair.full, crowd)
            told = f"{crowd.finished:,} finished, {crowd.waiting:,} waiting and {crowd.parked:,} paused turns"
            print(f"{pair.database}: {told}, filled in {time.perf_counter() - begin:.0f} s\n", flush=True)
            sides, plans = asyncio.run(measured(folder, pair, samples))
            print(table(pair.database, sides, baseline) + "\n\n" + told_plans(plans), flush=True)
    return 0


def databases(folder: Path, only: str | None) -> Iterator[Pair]:
    """Each database by name, with the URLs of two stores on it, their tables made."""
    if only in {None, "SQLite"}:
        urls = [f"sqlite:///{folder}/{which}.db" for which in ("empty", "full")]
        for url in urls:
            migrate(url)
        yield Pair("SQLite", *urls)
    if only in {None, "PostgreSQL"}:
        with postgres_place() as place:
            urls = [new_database(place.url, which) for which in ("empty", "full")]
            for url in urls:
                migrate(url)
            yield Pair("PostgreSQL", *urls)


def new_database(server: str, name: str) -> str:
    """The store's URL of a fresh database on the server."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}_store".encode())
    return psycopg_url(server, f"{name}_store")


async def measured(folder: Path, pair: Pair, samples: int) -> tuple[list[Side], list[tuple[str, str]]]:
    """Both sides of a database, and the plans of what was asked of the full one."""
    async with AsyncExitStack() as stack:
        stores = (("empty", pair.empty), ("full", pair.full))
        sides = [await stack.enter_async_context(side(folder, name, url)) for name, url in stores]
        for number in range(samples):
            for one in sides if number % 2 else reversed(sides):
                await accept(one)
                await start(one)
        seen = await hot_statements(sides[1], pair.full)
    if pair.database == "SQLite":
        return sides, list(plans_on_sqlite(pair.full, seen))
    return sides, list(plans_on_postgres(pair.full, seen, seqscan="on"))


def told_plans(plans: list[tuple[str, str]]) -> str:
    """How many statements were planned, and those that read a growing table whole."""
    whole = {statement: line for statement, line in plans if reads_too_much(line)}
    statements = {statement for statement, _ in plans}
    lines = [f"{len(statements)} statements planned at that size; {len(whole)} read a growing table whole."]
    lines += [f"    {line.strip()}: {' '.join(statement.split())[:300]}" for statement, line in whole.items()]
    return "\n".join(lines) + "\n"


@asynccontextmanager
async def side(folder: Path, name: str, url: str) -> AsyncGenerator[Side]:
    """An open side."""
    async with opened(folder, ApiSettings(), None, QUEUE_DEPTH, url=url) as api:
        yield Side(name, api)


async def accept(one: Side) -> None:
    """POST of a turn to a session of its own, in process: no socket is in it."""
    session_id = await one.api.session()
    cpu, begin = time.process_time(), time.perf_counter()
    await one.api.turn(session_id)
    one.accept.append((time.perf_counter() - begin) * 1000)
    one.accept_cpu.append((time.process_time() - cpu) * 1000)


async def start(one: Side) -> None:
    """What a worker does with the store until a turn runs: claim, `turn.starting`, `turn.started`. Then it ends."""
    store = one.api.store
    cpu, begin = time.process_time(), time.perf_counter()
    claim = await store.claim("worker", slot=True)
    assert claim is not None
    await store.starting(claim.fence, [is_starting(claim.turn.id)])
    await store.started(claim.fence, [has_started(claim.turn.id)])
    one.start.append((time.perf_counter() - begin) * 1000)
    one.start_cpu.append((time.process_time() - cpu) * 1000)
    await store.end(claim.fence, ANSWER)


def table(database: str, sides: list[Side], baseline: Row) -> str:
    """The rows of both sides, and the ratios of their medians."""
    empty, full = sides
    kinds = (
        ("accept: POST turn -> 202", "accept"),
        ("accept, processor time of this process", "accept_cpu"),
        ("start: claim, turn.starting, turn.started", "start"),
        ("start, processor time of this process", "start_cpu"),
    )
    rows = [Row(f"{told}, {database} {one.name}", tuple(getattr(one, kind))) for told, kind in kinds for one in sides]
    ratios = [
        f"{told}: full / empty {ratio(full, empty, kind, 0.5):.2f} (p50), {ratio(full, empty, kind, 0.95):.2f} (p95)"
        for told, kind in kinds
    ]
    return render(rows, baseline) + "\n\n" + "\n".join(ratios)


def ratio(full: Side, empty: Side, kind: str, share: float) -> float:
    """How much slower the full side is."""
    return quantile(getattr(full, kind), share) / quantile(getattr(empty, kind), share)


async def hot_statements(one: Side, url: str) -> list[Statement]:
    """What accepting, running and polling send to a store."""
    rig = Rig(url, one.api.store, SystemClock(), Heard(), RandomIds(SystemClock()))  # pyright: ignore[reportArgumentType]
    with statements() as seen:
        await a_turns_life(rig)
        await what_a_worker_polls(rig)
    return seen


if __name__ == "__main__":
    sys.exit(main())
