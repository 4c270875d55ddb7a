"""A Guardian's decision, in process and over HTTP, and what the disk's own flush costs in the same run.

`python -m benchmarks.guardian [--short]`. Every decision is durable before its answer is counted. The shipped default
policy decides; requests are signed beforehand, so that only the Guardian is measured.
"""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from benchmarks.measure import Row, flush_cost, render
from tests.integration.guardian_process import KEYRING, METHODS, guardian_process

from turnkeeper.acs import ObservedSession, build_client_hello
from turnkeeper.clock import SystemClock, render_time
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.guardian.ports import RecordedAnswer, SessionProgress, SessionTerms, StepKind, StepRecord
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.facts import Facts, SessionFacts
from turnkeeper.policy.shipped import default_rules
from turnkeeper.store.chain import SqliteGuardianStore

SESSIONS = 32
CONNECTIONS = 16
BATCH = 64
WARMING = 20
DOOR = Door("http", KEYRING)
COMMAND = "python3 -m unittest discover -s tests -v && git status --short"
PAYLOAD: dict[str, object] = {
    "tool": {"name": "shell", "provider": "built-in"},
    "operation": "process.run",
    "arguments": {
        "command": {"value": COMMAND, "provenance": {"provenance_id": "p-1", "origin": "agent_generated"}},
        "note": {"value": "n" * 900},
    },
}


@dataclass
class Cost:
    """Processor time per decision, in microseconds."""

    name: str
    cpu_us: float
    per_second: float


def main() -> int:
    """Runs everything and prints two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the samples")
    count = 20 if parser.parse_args().short else 200
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        baseline = flush_cost(folder)
        commits = commit_rows(folder, count)
        in_process, costs = asyncio.run(in_process_rows(folder, count))
        over_http, http_costs = http_rows(folder, count)
    sys.stdout.write(render([*commits, *in_process, *over_http], baseline) + "\n\n")
    sys.stdout.write(render_costs([policy_cost(count), *costs, *http_costs]) + "\n\n" + NOTES)
    return 0


NOTES = f"""\
A request has {len(PAYLOAD)} payload members and about 1.9 KB signed. Eight of the default policy's conditions are
evaluated per step. `of {BATCH}` is one commit shared by {BATCH} records. Over HTTP the processor time is the server
process's own; in process it is that of loop and writer thread together. The client of the HTTP rows runs on the same
machine.
"""


def render_costs(costs: Sequence[Cost]) -> str:
    """A Markdown table of processor time."""
    lines = ["| what | CPU µs per decision | per second |", "| --- | ---: | ---: |"]
    lines += [f"| {cost.name} | {cost.cpu_us:.0f} | {cost.per_second:.0f} |" for cost in costs]
    return "\n".join(lines)


class Script:
    """Signed requests of one session, made before the clock runs."""

    def __init__(self, steps: int) -> None:
        session_id = str(uuid4())
        session = ObservedSession.open(agent_id="bench", session_id=session_id, keyring=KEYRING, key_id="default")
        at = render_time(datetime.now(UTC))

        def body(method: str, payload: dict[str, object]) -> bytes:
            return session.request(method, payload, request_id=str(uuid4()), timestamp=at, nonce=str(uuid4()))

        self.hello = body("handshake/hello", build_client_hello(methods=METHODS, transports=["http"]))
        self.steps = [body("steps/toolCallRequest", PAYLOAD) for _ in range(steps)]


async def in_process_rows(folder: Path, count: int) -> tuple[list[Row], list[Cost]]:
    """Decisions without a network between."""
    guardian = Guardian(
        store=SqliteGuardianStore(folder / "in-process.db"), engine=CelEngine(default_rules()), clock=SystemClock()
    )
    await guardian.start()

    async def run(script: Script) -> list[float]:
        return [await timed(guardian, step) for step in script.steps]

    try:
        rows: list[Row] = []
        costs: list[Cost] = []
        for name, sessions in (("one at a time", 1), (f"{SESSIONS} sessions at once", SESSIONS)):
            scripts = [Script(count) for _ in range(sessions)]
            for script in (*scripts, warming := Script(WARMING)):
                await guardian.answer(script.hello, DOOR)
            await run(warming)
            begin, cpu = time.perf_counter(), cpu_seconds()
            samples = await asyncio.gather(*(run(script) for script in scripts))
            done = sessions * count
            rows.append(Row(f"decision in process, {name}", tuple(sample for part in samples for sample in part)))
            costs.append(
                Cost(f"in process, {name}", (cpu_seconds() - cpu) / done * 1e6, done / (time.perf_counter() - begin))
            )
        return rows, costs
    finally:
        await guardian.stop()


async def timed(guardian: Guardian, body: bytes) -> float:
    """One decision, in milliseconds."""
    begin = time.perf_counter()
    answer = await guardian.answer(body, DOOR)
    elapsed = (time.perf_counter() - begin) * 1000
    if b'"decision":"allow"' not in answer:
        raise RuntimeError(f"not allowed: {answer!r}")
    return elapsed


def cpu_seconds() -> float:
    """Processor time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def policy_cost(count: int) -> Cost:
    """The default policy alone."""
    engine = CelEngine(default_rules())
    facts = Facts("steps/toolCallRequest", "step", PAYLOAD, "bench", SessionFacts("session"))
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(count * 20):
        engine.evaluate(facts)
    done = count * 20
    return Cost("policy alone", (time.process_time() - cpu) / done * 1e6, done / (time.perf_counter() - begin))


def commit_rows(folder: Path, count: int) -> list[Row]:
    """Commits of the store alone."""
    store = SqliteGuardianStore(folder / "commits.db")
    store.open()
    number = 1
    try:
        store.commit([replace(record(1), new_session=TERMS)])
        rows: list[Row] = []
        for size in (1, BATCH):
            samples: list[float] = []
            for _ in range(count):
                batch = [record(number + offset) for offset in range(1, size + 1)]
                number += size
                begin = time.perf_counter()
                store.commit(batch)
                samples.append((time.perf_counter() - begin) * 1000)
            rows.append(Row(f"commit of {size}", tuple(samples)))
        return rows
    finally:
        store.close()


TERMS = SessionTerms("session", "default", "bench", "0.1.0", 300_000, frozenset(METHODS), "0" * 64, b"{}", 0)


def record(number: int) -> StepRecord:
    """What a typical step leaves behind."""
    head = f"{number:064x}"
    return StepRecord(
        session_id="session",
        recorded=number,
        kind=StepKind.STEP,
        method="steps/toolCallRequest",
        request_id=str(uuid4()),
        nonce=str(uuid4()),
        door="http",
        request=b"q" * 1_900,
        response=b"a" * 700,
        received_at_ms=0,
        progress=SessionProgress(head=head, recorded=number, entries=number),
        answer=RecordedAnswer("allow", head, None),
        entry=b"e" * 450,
    )


def http_rows(folder: Path, count: int) -> tuple[list[Row], list[Cost]]:
    """Decisions over HTTP, keep-alive, from this process to a server process."""
    rows: list[Row] = []
    costs: list[Cost] = []
    with guardian_process(folder) as process:
        for name, connections in (("1 connection", 1), (f"{CONNECTIONS} connections", CONNECTIONS)):
            scripts = [Script(count) for _ in range(connections)]
            asyncio.run(drive(process.port, [Script(WARMING)]))
            begin, cpu = time.perf_counter(), cpu_of(process.child.pid)
            samples = asyncio.run(drive(process.port, scripts))
            done = connections * (count + 1)
            elapsed = time.perf_counter() - begin
            rows.append(Row(f"decision over HTTP, {name}", samples))
            costs.append(Cost(f"over HTTP, {name}", (cpu_of(process.child.pid) - cpu) / done * 1e6, done / elapsed))
    return rows, costs


def cpu_of(pid: int) -> float:
    """Processor time of another process so far, in seconds; the kernel counts in hundredths."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def drive(port: int, scripts: Sequence[Script]) -> tuple[float, ...]:
    """Every script on a connection of its own; the time of each step in milliseconds."""

    async def run(script: Script) -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        samples: list[float] = []
        for body in (script.hello, *script.steps):
            begin = time.perf_counter()
            writer.write(b"POST /acs HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            samples.append((time.perf_counter() - begin) * 1000)
        writer.close()
        await writer.wait_closed()
        return samples[1:]

    parts = await asyncio.gather(*(run(script) for script in scripts))
    return tuple(sample for part in parts for sample in part)


if __name__ == "__main__":
    sys.exit(main())
