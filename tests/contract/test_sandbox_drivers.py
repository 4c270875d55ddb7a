"""What every sandbox driver owes the worker, on each driver. What only a real box owes is in the integration tests."""

import asyncio
import tracemalloc
from pathlib import Path

import pytest
from tests.unit.sandbox.box_parts import (
    ECHO,
    PRELUDE,
    READY,
    DriverClass,
    harness,
    run,
    running,
    settings,
    workspace,
)

from turnkeeper.sandbox import box_process, stdio_boxes
from turnkeeper.sandbox.boxes import (
    MAX_OUTPUT_BYTES,
    BoxLimits,
    BoxLost,
    HostPath,
    LoopBox,
    LoopBoxOrder,
    SandboxUnavailable,
    SharedWorkspace,
    ToolBoxOrder,
    ToolCall,
    ToolOutcome,
    WorkspaceRefused,
)
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.protocol import MAX_FRAME_BYTES, Cancel, Done, HarnessProtocolError, Start, Submit
from turnkeeper.sandbox.tools import TOOLS
from turnkeeper.sandbox.unsafe_none import UnsafeNoneDriver

pytestmark = pytest.mark.sandbox

DEADLINE_S = 30


@pytest.fixture(params=[BwrapDriver, UnsafeNoneDriver], ids=["bwrap", "none"])
def driver_class(request: pytest.FixtureRequest) -> DriverClass:
    made: DriverClass = request.param
    return made


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_process, "SEND_TIMEOUT_MS", 300)
    monkeypatch.setattr(stdio_boxes, "ANSWER_GRACE_MS", 300)


def call(driver_class: DriverClass, folder: Path, *calls: ToolCall) -> list[ToolOutcome]:
    """The outcomes of these calls, in one tool box on an empty workspace."""

    async def work() -> list[ToolOutcome]:
        async with running(driver_class, settings(folder)) as driver:
            box = await driver.tool_box(workspace(folder))
            return [await box.call(one) for one in calls]

    return run(work())


def test_a_loop_box_is_ready_and_answers_frames(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path)) as driver:
            box = await driver.loop_box()
            await box.send(Cancel(5))
            assert await box.receive() == Submit("cancel")
            assert (box.ready.harness, box.warm, box.sandbox_id[:4]) == ("script", False, "sbx_")

    run(work())


def test_an_ordered_loop_box_runs_its_own_command_with_its_variables(driver_class: DriverClass, tmp_path: Path) -> None:
    script = PRELUDE + "submit(os.environ['WHO'])\nsys.stdin.read()\n"

    async def work() -> None:
        async with running(driver_class, settings(tmp_path)) as driver:
            box = await driver.loop_box(LoopBoxOrder(harness(script), environment={"WHO": "me"}))
            assert (await box.receive(), box.warm) == (Submit("me"), False)

    run(work())


def test_a_loop_box_that_shares_a_workspace_is_a_real_box_or_none(driver_class: DriverClass, tmp_path: Path) -> None:
    script = PRELUDE + "open('made', 'w').close()\nsubmit(open('/etc/told').read())\nsys.stdin.read()\n"
    shared = workspace(tmp_path)
    order = LoopBoxOrder(harness(script), files={Path("/etc/told"): b"settings"}, workspace=SharedWorkspace(shared))

    async def work() -> None:
        async with running(driver_class, settings(tmp_path)) as driver:
            if driver_class is UnsafeNoneDriver:
                with pytest.raises(SandboxUnavailable):
                    await driver.loop_box(order)
                return
            box = await driver.loop_box(order)
            assert await box.receive() == Submit("settings")
            with pytest.raises(WorkspaceRefused):
                await driver.tool_box(shared)
            await box.kill()
            await (await driver.tool_box(shared)).kill()

    run(work())
    assert (driver_class is UnsafeNoneDriver) != (shared / "made").exists()


def test_the_files_of_an_ordered_box_cannot_be_changed_inside(tmp_path: Path) -> None:
    attempts = ("open('/etc/told', 'w')", "os.remove('/etc/told')", "os.rename('/etc/told', '/etc/other')")
    script = PRELUDE + "".join(
        f"try:\n    {attempt}\n    submit('done')\nexcept OSError:\n    submit('refused')\n" for attempt in attempts
    )

    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            order = LoopBoxOrder(harness(script + "sys.stdin.read()\n"), files={Path("/etc/told"): b"settings"})
            box = await driver.loop_box(order)
            assert [await box.receive() for _ in attempts] == [Submit("refused")] * len(attempts)

    run(work())


def test_the_gateway_socket_can_be_reached_from_the_loop_box(driver_class: DriverClass, tmp_path: Path) -> None:
    script = """
path = json.loads(sys.stdin.readline())["gateway_socket"]
client = socket.socket(socket.AF_UNIX)
client.connect(path)
submit(client.recv(100).decode())
"""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async def work() -> None:
        async with running(driver_class, settings(tmp_path, PRELUDE + script)) as driver:
            box = await driver.loop_box()
            path = box.socket_dir / "gateway.sock"
            server = await asyncio.start_unix_server(greet, path)
            path.chmod(0o666)
            async with server:
                await box.send(_start(box.gateway_socket))
                assert await box.receive() == Submit("hello")

    run(work())


def test_a_warm_box_is_handed_out_once_and_replaced(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path, warm_boxes=2)) as driver:
            await driver.wait_warm(2)
            first = await driver.loop_box()
            second = await driver.loop_box()
            await driver.wait_warm(2)
            third = await driver.loop_box()
            assert first.warm
            assert second.warm
            assert len({first.sandbox_id, second.sandbox_id, third.sandbox_id}) == 3

    run(work())


def test_without_a_warm_box_a_cold_one_is_started(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path, warm_boxes=1)) as driver:
            boxes = await asyncio.gather(*(driver.loop_box() for _ in range(3)))
            assert len({box.sandbox_id for box in boxes}) == 3
            assert not any(box.warm for box in boxes)

    run(work())


def test_a_warm_box_that_dies_is_replaced(driver_class: DriverClass, tmp_path: Path) -> None:
    # The first box leaves as soon as something is in its socket folder; the second finds the folder empty.
    folder = "/run/gateway" if driver_class is BwrapDriver else "."
    script = f"import time\nwhile not os.listdir({folder!r}): time.sleep(0.01)"

    async def work() -> None:
        async with running(driver_class, settings(tmp_path, PRELUDE + script, warm_boxes=1)) as driver:
            await driver.wait_warm(1)
            (first,) = (tmp_path / "state").glob("*/*")
            (first / "leave").touch()
            async with asyncio.timeout(30):
                while first.exists():
                    await asyncio.sleep(0.01)
            await driver.wait_warm(1)
            box = await driver.loop_box()
            assert box.warm
            assert box.socket_dir != first

    run(work())


def test_kill_ends_the_box_and_may_be_repeated(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path)) as driver:
            box = await driver.loop_box()
            await asyncio.gather(box.kill(), box.kill())
            await box.kill()
            assert not box.socket_dir.exists()
            with pytest.raises(BoxLost):
                await box.receive()
            with pytest.raises(BoxLost):
                await box.send(Done())

    run(work())


def test_a_harness_that_leaves_is_a_lost_box_with_its_last_words(driver_class: DriverClass, tmp_path: Path) -> None:
    script = PRELUDE + "sys.stdin.readline(); sys.exit('out of luck')"

    async def work() -> None:
        async with running(driver_class, settings(tmp_path, script)) as driver:
            box = await driver.loop_box()
            await box.send(Done())
            with pytest.raises(BoxLost):
                await box.receive()
            assert box.diagnostics == "out of luck"

    run(work())


@pytest.mark.parametrize(
    "hostile",
    [
        "out('not json')",
        'out(\'{"type":"start"}\')',
        "os.write(1, b'\\xff\\xfe\\n')",
        "out('[' * 1000000)",
        "chunk = b'a' * (1 << 20)\nfor _ in range(1024): os.write(1, chunk)",
        'line = b\'{"type":"submit","value":"\' + b\'a\' * 1000000 + b\'"}\\n\'\nwhile True: os.write(1, line)',
    ],
    ids=["text", "workers_frame", "bytes", "brackets", "gigabyte_line", "endless_frames"],
)
def test_a_hostile_harness_is_a_protocol_error_and_gone(
    driver_class: DriverClass, tmp_path: Path, hostile: str
) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path, f"{PRELUDE}\n{hostile}\nsys.stdin.read()")) as driver:
            box = await driver.loop_box()
            with pytest.raises(HarnessProtocolError):
                await _receive_all(box)
            assert not box.socket_dir.exists()

    run(work())


def test_a_gigabyte_without_a_newline_costs_little_memory(driver_class: DriverClass, tmp_path: Path) -> None:
    script = PRELUDE + "chunk = b'a' * (1 << 20)\nfor _ in range(1024): os.write(1, chunk); os.write(2, chunk)"

    async def work() -> None:
        async with running(driver_class, settings(tmp_path, script)) as driver:
            box = await driver.loop_box()
            tracemalloc.start()
            try:
                with pytest.raises(HarnessProtocolError):
                    await box.receive()
                peak_bytes = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert peak_bytes < 24 << 20

    run(work())


def test_a_harness_that_does_not_read_is_lost(driver_class: DriverClass, tmp_path: Path, short_patience: None) -> None:
    script = PRELUDE + "import time; time.sleep(1000)"

    async def work() -> None:
        async with running(driver_class, settings(tmp_path, script)) as driver:
            box = await driver.loop_box()
            with pytest.raises(BoxLost, match="does not read"):
                await box.send(_start("x" * 1_000_000))

    run(work())


@pytest.mark.parametrize(
    "script",
    [
        "import time; time.sleep(1000)",
        "import sys; sys.exit(3)",
        'print(\'{"type":"started","turn_id":"t"}\', flush=True); input()',
        f"print({READY!r}.replace('}}', ',\"protocol\":99}}'), flush=True); input()",
    ],
    ids=["silent", "exits", "other_frame", "other_version"],
)
def test_a_harness_that_does_not_get_ready_is_unavailable(
    driver_class: DriverClass, tmp_path: Path, script: str
) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path, script, ready_timeout_ms=1000)) as driver:
            with pytest.raises(SandboxUnavailable):
                await driver.loop_box()

    run(work())


def test_a_driver_that_is_not_started_makes_no_box(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path)) as driver:
            pass
        with pytest.raises(SandboxUnavailable):
            await driver.loop_box()

    run(work())


def test_stop_ends_every_box(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path, warm_boxes=1)) as driver:
            loop = await driver.loop_box()
            tools = await driver.tool_box(workspace(tmp_path))
        with pytest.raises(BoxLost):
            await loop.receive()
        with pytest.raises(BoxLost):
            await tools.call(ToolCall("list_files", {}))
        assert list((tmp_path / "state").iterdir()) == []

    run(work())


def test_the_environment_of_a_box_is_not_ours(
    driver_class: DriverClass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "sk-secret")
    (outcome,) = call(driver_class, tmp_path, ToolCall("shell", {"command": "env"}))
    assert "PATH=" in outcome.text
    assert "sk-secret" not in outcome.text


def test_the_shell_works_in_the_workspace(driver_class: DriverClass, tmp_path: Path) -> None:
    command = "echo one > a; echo two >&2; cat a; exit 3"
    (outcome,) = call(driver_class, tmp_path, ToolCall("shell", {"command": command}))
    assert (outcome.status, outcome.text, outcome.exit_status) == ("error", "two\none\n", 3)
    assert (tmp_path / "workspace" / "a").read_text() == "one\n"


def test_files_are_written_read_and_listed(driver_class: DriverClass, tmp_path: Path) -> None:
    wrote, part, listed = call(
        driver_class,
        tmp_path,
        ToolCall("write_file", {"path": "notes/a.txt", "content": "héllo wörld"}),
        ToolCall("read_file", {"path": "notes/a.txt", "offset": 7, "max_bytes": 3}),
        ToolCall("list_files", {"path": "notes"}),
    )
    assert wrote.status == "ok"
    assert (part.text, part.truncated) == ("wö", True)
    assert listed.text == "a.txt (13 bytes)"


def test_output_is_bounded_and_says_so(driver_class: DriverClass, tmp_path: Path) -> None:
    (outcome,) = call(driver_class, tmp_path, ToolCall("shell", {"command": "yes | head -c 50000000; echo end"}))
    assert len(outcome.text.encode()) <= ToolCall("shell", {}).max_output_bytes
    assert outcome.truncated
    assert outcome.text.startswith("y\ny\n")
    assert outcome.text.endswith("end\n")


def test_no_caller_gets_more_than_the_greatest_output(driver_class: DriverClass, tmp_path: Path) -> None:
    greedy = ToolCall("shell", {"command": "head -c 1000000 /dev/zero"}, max_output_bytes=1 << 40)
    (outcome,) = call(driver_class, tmp_path, greedy)
    assert 0 < len(outcome.text.encode()) <= MAX_OUTPUT_BYTES


def test_output_that_is_not_text_is_replaced(driver_class: DriverClass, tmp_path: Path) -> None:
    (outcome,) = call(driver_class, tmp_path, ToolCall("shell", {"command": r"printf 'a\377b'"}))
    assert outcome.text == "a\ufffdb"


def test_a_command_over_its_time_is_killed_with_its_group(driver_class: DriverClass, tmp_path: Path) -> None:
    timed_out, left = call(
        driver_class,
        tmp_path,
        ToolCall("shell", {"command": "echo begun; sleep 7531 | sleep 7531"}, timeout_ms=500),
        ToolCall("shell", {"command": "pgrep -f '^sleep 7531'"}),
    )
    assert (timed_out.status, timed_out.text, timed_out.exit_status) == ("timeout", "begun\n", None)
    assert left.text == ""


def test_the_agents_own_timeout_only_shortens(driver_class: DriverClass, tmp_path: Path) -> None:
    shortened, bounded = call(
        driver_class,
        tmp_path,
        ToolCall("shell", {"command": "sleep 50", "timeout_ms": 100}),
        ToolCall("shell", {"command": "sleep 50", "timeout_ms": 10**9}, timeout_ms=100),
    )
    assert (shortened.status, bounded.status) == ("timeout", "timeout")


def test_a_background_process_lives_from_call_to_call(driver_class: DriverClass, tmp_path: Path) -> None:
    begun, seen = call(
        driver_class,
        tmp_path,
        ToolCall("shell", {"command": "(while echo noise; do sleep 0.01; done) & echo $! > pid"}),
        ToolCall("shell", {"command": "head -c 200000 /dev/zero | wc -c; kill -0 $(cat pid) && echo alive"}),
    )
    assert begun.status == "ok"
    assert seen.text == "200000\nalive\n"


COUNTER = "(i=0; while true; do i=$((i+1)); echo $i > count; sleep 0.01; done) > /dev/null 2>&1 & true"


async def counted(folder: Path) -> int:
    """What the counter has written, once it has written something."""
    async with asyncio.timeout(DEADLINE_S):
        while not (text := (folder / "count").read_text() if (folder / "count").exists() else ""):
            await asyncio.sleep(0.01)
    return int(text)


def test_a_suspended_box_stands_still_with_its_background_processes_and_goes_on(tmp_path: Path) -> None:
    """One that the box had stopped itself stays stopped."""
    folder = workspace(tmp_path)

    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            box = await driver.tool_box(folder)
            await box.call(ToolCall("shell", {"command": f"sleep 1000 & echo $! > pid; kill -STOP $!; {COUNTER}"}))
            await counted(folder)
            assert await box.suspend()
            before = (folder / "count").read_text()
            await asyncio.sleep(0.3)
            assert (folder / "count").read_text() == before
            await box.resume()
            changed = 'while [ "$(cat count)" = "$0" ]; do sleep 0.01; done; cut -d" " -f3 /proc/$(cat pid)/stat'
            seen = await box.call(ToolCall("shell", {"command": f"sh -c '{changed}' '{before.strip()}'"}))
            assert (seen.status, seen.text) == ("ok", "T\n")

    run(work())


def test_a_suspended_box_can_be_ended(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            box = await driver.tool_box(workspace(tmp_path))
            await box.call(ToolCall("shell", {"command": COUNTER}))
            assert await box.suspend()
            await box.kill()

    run(work())


def test_a_box_without_walls_is_not_suspended(tmp_path: Path) -> None:
    """Which processes are its own nobody knows for certain."""

    async def work() -> None:
        async with running(UnsafeNoneDriver, settings(tmp_path)) as driver:
            box = await driver.tool_box(workspace(tmp_path))
            assert not await box.suspend()
            assert (await box.call(ToolCall("shell", {"command": "echo on"}))).text == "on\n"

    run(work())


def test_a_box_that_starts_processes_all_the_time_stands_still_too(tmp_path: Path) -> None:
    folder = workspace(tmp_path)
    bomb = "(while true; do (while true; do /bin/true; done) & sleep 0.05; done) > /dev/null 2>&1 & true"

    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            box = await driver.tool_box(folder)
            await box.call(ToolCall("shell", {"command": f"{COUNTER}; {bomb}"}))
            await counted(folder)
            assert await box.suspend()
            before = (folder / "count").read_text()
            await asyncio.sleep(0.3)
            assert (folder / "count").read_text() == before

    run(work())


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("shell", {}, "command"),
        ("shell", {"command": 5}, "command"),
        ("shell", {"command": "true", "cwd": "/"}, "cwd"),
        ("shell", {"command": "true", "timeout_ms": "5"}, "timeout_ms"),
        ("shell", {"command": "a\0b"}, "command"),
        ("read_file", {"path": ["a"]}, "path"),
        ("read_file", {"path": "a", "offset": -1}, "offset"),
        ("write_file", {"path": "a"}, "content"),
        ("list_files", {"path": None}, "path"),
        ("read_file", {"path": "missing"}, "missing"),
        ("read_file", {"path": "."}, "not a regular file"),
        ("read_file", {"path": "/dev/zero"}, "not a regular file"),
        ("write_file", {"path": "\ud800", "content": "x"}, "surrogates"),
        ("format_disk", {}, "no such tool"),
    ],
)
def test_a_bad_call_is_an_error_that_names_what_was_wrong(
    driver_class: DriverClass, tmp_path: Path, tool: str, arguments: dict[str, object], named: str
) -> None:
    bad, good = call(driver_class, tmp_path, ToolCall(tool, arguments), ToolCall("list_files", {}))
    assert bad.status == "error"
    assert named in bad.text
    assert good.status == "ok"


def test_the_longest_text_a_harness_can_send_is_written(driver_class: DriverClass, tmp_path: Path) -> None:
    content = "\u2603" * (MAX_FRAME_BYTES // 3)
    (written,) = call(driver_class, tmp_path, ToolCall("write_file", {"path": "long", "content": content}))
    assert written.status == "ok"
    assert (tmp_path / "workspace" / "long").read_text() == content


def test_arguments_that_cannot_be_sent_are_an_error_and_the_box_lives(
    driver_class: DriverClass, tmp_path: Path
) -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    calls = [ToolCall("shell", {"command": value}) for value in ("a" * (20 << 20), deep, 10**5000, b"bytes")]
    outcomes = call(driver_class, tmp_path, *calls, ToolCall("list_files", {}))
    assert [outcome.status for outcome in outcomes] == ["error"] * 4 + ["ok"]


def test_reading_a_pipe_does_not_hang(driver_class: DriverClass, tmp_path: Path) -> None:
    _, read, written = call(
        driver_class,
        tmp_path,
        ToolCall("shell", {"command": "mkfifo pipe"}),
        ToolCall("read_file", {"path": "pipe"}),
        ToolCall("write_file", {"path": "pipe", "content": "x"}),
    )
    assert (read.status, written.status) == ("error", "error")


def test_every_tool_that_is_described_exists(driver_class: DriverClass, tmp_path: Path) -> None:
    outcomes = call(driver_class, tmp_path, *(ToolCall(name, {"nonsense": 1}) for name in TOOLS))
    assert all("nonsense" in outcome.text for outcome in outcomes)


def test_calls_at_once_get_their_own_answers(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> list[str]:
        async with running(driver_class, settings(tmp_path)) as driver:
            box = await driver.tool_box(workspace(tmp_path))
            calls = [ToolCall("shell", {"command": f"printf {number}"}) for number in range(5)]
            return [outcome.text for outcome in await asyncio.gather(*map(box.call, calls))]

    assert run(work()) == ["0", "1", "2", "3", "4"]


def test_a_call_given_up_on_takes_the_box_with_it(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path)) as driver:
            box = await driver.tool_box(workspace(tmp_path))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(box.call(ToolCall("shell", {"command": "sleep 1000"})), 0.2)
            with pytest.raises(BoxLost):
                await box.call(ToolCall("list_files", {}))
            await box.kill()

    run(work())


def test_a_tool_box_whose_agent_stops_answering_is_ended(
    driver_class: DriverClass, tmp_path: Path, short_patience: None
) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path)) as driver:
            box = await driver.tool_box(workspace(tmp_path))
            stop_the_agent = ToolCall("shell", {"command": "kill -STOP $PPID; sleep 1000"}, timeout_ms=200)
            outcome = await box.call(stop_the_agent)
            assert outcome.status == "timeout"
            with pytest.raises(BoxLost):
                await box.call(ToolCall("list_files", {}))

    run(work())


def test_a_tool_that_kills_the_agent_is_a_lost_box(driver_class: DriverClass, tmp_path: Path) -> None:
    with pytest.raises(BoxLost):
        call(driver_class, tmp_path, ToolCall("shell", {"command": "kill -9 $PPID; sleep 1000"}))


def test_a_workspace_is_attached_to_one_box_at_a_time(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path)) as driver:
            folder = workspace(tmp_path)
            box = await driver.tool_box(folder)
            with pytest.raises(WorkspaceRefused):
                await driver.tool_box(folder)
            await box.kill()
            again = await driver.tool_box(folder)
            assert (await again.call(ToolCall("list_files", {}))).status == "ok"

    run(work())


@pytest.mark.parametrize("chosen", ["missing", "file", "above_state", "/"])
def test_a_workspace_that_must_not_be_one_is_refused(driver_class: DriverClass, tmp_path: Path, chosen: str) -> None:
    (tmp_path / "file").write_text("x")
    folder = tmp_path if chosen == "above_state" else tmp_path / chosen

    async def work() -> None:
        async with running(driver_class, settings(tmp_path)) as driver:
            with pytest.raises(WorkspaceRefused):
                await driver.tool_box(folder)

    run(work())


def test_a_workspace_around_a_data_folder_with_a_long_path_is_refused(
    driver_class: DriverClass, tmp_path: Path
) -> None:
    deep = tmp_path / ("long" * 40)

    async def work() -> None:
        async with running(driver_class, settings(deep)) as driver:
            with pytest.raises(WorkspaceRefused):
                await driver.tool_box(tmp_path)

    run(work())


def test_limits_hold_inside(driver_class: DriverClass, tmp_path: Path) -> None:
    limits = BoxLimits(memory_bytes=300 << 20, cpu_seconds=77, processes=4000, open_files=99, file_bytes=1 << 20)
    commands = ["ulimit -n; ulimit -t; ulimit -c", "head -c 2000000 /dev/zero > big", "wc -c < big"]

    async def work() -> list[ToolOutcome]:
        async with running(driver_class, settings(tmp_path, tool_limits=limits)) as driver:
            box = await driver.tool_box(workspace(tmp_path))
            return [await box.call(ToolCall("shell", {"command": command})) for command in commands]

    shown, written, size = run(work())
    assert shown.text == "99\n77\n0\n"
    assert written.status == "error"
    assert size.text.strip() == str(1 << 20)


def test_the_kind_is_said_and_a_probe_is_there(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path, ECHO)) as driver:
            results = driver.probe()
            assert driver.kind == ("bwrap" if driver_class is BwrapDriver else "none")
            assert all(result.ok for result in results) == (driver.kind == "bwrap")

    run(work())


async def _receive_all(box: LoopBox) -> None:
    while True:
        await box.receive()


def _start(gateway_socket: str) -> Start:
    return Start("trn_1", 1, "", "", "m", gateway_socket)


def test_one_box_may_have_variables_and_paths_of_its_own(driver_class: DriverClass, tmp_path: Path) -> None:
    (tmp_path / "lent").mkdir()
    (tmp_path / "lent" / "config").write_text("lent")
    shown = tmp_path / "lent"
    order = ToolBoxOrder(environment={"COLOR": "blue"}, read_only=(HostPath(shown, shown),))

    async def work() -> str:
        async with running(driver_class, settings(tmp_path)) as driver:
            box = await driver.tool_box(workspace(tmp_path), order)
            return (await box.call(ToolCall("shell", {"command": f"echo $COLOR; cat {shown}/config"}))).text

    assert run(work()) == "blue\nlent"


def test_a_box_over_its_quota_is_ended_for_that_reason(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path)) as driver:
            box = await driver.tool_box(workspace(tmp_path), ToolBoxOrder(disk_bytes=1 << 20))
            with pytest.raises(BoxLost):
                await box.call(ToolCall("shell", {"command": "head -c 4000000 /dev/zero > big; sleep 60"}))
            await box.kill()
            assert box.end_reason == "quota"

    run(work())


def test_a_box_that_ends_by_itself_or_by_us_has_no_reason(driver_class: DriverClass, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(driver_class, settings(tmp_path)) as driver:
            loop, tools = await driver.loop_box(), await driver.tool_box(workspace(tmp_path))
            await asyncio.gather(loop.kill(), tools.kill())
            assert (loop.end_reason, tools.end_reason) == (None, None)

    run(work())
