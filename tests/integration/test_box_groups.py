"""Control groups on this machine: what they hold, and that none is left. Skipped where none are lent."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.sandbox.box_parts import PRELUDE, running, settings, workspace
from tests.unit.sandbox.box_parts import run as run_within

from turnkeeper.sandbox.boxes import BoxLimits, BoxLost, ToolCall, ToolOutcome
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.cgroups import GROUP_PREFIX, Cgroups, GroupLimits, group_name, open_cgroups, sweep_groups
from turnkeeper.sandbox.protocol import Done

pytestmark = pytest.mark.sandbox

FORK = """
import os, signal
made = []
try:
    for _ in range(60):
        made.append(os.posix_spawn("/bin/sleep", ["sleep", "30"], {}))
except OSError:
    pass
print(len(made))
for pid in made:
    os.kill(pid, signal.SIGKILL)
"""


@pytest.fixture
def cgroups() -> Cgroups:
    found = open_cgroups(settle=False)
    if found.missing:
        pytest.skip(f"this machine lends no control groups: {found.missing}")
    return found


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "86397"]) as process:
        yield process
        process.kill()


def groups_of(cgroups: Cgroups, owner: str) -> list[Path]:
    """The folders that an owner's boxes have."""
    return [path for place in cgroups.places for path in place.path.glob(f"{GROUP_PREFIX}.{owner}.*")]


def in_tool_box(folder: Path, limits: BoxLimits, *commands: str) -> list[ToolOutcome]:
    """What became of these commands, one after the other."""

    async def work() -> list[ToolOutcome]:
        async with running(BwrapDriver, settings(folder, tool_limits=limits)) as driver:
            box = await driver.tool_box(workspace(folder))
            return [await box.call(ToolCall("shell", {"command": command})) for command in commands]

    return run_within(work())


def python(code: str) -> str:
    """A command that runs this code with the box's interpreter."""
    return f"{Path(sys.base_prefix) / 'bin' / 'python3'} -I -S -c {shlex.quote(code)}"


def test_a_group_that_is_removed_had_its_processes_ended(cgroups: Cgroups, sleeper: "subprocess.Popen[bytes]") -> None:
    group = cgroups.make(group_name(f"t{os.getpid()}", 1), GroupLimits(64 << 20, 20, 1000))
    group.attach(sleeper.pid)
    while not group.end():
        assert sleeper.wait(20) == -signal.SIGKILL
    assert groups_of(cgroups, f"t{os.getpid()}") == []


def test_what_a_dead_owner_left_is_ended_and_removed(cgroups: Cgroups, sleeper: "subprocess.Popen[bytes]") -> None:
    owner = f"d{os.getpid()}"
    cgroups.make(group_name(owner, 1), GroupLimits(64 << 20, 20)).attach(sleeper.pid)
    assert sweep_groups([place.path for place in cgroups.places], owner) == len(cgroups.places)
    assert sleeper.wait(20) == -signal.SIGKILL
    assert groups_of(cgroups, owner) == []


def test_the_memory_of_a_box_is_one_whatever_its_processes_are(cgroups: Cgroups, tmp_path: Path) -> None:
    # Each of them stays far below its own address space.
    hoard = python("import time; kept = b'x' * (40 << 20); time.sleep(20)")
    limits = BoxLimits(box_memory_bytes=96 << 20, cpu_millis=None)
    (outcome,) = in_tool_box(tmp_path, limits, f"for i in 1 2 3 4; do {hoard} & done; wait -n; echo status $?")
    assert "status 137" in outcome.text
    assert outcome.status == "error"
    assert "96 MiB" in outcome.text


def test_the_temporary_folder_counts_as_memory(cgroups: Cgroups, tmp_path: Path) -> None:
    limits = BoxLimits(box_memory_bytes=64 << 20, tmp_bytes=256 << 20, cpu_millis=None)
    fill = ToolCall("shell", {"command": "head -c 200000000 /dev/zero > /tmp/big"})

    async def work() -> str | None:
        async with running(BwrapDriver, settings(tmp_path, tool_limits=limits)) as driver:
            box = await driver.tool_box(workspace(tmp_path))
            try:
                return (await box.call(fill)).text
            except BoxLost:
                # What lies in /tmp stays when its writer has ended, and then the agent's memory is short as well.
                return box.end_reason

    told = run_within(work())
    assert told is not None
    assert told == "oom" or "64 MiB" in told


def test_a_box_lives_on_after_a_tool_ran_out_of_memory(cgroups: Cgroups, tmp_path: Path) -> None:
    limits = BoxLimits(box_memory_bytes=64 << 20, cpu_millis=None)
    first, second = in_tool_box(tmp_path, limits, python("b'x' * (200 << 20)"), "echo still here")
    assert first.status == "error"
    assert (second.status, second.text) == ("ok", "still here\n")


def test_a_harness_that_ran_out_of_memory_is_lost_for_that_reason(cgroups: Cgroups, tmp_path: Path) -> None:
    script = f"{PRELUDE}\nsys.stdin.readline()\nhoard = b'x' * (200 << 20)\nsys.stdin.read()"

    async def work() -> None:
        limits = BoxLimits(box_memory_bytes=64 << 20)
        async with running(BwrapDriver, settings(tmp_path, script, loop_limits=limits)) as driver:
            box = await driver.loop_box()
            await box.send(Done())
            with pytest.raises(BoxLost):
                await box.receive()
            assert box.end_reason == "oom"

    run_within(work())


def test_processes_are_counted_for_the_whole_box(cgroups: Cgroups, tmp_path: Path) -> None:
    limits = BoxLimits(processes=30)
    (outcome,) = in_tool_box(tmp_path, limits, python(FORK))
    assert 5 < int(outcome.text) < 30


def test_a_stopped_driver_leaves_no_group(cgroups: Cgroups, tmp_path: Path) -> None:
    async def work() -> str:
        async with running(BwrapDriver, settings(tmp_path, warm_boxes=1)) as driver:
            await driver.tool_box(workspace(tmp_path))
            await driver.wait_warm()
            (owner,) = [path.stem for path in (tmp_path / "state").glob("*.groups")]
            assert len(groups_of(cgroups, owner)) == 2 * len(cgroups.places)
            return owner

    assert groups_of(cgroups, run_within(work())) == []


def test_the_next_start_removes_the_groups_of_a_killed_owner(cgroups: Cgroups, tmp_path: Path) -> None:
    owner = "deadbeef"
    cgroups.make(group_name(owner, 7), GroupLimits(64 << 20, 20))
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / f"{owner}.lock").touch()
    (tmp_path / "state" / f"{owner}.groups").write_text("".join(f"{place.path}\n" for place in cgroups.places))

    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path)):
            await asyncio.sleep(0)

    run_within(work())
    assert groups_of(cgroups, owner) == []
