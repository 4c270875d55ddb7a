"""What is seen from the host: what outlives a box, fills a disk, floods us, or waits in a workspace for us."""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.escape.attempt import BOTH, Place
from tests.unit.sandbox import box_parts
from tests.unit.sandbox.box_parts import running, settings

from turnkeeper import trees
from turnkeeper.sandbox.boxes import MAX_OUTPUT_BYTES, BoxLimits, BoxLost, ToolBox, ToolCall
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.protocol import HarnessProtocolError
from turnkeeper.sandbox.workspaces import give_workspace

Work = Callable[[Path], Awaitable[bool]]

# Ways to be somewhere else when a box ends.
STAY = "(setsid nohup sleep {0} >/dev/null 2>&1 &) & (trap '' TERM INT HUP; sleep {0} & wait) & sleep 0.2"
DEADLINE_S = 60


@dataclass(frozen=True, slots=True)
class Scenario:
    """`held` says whether what is tried came to nothing."""

    tries: str
    means: str
    held: Work
    places: tuple[Place, ...] = ("tool",)


async def _in_tool_box(folder: Path, work: Callable[[ToolBox, Path], Awaitable[bool]], **limits: int) -> bool:
    workspace = folder / "workspace"
    workspace.mkdir()
    async with running(BwrapDriver, settings(folder, tool_limits=BoxLimits(**limits))) as driver:
        return await work(await driver.tool_box(workspace), workspace)


def _shell(command: str) -> ToolCall:
    return ToolCall("shell", {"command": command}, timeout_ms=30_000)


def _living(text: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False


async def _lost(box: ToolBox, call: ToolCall) -> str | None:
    """Why the box ended during this call or the next ones, which ask for nothing."""
    async with asyncio.timeout(DEADLINE_S):
        try:
            await box.call(call)
            while True:
                await box.call(_shell("sleep 0.1"))
        except BoxLost:
            return box.end_reason


async def _daemons(folder: Path) -> bool:
    mark = str(10**8 + secrets.randbelow(10**8))

    async def work(box: ToolBox, _: Path) -> bool:
        await box.call(_shell(STAY.format(mark)))
        begun = _living(f"sleep\0{mark}")
        await box.kill()
        return begun and not _living(f"sleep\0{mark}")

    return await _in_tool_box(folder, work)


async def _canceled_call(folder: Path) -> bool:
    mark = str(10**8 + secrets.randbelow(10**8))

    async def work(box: ToolBox, workspace: Path) -> bool:
        call = asyncio.create_task(box.call(_shell(f"touch begun; {STAY.format(mark)}; sleep {mark}")))
        async with asyncio.timeout(DEADLINE_S):
            while not (workspace / "begun").exists():
                await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await box.kill()
        return not _living(f"sleep\0{mark}")

    return await _in_tool_box(folder, work)


async def _disk(folder: Path) -> bool:
    async def work(box: ToolBox, _: Path) -> bool:
        return await _lost(box, _shell("for i in $(seq 40); do head -c 1000000 /dev/zero > $i; done")) == "quota"

    return await _in_tool_box(folder, work, disk_bytes=8 << 20)


async def _files(folder: Path) -> bool:
    async def work(box: ToolBox, _: Path) -> bool:
        return await _lost(box, _shell("mkdir a; for i in $(seq 500); do : > a/$i; done")) == "quota"

    return await _in_tool_box(folder, work, disk_files=100)


async def _full_door(folder: Path) -> bool:
    (folder / "workspace").mkdir()
    (folder / "workspace" / "old").write_bytes(b"x" * (2 << 20))
    limits = BoxLimits(disk_bytes=1 << 20)
    async with running(BwrapDriver, settings(folder, tool_limits=limits)) as driver:
        box = await driver.tool_box(folder / "workspace")
        refused = await box.call(ToolCall("write_file", {"path": "new", "content": "x"}))
        emptied = await box.call(_shell("rm old"))
        written = await box.call(ToolCall("write_file", {"path": "new", "content": "x"}))
    return (refused.status, emptied.status, written.status) == ("error", "ok", "ok")


async def _flood(folder: Path) -> bool:
    async def work(box: ToolBox, _: Path) -> bool:
        outcome = await box.call(ToolCall("shell", {"command": "yes | head -c 100000000"}, max_output_bytes=1 << 40))
        return outcome.truncated and len(outcome.text.encode()) <= MAX_OUTPUT_BYTES

    return await _in_tool_box(folder, work)


async def _frames(folder: Path) -> bool:
    flood = "chunk = b'a' * (1 << 20)\nwhile True: os.write(1, chunk); os.write(2, chunk)"
    async with running(BwrapDriver, settings(folder, f"{box_parts.PRELUDE}\n{flood}")) as driver:
        box = await driver.loop_box()
        try:
            await box.receive()
        except HarnessProtocolError:
            return not box.socket_dir.exists()
    return False


async def _link_for_us(folder: Path) -> bool:
    (folder / "secret").write_text("private")

    async def work(box: ToolBox, workspace: Path) -> bool:
        await box.call(_shell(f"mkdir out; ln -s {folder} out/up; ln -s {folder}/secret out/result; mkfifo out/pipe"))
        refused = [_refused(workspace, path) for path in ("out/result", "out/up/secret", "out/pipe", "../secret")]
        return all(refused)

    return await _in_tool_box(folder, work)


async def _owner(folder: Path) -> bool:
    (folder / "mine").write_text("private")

    async def work(box: ToolBox, workspace: Path) -> bool:
        await box.call(_shell(f"ln -s {folder}/mine link; ln -s {folder} up"))
        await box.kill()
        before = (folder / "mine").stat().st_uid, folder.stat().st_uid
        give_workspace(workspace, os.geteuid() + 1 if os.geteuid() == 0 else os.geteuid())
        return ((folder / "mine").stat().st_uid, folder.stat().st_uid) == before

    return await _in_tool_box(folder, work)


async def _deep(folder: Path) -> bool:
    (folder / "kept").write_text("private")

    async def work(box: ToolBox, workspace: Path) -> bool:
        dig = f"for i in $(seq 1100); do mkdir d; cd d 2>/dev/null || break; done; ln -s {folder} up; chmod 0 ."
        await _lost(box, _shell(dig))
        await box.kill()
        trees.remove(workspace)
        return not workspace.exists() and (folder / "kept").exists()

    return await _in_tool_box(folder, work)


def _refused(workspace: Path, path: str) -> bool:
    try:
        os.close(trees.open_beneath(workspace, path))
    except trees.NotInTree:
        return True
    return False


SCENARIOS = (
    Scenario("leave a daemon behind (setsid, nohup, double fork, traps)", "pid namespace, control group", _daemons),
    Scenario("go on after the call was canceled", "pid namespace, control group", _canceled_call),
    Scenario("fill the disk through the workspace", "measured quota: the box is ended", _disk),
    Scenario("fill the disk with empty files", "measured quota: the box is ended", _files),
    Scenario("write into a workspace that is full", "refused at the door; removing goes on", _full_door),
    Scenario("flood us with a tool's output", "read, counted, cut", _flood),
    Scenario(
        "flood us with frames and with stderr", "a line and a total have limits: the box is ended", _frames, ("loop",)
    ),
    Scenario(
        "have us read a host file by a link, or wait at a pipe",
        "files are opened below the workspace, no link",
        _link_for_us,
    ),
    Scenario(
        "have us give a host file to the box's user by a link", "links are changed themselves, never followed", _owner
    ),
    Scenario("stop our clearing up by a tree too deep to remove", "removed without recursion", _deep),
)
assert all(set(scenario.places) <= set(BOTH) for scenario in SCENARIOS)
