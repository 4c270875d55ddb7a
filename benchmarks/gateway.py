"""What the model gateway costs: a call and a streamed token, against calling the same model directly in the same run.

`python -m benchmarks.gateway [--short]` starts a scripted model in a process of its own, the gateway in this one and a
client in this one too, and prints tables. Processor time is this process's: what a call through the gateway takes more
than a direct one is the gateway's, also on a machine that has other work. The meter is in memory: what the ledger's
transactions cost is measured by `benchmarks.turns`.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from benchmarks.measure import machine, quantile
from pydantic import SecretStr

from turnkeeper.sandbox.gateway import ModelGateway, ModelSpec
from turnkeeper.sandbox.gateway_calls import GatewayLimits
from turnkeeper.sandbox.providers import Provider, anthropic_provider, openai_provider
from turnkeeper.testing.memory_meter import MemoryMeter

KEY = "sk-0123456789abcdef0123"
CALLS = 300
STREAMS = 30
WORDS = 2_000
MESSAGES = [{"role": "user", "content": "word " * 400}]


@dataclass(frozen=True)
class Wire:
    """One protocol: its path, the rest of its body."""

    name: str
    path: str
    body: dict[str, object]


WIRES = (
    Wire("Chat Completions", "/v1/chat/completions", {"messages": MESSAGES}),
    Wire("Responses", "/v1/responses", {"input": MESSAGES}),
    Wire("Messages", "/v1/messages", {"messages": MESSAGES, "max_tokens": 4_000}),
)


@dataclass(frozen=True)
class Cost:
    """What one call took: milliseconds of time, and of this process's processor."""

    wall_ms: float
    cpu_ms: float


@dataclass(frozen=True)
class Pair:
    """The same calls, direct and through the gateway."""

    name: str
    direct: list[Cost]
    through: list[Cost]


def main() -> int:
    """Runs everything and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the calls")
    share = 10 if parser.parse_args().short else 1
    with tempfile.TemporaryDirectory() as name:
        whole, streamed = asyncio.run(measured(Path(name), CALLS // share, max(STREAMS // share, 3)))
    sys.stdout.write(f"Machine: {machine()}\n\n")
    sys.stdout.write(table(f"a call with an answer of {WORDS:,} words, in ms", whole, 1) + "\n\n")
    sys.stdout.write(table(f"a word of a stream of {WORDS:,}, in µs", streamed, 1_000 / WORDS) + "\n")
    return 0


async def measured(folder: Path, calls: int, streams: int) -> tuple[list[Pair], list[Pair]]:
    """Whole calls and streams of every protocol."""
    whole: list[Pair] = []
    streamed: list[Pair] = []
    async with scripted(folder) as base_url, httpx.AsyncClient(trust_env=False, timeout=60) as direct:
        direct.headers["authorization"] = f"Bearer {KEY}"
        for wire in WIRES:
            async with through(folder, base_url, wire) as boxed:
                url = base_url.removesuffix("/v1") + wire.path
                for rows, count, stream in ((whole, calls, False), (streamed, streams, True)):
                    pair = Pair(wire.name, [], [])
                    for _ in range(count):
                        pair.direct.append(await one_call(direct, url, wire, stream=stream))
                        pair.through.append(await one_call(boxed, wire.path, wire, stream=stream))
                    rows.append(pair)
    return whole, streamed


@asynccontextmanager
async def scripted(folder: Path) -> AsyncGenerator[str]:
    """A scripted model in its own process: one answer of many words, as often as it is asked."""
    answers = [{"text": "word " * WORDS, "usage": {"prompt_tokens": 500, "completion_tokens": WORDS}}]
    (folder / "script.json").write_text(json.dumps(answers * (len(WIRES) * (CALLS + STREAMS) * 4)))
    model = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnkeeper.testing.scripted_model", "--api-key", KEY),
        *("--script", str(folder / "script.json")),
        stdout=asyncio.subprocess.PIPE,
    )
    assert model.stdout is not None
    try:
        yield (await model.stdout.readline()).decode().strip()
    finally:
        model.terminate()
        await model.wait()


@asynccontextmanager
async def through(folder: Path, base_url: str, wire: Wire) -> AsyncGenerator[httpx.AsyncClient]:
    """A client at a gateway's socket."""
    make = anthropic_provider if wire.path == "/v1/messages" else openai_provider
    provider: Provider = make("bench", base_url, SecretStr(KEY))
    gateway = ModelGateway(limits=GatewayLimits(max_calls_per_minute=1_000_000))
    handle = await gateway.open(folder, ModelSpec(provider, "m1"), MemoryMeter())
    transport = httpx.AsyncHTTPTransport(uds=str(handle.path))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=60) as client:
        yield client
    await handle.close()
    await gateway.close()


async def one_call(client: httpx.AsyncClient, url: str, wire: Wire, *, stream: bool) -> Cost:
    """One call, from the request to the last byte of its answer."""
    begin, cpu = time.perf_counter(), time.process_time()
    async with client.stream("POST", url, json={"model": "m1", "stream": stream, **wire.body}) as response:
        response.raise_for_status()
        async for _ in response.aiter_raw():
            pass
    return Cost((time.perf_counter() - begin) * 1_000, (time.process_time() - cpu) * 1_000)


def table(what: str, pairs: list[Pair], scale: float) -> str:
    """Medians as a Markdown table; the last column is the gateway's own processor time."""
    lines = [
        f"| {what} | n | direct p50 | through p50 | through p95 | CPU direct | CPU through | CPU of the gateway |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for pair in pairs:
        walls = [quantile([cost.wall_ms * scale for cost in side], 0.5) for side in (pair.direct, pair.through)]
        late = quantile([cost.wall_ms * scale for cost in pair.through], 0.95)
        cpus = [quantile([cost.cpu_ms * scale for cost in side], 0.5) for side in (pair.direct, pair.through)]
        figures = (*walls, late, *cpus, cpus[1] - cpus[0])
        lines.append(
            f"| {pair.name} | {len(pair.direct)} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
