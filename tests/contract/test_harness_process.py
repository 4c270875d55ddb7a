"""The harness as a program: `python -I -m turnkeeper.harness`, as a box starts it."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.contract.gateway_rig import gateway_rig
from tests.contract.harness_rig import (
    DEADLINE_S,
    SHELL,
    Worker,
    converse,
    harness_process,
    side_of,
    start_frame,
)

from turnkeeper import __version__
from turnkeeper.sandbox.protocol import Cancel, Canceled, Ready
from turnkeeper.testing.scripted_model import ScriptedAnswer, ScriptedCall

LONG_MS = 60_000


def output_of(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )


def test_a_whole_turn_in_a_process_of_its_own(tmp_path: Path) -> None:
    script = [
        ScriptedAnswer(tool_calls=(ScriptedCall("shell", '{"command":"ls"}'),)),
        ScriptedAnswer(tool_calls=(ScriptedCall("submit_result", '{"value":1}'),)),
        ScriptedAnswer(text="done"),
    ]

    async def main() -> Worker:
        worker = Worker()
        async with gateway_rig(tmp_path, script) as rig:
            process = await harness_process()
            side = side_of(process)
            await side.send(start_frame(rig.handle.path, tools=[SHELL], output_schema='{"type": "integer"}'))
            await converse(side, worker)
            worker.exit_status = await asyncio.wait_for(process.wait(), DEADLINE_S)
        return worker

    worker = asyncio.run(main())

    assert worker.frames[0] == Ready("turnkeeper", __version__)
    assert (worker.requests[0].name, worker.report.result, worker.report.text) == ("shell", "1", "done")
    assert worker.exit_status == 0


def test_a_cancel_ends_the_process(tmp_path: Path) -> None:
    async def main() -> None:
        worker = Worker()
        async with gateway_rig(tmp_path, [ScriptedAnswer(delay_ms=LONG_MS)]) as rig:
            process = await harness_process()
            side = side_of(process)
            await side.send(start_frame(rig.handle.path))
            conversing = asyncio.ensure_future(converse(side, worker))
            await rig.model.wait_until(lambda: len(rig.model.requests) == 1, timeout_ms=DEADLINE_S * 1000)
            await side.send(Cancel(grace_ms=5_000))
            await conversing
            assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0
        assert worker.frames[-1] == Canceled("")

    asyncio.run(main())


def test_the_process_ends_when_nobody_listens() -> None:
    async def main() -> int:
        process = await harness_process(stderr=asyncio.subprocess.DEVNULL)
        assert process.stdin is not None
        process.stdin.close()
        return await asyncio.wait_for(process.wait(), DEADLINE_S)

    assert asyncio.run(main()) == 0


def test_prints_do_not_reach_the_frames() -> None:
    done = output_of(
        "import os, sys\n"
        "from turnkeeper.harness.hardening import claim_frame_pipes\n"
        "pipes = claim_frame_pipes()\n"
        "print('noise'); sys.stdout.flush(); os.write(1, b'more'); os.system('echo child')\n"
        "os.write(pipes.frames_out, b'frame')\n"
    )

    assert done.stdout == "frame"
    assert all(word in done.stderr for word in ("noise", "more", "child"))


def test_the_frames_cannot_be_read_from_standard_input() -> None:
    program = (
        "import os, sys\n"
        "from turnkeeper.harness.hardening import claim_frame_pipes\n"
        "pipes = claim_frame_pipes()\n"
        "assert sys.stdin.read() == '' and os.read(0, 9) == b''\n"
        "assert os.read(pipes.frames_in, 9) == b'a frame'\n"
    )
    subprocess.run([sys.executable, "-I", "-c", program], input=b"a frame", check=True, timeout=DEADLINE_S)


def test_the_process_cannot_be_dumped() -> None:
    get_dumpable = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"

    before = output_of(get_dumpable).stdout.strip()
    after = output_of(
        f"from turnkeeper.harness.hardening import forbid_dumping; forbid_dumping(); {get_dumpable}"
    ).stdout.strip()

    assert (before, after) == ("1", "0")


def test_the_program_is_closed_before_it_loads_anything_large() -> None:
    done = output_of(
        "import runpy, sys\n"
        "seen = []\n"
        "import turnkeeper.harness.hardening as hardening\n"
        "hardening.forbid_dumping = lambda: seen.append('pydantic_ai' in sys.modules)\n"
        "hardening.claim_frame_pipes = lambda: seen.append('pydantic_ai' in sys.modules)\n"
        "runpy.run_module('turnkeeper.harness.__main__', run_name='not_main')\n"
        "print(seen)\n"
    )

    assert done.stdout.strip() == "[False, False]"


def test_little_of_the_platform_is_inside_the_box() -> None:
    done = output_of(
        "import sys, turnkeeper.harness.loop, turnkeeper.harness.rehearsal\n"
        "print(*sorted(name for name in sys.modules if name.startswith('turnkeeper')))\n"
    )

    allowed = ("turnkeeper.harness", "turnkeeper.acs", "turnkeeper.sandbox.protocol", "turnkeeper.errors")
    loaded = set(done.stdout.split()) - {"turnkeeper", "turnkeeper.sandbox"}
    assert {name for name in loaded if not name.startswith(allowed)} == set()
