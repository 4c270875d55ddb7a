"""What a running agent writes, shown before the Guardian's word only where its agent says so (contract 11)."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
from tests.unit.turns.rig import DEADLINE_S, Rig, rig

from turnkeeper.sandbox.protocol import ResponseDenied, Start, TextDelta, ToolRequest
from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.testing.scripted_guardian import deny
from turnkeeper.turns import payloads
from turnkeeper.turns.model import Turn
from turnkeeper.turns.open_texts import OpenText, text_topic


async def seen(made: Rig, session_id: str, whole: str) -> OpenText:
    """The open message of the session once it says so."""
    texts = made.bench.texts
    assert texts is not None
    async with asyncio.timeout(DEADLINE_S):
        with made.wakeups.watch(text_topic(session_id)) as watch:
            while True:
                for text in texts.of_session(session_id):
                    if text.text == whole:
                        return text
                await watch.wait(timeout_ms=500)


async def data_of(made: Rig, turn: Turn, event_type: str) -> list[Any]:
    return [orjson.loads(event.data) for event in await made.events(turn) if event.type == event_type]


def test_a_message_is_shown_while_it_is_written_and_completed_under_its_id(tmp_path: Path) -> None:
    async def main() -> None:
        said = asyncio.Event()

        async def run(harness: ScriptedHarness) -> None:
            start = await harness.begin()
            assert start.stream
            for piece in ("Hel", "lo"):
                harness.send(TextDelta(1, piece))
            await said.wait()
            await harness.report("Hello")

        async with rig(tmp_path, run) as made:
            made.streamed = True
            session = await made.session()
            turn_id = await made.post(session)
            shown = await seen(made, session.id, "Hello")
            said.set()
            turn = await made.ended(turn_id)
            (started,), (completed,) = [
                await data_of(made, turn, f"message.{word}") for word in ("started", "completed")
            ]
            assert shown.message_id == started["message_id"] == completed["message_id"]
            assert made.bench.texts is not None
            assert made.bench.texts.of_session(session.id) == ()

    asyncio.run(main())


def test_nothing_is_shown_of_an_agent_that_does_not_ask_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        starts: list[Start] = []

        async def run(harness: ScriptedHarness) -> None:
            starts.append(await harness.begin())
            harness.send(TextDelta(1, "secret"))
            await harness.report("fine")

        async with rig(tmp_path, run) as made:
            turn = await made.run_turn()
            assert [start.stream for start in starts] == [False]
            assert turn.status.value == "completed"
            shown = [name for name in await made.types(turn) if name.startswith("message.")]
            assert shown == ["message.received", "message.started", "message.completed"]

    asyncio.run(main())


def test_a_text_before_a_tool_call_ends_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            harness.send(TextDelta(1, "let me look"))
            await harness.ask(ToolRequest("call_1", "shell", '{"command":"ls"}'))
            harness.send(TextDelta(2, "done"))
            await harness.report("done")

        async with rig(tmp_path, run) as made:
            made.streamed = True
            turn = await made.run_turn()
            started = await data_of(made, turn, "message.started")
            (completed,) = await data_of(made, turn, "message.completed")
            assert [one["message_id"] == completed["message_id"] for one in started] == [False, True]

    asyncio.run(main())


def test_a_refused_answer_is_not_open_any_more_and_another_one_begins(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            harness.send(TextDelta(1, "bad"))
            assert isinstance(await harness.report("bad"), ResponseDenied)
            harness.send(TextDelta(2, "good"))
            await harness.report("good")

        async with rig(tmp_path, run) as made:
            made.streamed = True
            made.guardian.next(payloads.AGENT_RESPONSE, deny("no"))
            turn = await made.run_turn()
            (completed,) = await data_of(made, turn, "message.completed")
            started = await data_of(made, turn, "message.started")
            assert (completed["text"], len(started)) == ("good", 2)
            assert completed["message_id"] == started[1]["message_id"]

    asyncio.run(main())


def test_a_harness_that_goes_back_to_an_earlier_message_breaks_the_protocol(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            harness.send(TextDelta(2, "later"))
            harness.send(TextDelta(1, "earlier"))
            await harness.receive()

        async with rig(tmp_path, run) as made:
            made.streamed = True
            turn = await made.run_turn()
            assert (turn.status.value, turn.error and turn.error.code) == ("failed", "harness_protocol_error")

    asyncio.run(main())


def test_no_more_is_shown_than_a_final_text_may_have(tmp_path: Path) -> None:
    async def main() -> None:
        most, said = 262_144, asyncio.Event()

        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            for _ in range(3):
                harness.send(TextDelta(1, "x" * 131_072))
            await said.wait()
            await harness.report("x")

        async with rig(tmp_path, run) as made:
            made.streamed = True
            session = await made.session()
            turn_id = await made.post(session)
            assert (await seen(made, session.id, "x" * most)).offset == most
            said.set()
            await made.ended(turn_id)

    asyncio.run(main())
