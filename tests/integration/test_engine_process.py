"""Any program that speaks the engines' protocol: bounded in time, memory and patience, and started again by itself."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from turnkeeper.policy.hosted import EngineUnavailable
from turnkeeper.wiring import engine_process
from turnkeeper.wiring.engine_process import EngineProcess

PATIENCE_S = 60
# What a host in any language has to do, and ways of not doing it.
HOST = """
import json, sys
ready = json.loads(sys.stdin.readline())
print(json.dumps({"ready": len(ready)}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    number, wish = question["number"], question.get("wish")
    if wish == "hang":
        continue
    if wish == "end":
        sys.exit(1)
    if wish == "memory":
        try:
            hoard = bytearray(4 << 30)
        except MemoryError:
            print(json.dumps({"number": number, "fault": "MemoryError"}), flush=True)
            continue
    if wish in ("text", "list", "another"):
        print({"text": "no JSON", "list": "[]", "another": json.dumps({"number": number + 1})}[wish], flush=True)
        continue
    print(json.dumps({"number": number, "said": question.get("say")}), flush=True)
"""


def talking(
    folder: Path,
    talk: Callable[[EngineProcess], Awaitable[None]],
    *,
    deadline_ms: int = 20_000,
    memory_bytes: int = engine_process.MEMORY_BYTES,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Runs some talk with a host process."""
    script = folder / "host.py"
    script.write_text(HOST)

    async def main() -> None:
        link = EngineProcess(
            (sys.executable, "-I", str(script)),
            {"a": 1},
            deadline_ms=deadline_ms,
            memory_bytes=memory_bytes,
            sleep=sleep,
        )
        async with asyncio.timeout(PATIENCE_S):
            try:
                await link.start()
                await talk(link)
            finally:
                await link.stop()

    asyncio.run(main())


async def unanswered(link: EngineProcess, **question: object) -> str:
    """The code with which a question remains without an answer."""
    with pytest.raises(EngineUnavailable) as caught:
        await link.ask(question)
    return caught.value.error_code


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ("text", "engine_answer_invalid"),
        ("list", "engine_answer_invalid"),
        ("another", "engine_answer_invalid"),
        ("end", "engine_unavailable"),
    ],
)
def test_what_is_no_answer_ends_the_process_and_the_next_question_is_answered_by_another(
    tmp_path: Path, wish: str, code: str
) -> None:
    async def talk(link: EngineProcess) -> None:
        first = link.pid
        assert await unanswered(link, wish=wish) == code
        assert await link.ask({"say": 1}) == {"said": 1}
        assert link.pid not in (None, first)

    talking(tmp_path, talk)


def test_an_idle_process_that_dies_is_started_again_without_being_asked(tmp_path: Path) -> None:
    async def talk(link: EngineProcess) -> None:
        first = link.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        while link.pid in (None, first):
            await asyncio.sleep(0.01)
        assert await link.ask({"say": 1}) == {"said": 1}

    talking(tmp_path, talk)


def test_a_process_gets_no_more_memory_than_it_was_given(tmp_path: Path) -> None:
    async def talk(link: EngineProcess) -> None:
        assert await link.ask({"wish": "memory"}) == {"fault": "MemoryError"}
        assert await link.ask({"say": 1}) == {"said": 1}

    talking(tmp_path, talk, memory_bytes=1 << 30)


def test_who_waits_behind_a_question_that_hangs_is_told_that_the_engine_is_busy(tmp_path: Path) -> None:
    async def talk(link: EngineProcess) -> None:
        codes = await asyncio.gather(*(unanswered(link, wish="hang") for _ in range(3)))
        assert codes[0] == "engine_timeout"
        assert set(codes[1:]) <= {"engine_overloaded", "engine_timeout", "engine_unavailable"}
        assert await link.ask({"say": 1}) == {"said": 1}

    talking(tmp_path, talk, deadline_ms=1_000)


def test_more_questions_than_may_wait_are_refused_at_once(tmp_path: Path) -> None:
    async def talk(link: EngineProcess) -> None:
        pid = link.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        waiting = [asyncio.ensure_future(link.ask({"say": say})) for say in range(engine_process.MAX_ASKING)]
        await asyncio.sleep(0)
        assert await unanswered(link, say="one more") == "engine_overloaded"
        os.kill(pid, signal.SIGCONT)
        assert [one["said"] for one in await asyncio.gather(*waiting)] == list(range(engine_process.MAX_ASKING))

    talking(tmp_path, talk)


def test_the_answer_to_a_question_that_was_given_up_is_nobodys(tmp_path: Path) -> None:
    async def talk(link: EngineProcess) -> None:
        pid = link.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        given_up = asyncio.ensure_future(link.ask({"say": "first"}))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        second = asyncio.ensure_future(link.ask({"say": "second"}))
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGCONT)
        assert await second == {"said": "second"}
        assert link.pid == pid

    talking(tmp_path, talk)


def test_a_process_that_ends_again_and_again_is_started_ever_more_rarely_until_it_answers(tmp_path: Path) -> None:
    pauses = list[float]()

    async def noted(seconds: float) -> None:
        pauses.append(seconds)

    async def talk(link: EngineProcess) -> None:
        for _ in range(9):
            assert await unanswered(link, wish="end") == "engine_unavailable"
        assert await link.ask({"say": 1}) == {"said": 1}
        assert await unanswered(link, wish="end") == "engine_unavailable"
        assert await link.ask({"say": 1}) == {"said": 1}
        assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 0.1]

    talking(tmp_path, talk, sleep=noted)


def test_a_program_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    async def main() -> None:
        link = EngineProcess((str(tmp_path / "opa"),), {}, deadline_ms=1_000)
        with pytest.raises(EngineUnavailable):
            await link.start()
        await link.stop()

    asyncio.run(main())


def test_whoever_asks_once_it_was_stopped_gets_no_process(tmp_path: Path) -> None:
    async def talk(link: EngineProcess) -> None:
        await link.stop()
        assert await unanswered(link, say=1) == "engine_unavailable"
        assert link.pid is None

    talking(tmp_path, talk)
