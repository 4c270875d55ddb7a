"""What turns are given and what they leave, with the Guardian between."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson
from tests.unit.turns.rig import SETTINGS, Rig, rig
from tests.unit.turns.test_tool_step import SHELL, Told, completed

from turnkeeper.acs import Decision, Disposition
from turnkeeper.sandbox.protocol import Start
from turnkeeper.store.tx import StoreLimits
from turnkeeper.testing.recording_sandbox import ScriptedHarness, ScriptedOutcome
from turnkeeper.testing.scripted_guardian import deny
from turnkeeper.turns import payloads
from turnkeeper.turns.files import Artifact, File, NewFile
from turnkeeper.turns.model import PROJECT_ID, Turn
from turnkeeper.turns.ports import NewTurn, PageRequest

CLEAN = Decision(Disposition.MODIFY, "as changed", ("changed",), modifications={"modified_content": "clean"})
SMALL = replace(SETTINGS, inline_bytes=64, text_bytes=51)


class Inbox(Told):
    """A harness that also keeps what it was started with."""

    start: Start | None = None

    async def __call__(self, harness: ScriptedHarness) -> None:
        self.start = await harness.begin()
        for request in self.requests:
            await harness.ask(request)
        await harness.report("done")


async def _piece(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def a_file(made: Rig, name: str = "a.txt", data: bytes = b"hello") -> File:
    content = await made.bench.contents.put(_piece(data), max_bytes=1_000)
    new = NewFile(PROJECT_ID, name, "turn_input", "text/plain", content.size_bytes, content.sha256)
    return (await made.bench.files.add_file(new)).thing


async def turn_with(made: Rig, *files: File) -> Turn:
    session = await made.session()
    new = NewTurn(session.id, "Read it.", "[]", None, "{}", None, 3, None, None, file_ids=tuple(f.id for f in files))
    return await made.ended((await made.store.accept_turn(new)).turn.id)


async def left(made: Rig, turn: Turn) -> list[Artifact]:
    return list((await made.bench.files.artifacts(turn.id, PageRequest(order="asc"))).items)


def outputs(made: Rig, write: Callable[[Path], None]) -> None:
    """The tool leaves something in the output folder."""

    async def tool(name: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
        folder = made.sandbox.tool_boxes[-1].workspace / "outputs"
        folder.mkdir(exist_ok=True)
        write(folder)
        return ScriptedOutcome(text="written")

    made.sandbox.tool = tool


def a_report(folder: Path) -> None:
    (folder / "report.csv").write_text("a,b")


def another_report(folder: Path) -> None:
    (folder / "report.csv").write_text("c")


def shown_parts(made: Rig, method: str) -> list[dict[str, Any]]:
    """The content of the one step of this kind that the Guardian was asked."""
    (asked,) = [entry for entry in made.guardian.entries if entry.method == method]
    return cast("list[dict[str, Any]]", asked.payload["content"])


async def data_of(made: Rig, turn: Turn, event_type: str) -> list[dict[str, Any]]:
    return [orjson.loads(event.data) for event in await made.events(turn) if event.type == event_type]


def test_a_file_is_told_shown_to_the_guardian_and_delivered(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = Inbox(SHELL)
        async with rig(tmp_path, inbox) as made:
            file = await a_file(made)
            turn = await turn_with(made, file)
            assert inbox.start is not None
            assert inbox.start.input == "Read it.\n[file inputs/a.txt: text/plain, 5 bytes]"
            shown = shown_parts(made, payloads.USER_MESSAGE)[1]
            assert (shown["type"], shown["name"]) == ("file", "a.txt")
            seen = orjson.loads(shown["value"])
            assert (seen["file_id"], seen["sha256"], seen["bytes"]) == (file.id, file.sha256, 5)
            (received,) = await data_of(made, turn, "message.received")
            assert received["parts"][1] == {"type": "file", **seen}
            assert (made.bench.workspaces / turn.session_id / "inputs" / "a.txt").read_text() == "hello"

    asyncio.run(main())


def test_a_message_that_the_guardian_rewrote_brings_no_files(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = Inbox(SHELL)
        async with rig(tmp_path, inbox) as made:
            made.guardian.always(payloads.USER_MESSAGE, CLEAN)
            turn = await turn_with(made, await a_file(made))
            assert inbox.start is not None
            assert inbox.start.input == "clean"
            (received,) = await data_of(made, turn, "message.received")
            assert [part["type"] for part in received["parts"]] == ["text"]
            assert not (made.bench.workspaces / turn.session_id / "inputs").exists()

    asyncio.run(main())


def test_a_file_that_was_deleted_meanwhile_is_still_the_turns(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Inbox(SHELL), start=False) as made:
            file, session = await a_file(made), await made.session()
            new = NewTurn(session.id, "", "[]", None, "{}", None, 3, None, None, file_ids=(file.id,))
            turn_id = (await made.store.accept_turn(new)).turn.id
            await made.bench.files.delete_file(file.id)
            made.work()
            await made.ended(turn_id)
            assert (made.bench.workspaces / session.id / "inputs" / "a.txt").read_text() == "hello"

    asyncio.run(main())


def test_a_long_output_is_an_artifact_as_the_agent_got_it(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told(SHELL)
        async with rig(tmp_path, told, settings=SMALL) as made:
            made.sandbox.tool = _long
            turn = await made.run_turn()
            (call,), (artifact,) = await completed(made, turn), await left(made, turn)
            assert (call["output"], call["truncated"], call["artifact_id"]) == ("y" * 64, True, artifact.id)
            assert await made.bench.files.artifact_text(artifact.id) == told.results[0].content == "y" * 1_000
            assert (artifact.kind, artifact.path) == ("tool_output", None)
            assert artifact.sha256 == hashlib.sha256(b"y" * 1_000).hexdigest()

    asyncio.run(main())


def test_an_output_that_was_denied_or_changed_is_no_artifact_of_what_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Told(SHELL), Told(SHELL), settings=SMALL) as made:
            made.sandbox.tool = _long
            made.guardian.next(payloads.TOOL_CALL_RESULT, deny("no"), CLEAN)
            for _ in range(2):
                turn = await made.run_turn()
                assert await left(made, turn) == []
                assert "yy" not in "".join(event.data for event in await made.events(turn))

    asyncio.run(main())


def test_files_that_an_allowed_turn_leaves_are_what_the_guardian_heard_of(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Told(SHELL)) as made:
            outputs(made, a_report)
            turn = await made.run_turn()
            (artifact,) = await left(made, turn)
            assert (artifact.path, artifact.media_type, artifact.kind) == ("outputs/report.csv", "text/csv", "output")
            seen = orjson.loads(shown_parts(made, payloads.AGENT_RESPONSE)[1]["value"])
            assert (seen["artifact_id"], seen["sha256"]) == (artifact.id, hashlib.sha256(b"a,b").hexdigest())
            pieces = [piece async for piece in made.bench.contents.read(artifact.sha256)]
            assert pieces == [b"a,b"]
            assert (await made.types(turn)).index("artifact.created") < (await made.types(turn)).index("turn.completed")

    asyncio.run(main())


def test_files_of_an_answer_that_was_denied_or_rewritten_stay(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Told(SHELL), Told(SHELL)) as made:
            outputs(made, a_report)
            made.guardian.next(payloads.AGENT_RESPONSE, deny("no"), CLEAN)
            for _ in range(2):
                turn = await made.run_turn(repairs=0)
                assert await left(made, turn) == []
                assert "artifact.created" not in await made.types(turn)

    asyncio.run(main())


def test_a_file_that_an_earlier_turn_left_is_left_again_only_when_it_changed(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Told(SHELL), Told(SHELL), Told(SHELL)) as made:
            session = await made.session()
            outputs(made, a_report)
            first, second = await made.run_turn(session), await made.run_turn(session)
            outputs(made, another_report)
            third = await made.run_turn(session)
            assert [len(await left(made, turn)) for turn in (first, second, third)] == [1, 0, 1]

    asyncio.run(main())


def test_what_was_not_taken_of_the_outputs_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Told(SHELL)) as made:
            outputs(made, lambda folder: (folder / "link").symlink_to("/etc/passwd"))
            turn = await made.run_turn()
            (said,) = await data_of(made, turn, "report.normalized")
            assert said["fields"] == ["outputs"]
            assert "no regular files" in said["reason"]

    asyncio.run(main())


def test_an_answer_too_long_for_its_ending_is_an_artifact_as_a_whole(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            await harness.report("ä" * 100)

        async with rig(tmp_path, run, settings=SMALL) as made:
            turn = await made.run_turn()
            (artifact,) = await left(made, turn)
            assert (turn.text, artifact.kind) == ("ä" * 25, "final_text")
            assert await made.bench.files.artifact_text(artifact.id) == "ä" * 100
            assert shown_parts(made, payloads.AGENT_RESPONSE)[0]["value"] == "ä" * 100

    asyncio.run(main())


def test_a_project_without_room_gets_the_beginning_and_no_artifact(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Told(SHELL), settings=SMALL, limits=StoreLimits(project_bytes=100)) as made:
            made.sandbox.tool = _long
            turn = await made.run_turn()
            (call,) = await completed(made, turn)
            assert (call["truncated"], call["artifact_id"], await left(made, turn)) == (True, None, [])

    asyncio.run(main())


async def _long(name: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
    return ScriptedOutcome(text="y" * 1_000)
