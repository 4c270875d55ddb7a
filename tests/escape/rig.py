"""Runs attempts inside real boxes, beside a host that has everything they look for."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

from tests.escape.attempt import PRELUDE, RUNNER, Attempt, Need, Place
from tests.escape.on_the_host import FILES, NETWORK, PROCESSES
from tests.escape.on_the_kernel import ALLOWED, KERNEL, MEMORY, NAMESPACES
from tests.escape.on_the_machine import EXHAUSTION
from tests.unit.sandbox import box_parts
from tests.unit.sandbox.box_parts import DriverClass, running, settings

from turnkeeper.sandbox.boxes import MAX_OUTPUT_BYTES, BoxLost, DriverSettings, ToolCall
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.cgroups import open_cgroups
from turnkeeper.sandbox.protocol import HarnessProtocolError, Submit
from turnkeeper.sandbox.runtime_paths import tool_runtime

GROUPS = (FILES, PROCESSES, NETWORK, NAMESPACES, MEMORY, KERNEL, EXHAUSTION, ALLOWED)
SECRET = "sk-host-secret"
TIMEOUT_MS = 90_000
DEADLINE_S = 240


def lacks(need: Need) -> str:
    """Why this machine cannot run an attempt that needs this; empty if it can."""
    if need == "x86_64" and os.uname().machine != "x86_64":
        return "the machine is no x86-64"
    if need == "memory group":
        return open_cgroups(settle=False).missing.get("memory", "")
    return ""


@contextlib.contextmanager
def host(folder: Path, place: Place) -> Generator[dict[str, object]]:
    """What there is to be found: files, a process with a key, ports. Gives the facts that attempts use."""
    other, data = folder / "workspaces" / "other", folder / "data"
    other.mkdir(parents=True)
    data.mkdir()
    (other / "notes").write_text("private")
    (data / "turnkeeper.db").write_text("private")
    with contextlib.ExitStack() as stack:
        at_home = stack.enter_context(tempfile.NamedTemporaryFile(dir=Path.home()))
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract, by_path = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        abstract.bind(f"\0turnkeeper-escape-{os.getpid()}")
        by_path.bind(str(data / "s"))
        for listener in (abstract, by_path):
            listener.listen()
        process = stack.enter_context(subprocess.Popen(["sleep", "86398"], env={"PROVIDER_KEY": SECRET}))
        stack.callback(process.kill)
        yield {
            "home_file": at_home.name,
            "other_workspace": str(other / "notes"),
            "data_file": str(data / "turnkeeper.db"),
            "unix": str(data / "s"),
            "tcp": tcp.getsockname(),
            "abstract": f"turnkeeper-escape-{os.getpid()}",
            "secret": SECRET,
            "pid": process.pid,
            "other_door": "/workspace" if place == "loop" else "/run/gateway",
        }


def results_of(place: Place, driver_class: DriverClass, folder: Path, attempts: Sequence[Attempt]) -> list[str]:
    """What came of each attempt, in one box of this kind; `ended` for all where the box or the whole tool did."""
    limits = attempts[0].limits
    changes = {} if limits is None else {"loop_limits": limits, "tool_limits": limits}
    with host(folder, place) as facts:
        given = f"host = {facts!r}\ncodes = {[attempt.code for attempt in attempts]!r}\n"
        program = f"{PRELUDE}{given}{RUNNER}"
        loop = f"{box_parts.PRELUDE}{program}\nsubmit(json.dumps(results))\nsys.stdin.read()"
        tool = f"{program}\nprint(json.dumps(results))"
        driver_settings = settings(folder, loop, **changes)
        work = _in_loop(driver_class, driver_settings) if place == "loop" else _in_tool(driver_settings, folder, tool)
        return json.loads(asyncio.run(asyncio.wait_for(work, DEADLINE_S)) or "null") or ["ended"] * len(attempts)


async def _in_loop(driver_class: DriverClass, given: DriverSettings) -> str:
    async with running(driver_class, given) as driver:
        box = await driver.loop_box()
        try:
            frame = await box.receive()
        except (BoxLost, HarnessProtocolError):
            return ""
        assert isinstance(frame, Submit)
        return frame.value


async def _in_tool(given: DriverSettings, folder: Path, program: str) -> str:
    workspace = folder / "workspaces" / "own"
    workspace.mkdir()
    command = f"{tool_runtime().executable} -I -S probe.py"
    async with running(BwrapDriver, given) as driver:
        box = await driver.tool_box(workspace)
        await box.call(ToolCall("write_file", {"path": "probe.py", "content": program}))
        try:
            outcome = await box.call(ToolCall("shell", {"command": command}, TIMEOUT_MS, MAX_OUTPUT_BYTES))
        except BoxLost:
            return ""
        last = outcome.text.strip().splitlines()[-1:]
        return last[0] if last and last[0].startswith('["') else ""
