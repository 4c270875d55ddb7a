import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest
from tests.unit.sandbox.box_parts import run

from turnkeeper.sandbox import box_process
from turnkeeper.sandbox.box_process import DIAGNOSTICS_BYTES, BoxProcess, Launch, LineTooLong
from turnkeeper.sandbox.boxes import BoxLost, SandboxUnavailable


def shell(script: str, gone: list[str] | None = None) -> Launch:
    """A process that stands for a box."""
    return Launch(("sh", "-c", script), "/bin/sh", release=lambda: (gone if gone is not None else []).append("gone"))


def test_lines_come_as_they_were_written() -> None:
    async def work() -> None:
        box = await BoxProcess.spawn(shell("exec cat"), max_line_bytes=100)
        await box.write(b"one\ntwo\n")
        assert [await box.read_line(), await box.read_line()] == [b"one\n", b"two\n"]
        await box.kill()

    run(work())


def test_a_line_over_the_limit_ends_the_box() -> None:
    async def work() -> None:
        box = await BoxProcess.spawn(shell("exec head -c 1000000 /dev/zero"), max_line_bytes=100)
        with pytest.raises(LineTooLong):
            await box.read_line()
        assert not box.is_alive
        await box.kill()

    run(work())


def test_a_line_without_an_end_is_a_lost_box() -> None:
    async def work() -> None:
        box = await BoxProcess.spawn(shell("printf half"), max_line_bytes=100)
        with pytest.raises(BoxLost, match="middle"):
            await box.read_line()
        await box.kill()

    run(work())


def test_only_the_end_of_a_stderr_is_kept() -> None:
    async def work() -> None:
        box = await BoxProcess.spawn(shell("seq 100000 >&2; echo done"), max_line_bytes=100)
        await box.read_line()
        await box.ended()
        await box.kill()
        assert len(box.diagnostics) <= DIAGNOSTICS_BYTES
        assert box.diagnostics.endswith("100000")

    run(work())


def test_last_words_are_kept_when_the_box_ends_at_once() -> None:
    async def work() -> list[str]:
        said: list[str] = []
        for _ in range(20):
            box = await BoxProcess.spawn(shell("echo last words >&2"), max_line_bytes=100)
            with pytest.raises(BoxLost):
                await box.read_line()
            await box.kill()
            said.append(box.diagnostics)
        return said

    assert run(work()) == ["last words"] * 20


@pytest.mark.parametrize(
    ("script", "said"),
    [("sys.exit('no namespaces')", "no namespaces"), ("os.close(int(sys.argv[1])); time.sleep(1000)", "in time")],
    ids=["refuses", "hangs"],
)
def test_a_bubblewrap_that_does_not_start_says_why_within_its_time(
    monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    monkeypatch.setattr(box_process, "START_TIMEOUT_MS", 300 if said == "in time" else 10_000)
    reading, writing = os.pipe()
    argv = (sys.executable, "-I", "-S", "-c", f"import os, sys, time; {script}", str(writing))
    info = os.fdopen(reading, "rb", buffering=0)
    with pytest.raises(SandboxUnavailable, match=said):
        run(BoxProcess.spawn(Launch(argv, sys.executable, fds=(writing,), info=info), max_line_bytes=100))


def test_a_stderr_that_never_stops_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_process, "MAX_STDERR_BYTES", 1 << 20)

    async def work() -> None:
        box = await BoxProcess.spawn(shell("yes >&2; echo stopped"), max_line_bytes=100)
        assert await box.read_line() == b"stopped\n"
        await box.kill()

    run(work())


def test_the_end_is_told_once() -> None:
    gone: list[str] = []

    async def work() -> None:
        box = await BoxProcess.spawn(shell("exec sleep 1000", gone), max_line_bytes=100)
        await asyncio.gather(box.kill(), box.kill())
        await box.kill()

    run(work())
    assert gone == ["gone"]


def test_a_kill_that_was_given_up_on_still_happens() -> None:
    gone: list[str] = []

    async def work() -> None:
        box = await BoxProcess.spawn(shell("exec sleep 1000", gone), max_line_bytes=100)
        killing = asyncio.create_task(box.kill())
        await asyncio.sleep(0)
        killing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await killing
        await box.kill()

    run(work())
    assert gone == ["gone"]


def test_a_start_that_is_given_up_on_leaves_no_descriptor() -> None:
    async def work() -> list[str]:
        before = os.listdir("/proc/self/fd")
        for steps in range(12):
            starting = asyncio.create_task(BoxProcess.spawn(shell("exec sleep 1000"), max_line_bytes=100))
            for _ in range(steps):
                await asyncio.sleep(0)
            starting.cancel()
            box = (await asyncio.gather(starting, return_exceptions=True))[0]
            if isinstance(box, BoxProcess):
                await box.kill()
        await asyncio.sleep(0)
        return sorted(set(os.listdir("/proc/self/fd")) - set(before))

    assert run(work()) == []


def test_a_program_that_is_not_there_is_unavailable_and_released(tmp_path: Path) -> None:
    gone: list[str] = []
    launch = Launch(("x",), str(tmp_path / "x"), release=lambda: gone.append("gone"))
    with pytest.raises(SandboxUnavailable, match="cannot be started"):
        run(BoxProcess.spawn(launch, max_line_bytes=100))
    assert gone == ["gone"]


def test_writing_to_a_box_that_left_is_a_lost_box() -> None:
    async def work() -> None:
        box = await BoxProcess.spawn(shell("exit 0"), max_line_bytes=100)
        await box.ended()
        with pytest.raises(BoxLost):
            await box.write(b"hello\n")
        await box.kill()

    run(work())
