"""What the egress proxy costs: bytes and requests through it, against the same origin without it, in the same run.

`python -m benchmarks.egress [--short]` starts an origin in a process of its own; the proxy is in this one, as it is in
a worker, and so is the client. A box is started with a proxy and without, which shows what handing its port out adds.
The answer of a Guardian is not in it: `benchmarks.guardian` measures that.
"""

import argparse
import asyncio
import http.client
import http.server
import multiprocessing
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.measure import Row, machine, quantile

from turnkeeper.addresses import parse_networks
from turnkeeper.clock import SystemClock
from turnkeeper.destinations import parse_rules
from turnkeeper.ids import RandomIds
from turnkeeper.sandbox.boxes import USUAL_ORDER, DriverSettings
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.egress import EgressProxy
from turnkeeper.sandbox.egress_admission import EgressLimits, EgressPolicy, SystemResolver

BLOCK = b"x" * (1 << 20)
RESOLVER = SystemResolver()
NETWORKS = parse_networks(["127.0.0.0/8"])


class Allows:
    """Allows everything."""

    async def ask(self, host: str, port: int, via: str) -> str | None:
        del host, port, via
        return None

    async def refused(self, host: str, port: int) -> None:
        raise AssertionError(f"{host}:{port} was refused")


class Blocks(http.server.BaseHTTPRequestHandler):
    """Answers `/N` with N MiB."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        count = int(self.path.rpartition("/")[2])
        self.send_response(200)
        self.send_header("content-length", str(count * len(BLOCK)))
        self.end_headers()
        for _ in range(count):
            self.wfile.write(BLOCK)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def serve_origin(tell: Connection) -> None:
    """An origin on a free port, which is told."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blocks)
    tell.send(server.server_address[1])
    server.serve_forever()


def fetch(port: int, mebibytes: int, *, proxy: int | None = None, tunnel: bool = False) -> float:
    """Milliseconds for one answer."""
    begin = time.perf_counter()
    client = http.client.HTTPConnection("127.0.0.1", proxy or port, timeout=120)
    if tunnel:
        client.set_tunnel("127.0.0.1", port)
    path = f"/{mebibytes}" if proxy is None or tunnel else f"http://127.0.0.1:{port}/{mebibytes}"
    headers = {} if proxy is None or tunnel else {"Host": f"127.0.0.1:{port}"}
    client.request("GET", path, headers=headers)
    answer = client.getresponse()
    while answer.read(len(BLOCK)):
        pass
    client.close()
    return (time.perf_counter() - begin) * 1000


@asynccontextmanager
async def proxy_of(folder: Path, port: int) -> AsyncGenerator[int]:
    """A proxy's port on this machine's loopback."""
    policy = EgressPolicy((parse_rules([f"127.0.0.1:{port}"]),), NETWORKS)
    proxy = EgressProxy(folder, policy, Allows(), resolver=RESOLVER, limits=EgressLimits(max_bytes=1 << 40))
    listener = socket.create_server(("127.0.0.1", 0))
    taken = int(listener.getsockname()[1])
    proxy.serve(listener)
    try:
        yield taken
    finally:
        await proxy.close()


async def transfers(folder: Path, port: int, *, size: int, rounds: int) -> list[str]:
    """A table of one large answer and of many small ones, each way in turn."""
    async with proxy_of(folder, port) as proxy:
        ways: dict[str, Callable[[int], float]] = {
            "direct": lambda count: fetch(port, count),
            "tunnel (CONNECT)": lambda count: fetch(port, count, proxy=proxy, tunnel=True),
            "plain HTTP": lambda count: fetch(port, count, proxy=proxy),
        }
        large: dict[str, list[float]] = {name: [] for name in ways}
        small: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                large[name].append(await asyncio.to_thread(way, size))
                small[name] += [await asyncio.to_thread(way, 0) for _ in range(10)]
    lines = [f"| way | MiB/s, {size} MiB at a time (p50) | a request, ms (p50) | p95 |", "|---|---|---|---|"]
    for name in ways:
        rate = size / quantile(large[name], 0.5) * 1000
        lines.append(f"| {name} | {rate:.0f} | {quantile(small[name], 0.5):.2f} | {quantile(small[name], 0.95):.2f} |")
    return lines


async def starts(folder: Path, rounds: int) -> Sequence[Row]:
    """How long a tool box takes to be ready, without a proxy and with one."""
    clock = SystemClock()
    driver = BwrapDriver(DriverSettings(state_dir=folder / "state", warm_boxes=0), RandomIds(clock), clock)
    await driver.start()
    samples: dict[bool, list[float]] = {False: [], True: []}
    try:
        for number in range(rounds):
            for with_proxy in (False, True):
                samples[with_proxy].append(
                    await _start(driver, folder / f"{number}-{with_proxy}", with_proxy=with_proxy)
                )
    finally:
        await driver.stop()
    return [Row("without a proxy", tuple(samples[False])), Row("with a proxy", tuple(samples[True]))]


async def _start(driver: BwrapDriver, folder: Path, *, with_proxy: bool) -> float:
    workspace, sockets = folder / "w", folder / "s"
    workspace.mkdir(parents=True)
    sockets.mkdir()
    sockets.chmod(0o755)
    begin = time.perf_counter()
    proxy = EgressProxy(sockets, EgressPolicy(), Allows(), resolver=RESOLVER)
    if with_proxy:
        await proxy.open()
    box = await driver.tool_box(workspace, proxy.order if with_proxy else USUAL_ORDER)
    if with_proxy:
        await proxy.attached()
    took = (time.perf_counter() - begin) * 1000
    await box.kill()
    await proxy.close()
    return took


async def main(*, short: bool) -> None:
    """Measures and prints."""
    hear, tell = multiprocessing.Pipe()
    origin = multiprocessing.get_context("spawn").Process(target=serve_origin, args=(tell,), daemon=True)
    origin.start()
    port = int(await asyncio.to_thread(hear.recv))
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o755)
            table = await transfers(folder, port, size=16 if short else 128, rounds=3 if short else 10)
            rows = await starts(folder, 3 if short else 15)
    finally:
        origin.terminate()
        await asyncio.to_thread(origin.join)
    print(f"Machine: {machine()}\n", *table, "", "| tool box, ready after ms | p50 | p95 |", "|---|---|---|", sep="\n")
    for row in rows:
        print(f"| {row.name} | {row.quantile(0.5):.1f} | {row.quantile(0.95):.1f} |")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--short", action="store_true")
    asyncio.run(main(short=arguments.parse_args().short))
