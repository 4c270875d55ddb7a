"""What boxes cost: to start cold and warm, to call a tool in, in memory, fifty at once; beside fork and exec.

`python -m benchmarks.boxes`, with `--short` for few samples.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.measure import Row, render

from turnkeeper.clock import SystemClock
from turnkeeper.ids import RandomIds
from turnkeeper.sandbox.boxes import DriverSettings, ToolCall
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.protocol import Report, Start, Started

AT_ONCE = 50
AGENT = """
import json, sys
def out(**frame):
    print(json.dumps(frame), flush=True)
out(type="ready", harness="no-op", version="1")
turn = json.loads(sys.stdin.readline())["turn_id"]
out(type="started", turn_id=turn)
out(type="report", status="completed", stop_reason="end_turn", text="", result=None, result_error=None, usage={},
    duration_ms=0)
sys.stdin.readline()
"""
TRUE = ToolCall("shell", {"command": "true"})


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """How long it takes, in milliseconds."""
    begin = time.perf_counter()
    await work()
    return (time.perf_counter() - begin) * 1000


def fork_and_exec(count: int) -> Row:
    """The floor: one process that does nothing, started and waited for."""
    samples: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        subprocess.run(["/bin/true"], check=True)
        samples.append((time.perf_counter() - begin) * 1000)
    return Row("fork and exec of /bin/true", tuple(samples))


async def turn_of(driver: BwrapDriver) -> None:
    """One turn of an agent that does nothing: a box, its start, its report, its end."""
    box = await driver.loop_box()
    await box.send(Start("trn_1", 1, "", "", "m", box.gateway_socket))
    started, report = await box.receive(), await box.receive()
    if not isinstance(started, Started) or not isinstance(report, Report):
        raise SystemExit("the agent that does nothing did something")
    await box.kill()


async def cold_boxes(folder: Path, count: int) -> list[Row]:
    """Loop boxes that nobody made ahead, tool boxes and calls in them."""
    driver = await started(folder, warm=0)
    loops: list[float] = []
    tools: list[float] = []
    calls: list[float] = []
    for number in range(count):
        loops.append(await timed(lambda: turn_of(driver)))
        workspace = folder / f"w{number}"
        workspace.mkdir()
        begin = time.perf_counter()
        box = await driver.tool_box(workspace)
        tools.append((time.perf_counter() - begin) * 1000)
        calls += [await timed(lambda box=box: box.call(TRUE)) for _ in range(3)]
        await box.kill()
    await driver.stop()
    return [
        Row("turn of an agent that does nothing, box cold, to its confirmed end", tuple(loops)),
        Row("tool box, asked for to ready", tuple(tools)),
        Row("shell `true` in it", tuple(calls)),
    ]


async def warm_boxes(folder: Path, count: int) -> Row:
    """A loop box that is ready, and handed out."""
    driver = await started(folder, warm=2)
    samples: list[float] = []
    for _ in range(count):
        await driver.wait_warm(1)
        begin = time.perf_counter()
        box = await driver.loop_box()
        samples.append((time.perf_counter() - begin) * 1000)
        await box.kill()
    await driver.stop()
    return Row("loop box, warm, asked for to handed out", tuple(samples))


async def many_at_once(folder: Path) -> tuple[Row, str]:
    """Fifty tool boxes asked for together, a call in each, and what they hold."""
    driver = await started(folder, warm=0)
    folders = [folder / f"m{number}" for number in range(AT_ONCE)]
    for one in folders:
        one.mkdir()
    begin = time.perf_counter()
    boxes = await asyncio.gather(*(driver.tool_box(one) for one in folders))
    ready_s = time.perf_counter() - begin
    samples = await asyncio.gather(*(timed(lambda box=box: box.call(TRUE)) for box in boxes))
    held = pss_mib()
    begin = time.perf_counter()
    await driver.stop()
    gone_s = time.perf_counter() - begin
    told = (
        f"{AT_ONCE} tool boxes at once: ready after {ready_s:.2f} s, gone after {gone_s:.2f} s, "
        f"{held / AT_ONCE:.1f} MiB PSS each (bubblewrap and the tools' program, idle)"
    )
    return Row(f"shell `true` in {AT_ONCE} boxes at one time", tuple(samples)), told


async def turns_a_second(folder: Path, count: int) -> str:
    """Turns of an agent that does nothing, four at a time, each in a box of its own."""
    driver = await started(folder, warm=0)
    gate = asyncio.Semaphore(4)

    async def one() -> None:
        async with gate:
            await turn_of(driver)

    begin = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    took_s = time.perf_counter() - begin
    await driver.stop()
    return f"{count / took_s:.0f} turns/s of an agent that does nothing, four at a time, each in a cold box of its own"


def pss_mib() -> float:
    """What all processes below bubblewrap hold, shared pages divided."""
    total_kib = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if b"toolbox_agent" not in (path / "cmdline").read_bytes():
                continue
            lines = (path / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total_kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kib / 1024


async def started(folder: Path, *, warm: int) -> BwrapDriver:
    """A driver whose harness does nothing."""
    clock = SystemClock()
    command = (sys.executable, "-I", "-S", "-c", AGENT)
    driver = BwrapDriver(
        DriverSettings(folder / "state", loop_command=command, warm_boxes=warm), RandomIds(clock), clock
    )
    await driver.start()
    return driver


async def measured(folder: Path, count: int) -> None:
    """Measure everything and print it."""
    baseline = fork_and_exec(count)
    rows = [*await cold_boxes(folder, count), await warm_boxes(folder, count)]
    crowd, told = await many_at_once(folder)
    print(render([*rows, crowd], baseline))
    print(f"\n- {told}\n- {await turns_a_second(folder, count)}")


def main() -> int:
    """Everything in a folder that goes afterwards."""
    parser = argparse.ArgumentParser(prog="benchmarks.boxes")
    parser.add_argument("--short", action="store_true", help="few samples")
    with tempfile.TemporaryDirectory(prefix="tk-") as scratch:
        asyncio.run(measured(Path(scratch), 30 if parser.parse_args().short else 200))
    return 0


if __name__ == "__main__":
    sys.exit(main())
