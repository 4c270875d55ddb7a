"""That boxes end: by kill, with their owner, and with everything in them, whatever it does to stay."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.sandbox.box_parts import PRELUDE, READY, run, running, settings, workspace

from turnkeeper.sandbox.boxes import BoxLost, ToolCall
from turnkeeper.sandbox.bwrap import BwrapDriver

pytestmark = pytest.mark.sandbox

REPOSITORY = Path(__file__).parents[2]
DEADLINE_S = 20

# Six ways to outlive a shell.
STUBBORN = """
sleep {mark} & setsid sleep {mark} & nohup sleep {mark} >/dev/null 2>&1 &
(trap '' TERM INT HUP; sleep {mark}; sleep {mark}) & setsid sh -c 'sleep {mark} & wait' & (setsid sleep {mark} &)
"""

OWNER = """
import asyncio, sys
from pathlib import Path
from tests.unit.sandbox.box_parts import ECHO, running, settings, workspace
from turnkeeper.sandbox.boxes import ToolCall
from turnkeeper.sandbox.bwrap import BwrapDriver

async def work():
    folder, command = Path(sys.argv[1]), sys.argv[2]
    async with running(BwrapDriver, settings(folder, ECHO, warm_boxes=1)) as driver:
        await driver.loop_box()
        box = await driver.tool_box(workspace(folder))
        await box.call(ToolCall("shell", {"command": command}))
        await driver.wait_warm()
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(work())
"""


def mark() -> str:
    """A number of seconds that no other process on the machine sleeps."""
    return str(10**8 + secrets.randbelow(10**8))


def living(text: str) -> list[int]:
    """The processes that have this text in their command line."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def test_kill_returns_when_everything_is_gone(tmp_path: Path) -> None:
    seconds = mark()

    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            box = await driver.tool_box(workspace(tmp_path))
            await box.call(ToolCall("shell", {"command": STUBBORN.format(mark=seconds)}))
            assert len(living(f"sleep\0{seconds}")) >= 6
            await box.kill()
            assert living(seconds) == []

    run(work())


def test_a_command_still_running_is_gone_with_the_box(tmp_path: Path) -> None:
    seconds = mark()

    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            box = await driver.tool_box(workspace(tmp_path))
            call = asyncio.create_task(box.call(ToolCall("shell", {"command": f"touch begun; sleep {seconds}"})))
            async with asyncio.timeout(DEADLINE_S):
                while not (tmp_path / "workspace" / "begun").exists():
                    await asyncio.sleep(0.01)
            await box.kill()
            assert living(seconds) == []
            with pytest.raises(BoxLost):
                await call

    run(work())


def test_a_box_whose_outer_process_is_killed_is_lost_and_gone(tmp_path: Path) -> None:
    seconds = mark()
    stay = f"subprocess.Popen(['sleep', '{seconds}'], start_new_session=True)"

    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path, f"{PRELUDE}\n{stay}\nsubmit('begun'); input()")) as driver:
            box = await driver.loop_box()
            await box.receive()
            (outer,) = [pid for pid in living(stay) if _parent_of(pid) == os.getpid()]
            os.kill(outer, signal.SIGKILL)
            with pytest.raises(BoxLost):
                await box.receive()
            assert living(seconds) == []

    run(work())


def test_nothing_is_left_of_an_owner_that_was_killed(tmp_path: Path) -> None:
    seconds = mark()
    command = [sys.executable, "-c", OWNER, str(tmp_path), STUBBORN.format(mark=seconds)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert "ready\n" in iter(owner.stdout.readline, "")
        assert living(f"sleep\0{seconds}")
        assert len(living(READY)) >= 2
        owner.kill()
    _wait_until_gone(f"sleep\0{seconds}")
    left = list((tmp_path / "state").iterdir())
    assert left

    async def next_owner() -> None:
        async with running(BwrapDriver, settings(tmp_path)):
            assert not any(path.exists() for path in left)

    run(next_owner())


def test_a_living_owners_sockets_are_not_swept(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            running(BwrapDriver, settings(tmp_path)) as one,
            running(BwrapDriver, settings(tmp_path)) as two,
        ):
            boxes = [await one.loop_box(), await two.loop_box()]
            async with running(BwrapDriver, settings(tmp_path)):
                assert all(box.socket_dir.is_dir() for box in boxes)

    run(work())


def test_descriptors_do_not_pile_up(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            await (await driver.loop_box()).kill()
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(5):
                await (await driver.loop_box()).kill()
            await asyncio.sleep(0)
            assert len(os.listdir("/proc/self/fd")) <= before

    run(work())


def _wait_until_gone(text: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while living(text):
        assert time.monotonic() < deadline, "processes were left"
        time.sleep(0.01)


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
