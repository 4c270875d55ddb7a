"""Compactions under a real Guardian: asked, reported, derived from all that went in, balanced whatever happens."""

import asyncio
from pathlib import Path

import orjson
import pytest
from tests.integration.test_governed_turn import PATIENT, assert_verified, real_guardian
from tests.unit.turns.rig import Rig, answer, rig, script

from turnkeeper.sandbox.protocol import (
    Compacted,
    CompactionAsked,
    CompactionRuled,
    HistoryItem,
    Start,
    SummaryRuled,
    ToolRequest,
)
from turnkeeper.testing.recording_sandbox import HarnessScript, ScriptedHarness
from turnkeeper.turns import payloads
from turnkeeper.turns.compaction import ABANDONED
from turnkeeper.turns.model import Session, Step

ALLOW = b"version: 1\nname: test\ndefault: allow\nrules: []\n"
DENY_BEFORE = b"""
version: 1
name: test
default: allow
rules:
  - {id: never, hooks: [preCompact], decision: deny, reasoning: Nothing is forgotten here.}
"""
CHANGE_AFTER = b"""
version: 1
name: test
default: allow
rules:
  - {id: cut, hooks: [postCompact], decision: modify, reasoning: Too long., modify: {modified_content: short}}
"""
PAIR = [payloads.PRE_COMPACT, payloads.POST_COMPACT]


def compacts(heard: list[object], *, summary: str | None = "so far: ls", after: int = 0) -> HarnessScript:
    """A harness that calls a tool, has its context summarized, and answers. Without a `summary` it answers first."""

    async def run(harness: ScriptedHarness) -> None:
        await harness.ask(ToolRequest("c0", "shell", '{"command":"ls"}'))
        await harness.call_model(input_tokens=900, output_tokens=40)
        heard.append(await harness.ask(CompactionAsked()))
        if summary is not None and heard[-1] == CompactionRuled(allowed=True):
            heard.append(await harness.ask(Compacted(summary)))
        for number in range(after):
            await harness.ask(ToolRequest(f"d{number}", "shell", '{"command":"pwd"}'))
        await harness.report("done")

    return script(run)


def starts(seen: list[Start]) -> HarnessScript:
    """A harness that answers and keeps how it was started."""

    async def run(harness: ScriptedHarness) -> None:
        seen.append(await harness.begin())
        await harness.report("done")

    return run


async def compaction_steps(made: Rig, session: Session) -> list[Step]:
    """Its preCompacts and postCompacts, in their order."""
    return [step for step in await made.store.steps(session.id) if step.method in PAIR]


def test_a_summary_is_asked_for_reported_and_derives_from_all_that_was_said(tmp_path: Path) -> None:
    async def main() -> None:
        heard: list[object] = []
        scripts = (answer, compacts(heard, after=1))
        async with real_guardian(tmp_path, ALLOW) as link, rig(tmp_path, *scripts, link=link, governor=PATIENT) as made:
            session = await made.session()
            await made.run_turn(session)
            turn = await made.run_turn(session)
            await made.settled(session.id)
            assert heard == [CompactionRuled(allowed=True), SummaryRuled(taken=True, summary="so far: ls")]
            told = [orjson.loads(event.data) for event in await made.events(turn) if event.type == "context.compacted"]
            sizes = {"before_tokens": 900, "after_tokens": 40}
            assert told == [{"turn_id": turn.id, **sizes}]
            before, after = await compaction_steps(made, session)
            entries = orjson.loads(before.payload_json or "")["entries_to_compact"]
            assert orjson.loads(after.payload_json or "")["entries_compacted"] == entries
            said = [step.request_id for step in await made.store.steps(session.id) if step.ordinal < before.ordinal]
            assert set(entries) < set(said)
            await assert_verified(made, tmp_path)

    asyncio.run(main())


def test_a_second_summary_derives_from_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        heard: list[object] = []
        scripts = (compacts(heard), compacts(heard, summary="longer"))
        async with real_guardian(tmp_path, ALLOW) as link, rig(tmp_path, *scripts, link=link, governor=PATIENT) as made:
            session = await made.session()
            await made.run_turn(session)
            await made.run_turn(session)
            await made.settled(session.id)
            _, first, second, _ = await compaction_steps(made, session)
            assert orjson.loads(second.payload_json or "")["entries_to_compact"][0] == first.request_id
            await assert_verified(made, tmp_path)

    asyncio.run(main())


def test_a_denial_is_no_compaction_and_the_turn_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        heard: list[object] = []
        async with (
            real_guardian(tmp_path, DENY_BEFORE) as link,
            rig(tmp_path, compacts(heard), link=link, governor=PATIENT) as made,
        ):
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            assert (heard, turn.status) == ([CompactionRuled(allowed=False)], "completed")
            assert "context.compacted" not in await made.types(turn)
            await assert_verified(made, tmp_path)

    asyncio.run(main())


def test_a_changed_summary_is_the_one_that_is_gone_on_with(tmp_path: Path) -> None:
    async def main() -> None:
        heard: list[object] = []
        seen: list[Start] = []
        scripts = (compacts(heard), starts(seen))
        async with (
            real_guardian(tmp_path, CHANGE_AFTER) as link,
            rig(tmp_path, *scripts, link=link, governor=PATIENT) as made,
        ):
            session = await made.session()
            await made.run_turn(session)
            await made.run_turn(session)
            await made.settled(session.id)
            assert heard[-1] == SummaryRuled(taken=True, summary="short")
            assert seen[0].history[0] == HistoryItem("summary", "short")
            await assert_verified(made, tmp_path)

    asyncio.run(main())


def test_the_next_turn_remembers_the_summary_and_what_came_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        seen: list[Start] = []
        scripts = (answer, compacts([], after=1), starts(seen))
        async with real_guardian(tmp_path, ALLOW) as link, rig(tmp_path, *scripts, link=link, governor=PATIENT) as made:
            session = await made.session()
            await made.run_turn(session)
            await made.run_turn(session)
            await made.run_turn(session)
            kinds = [(item.kind, item.text) for item in seen[0].history]
            assert kinds[:2] == [("summary", "so far: ls"), ("user", "hello")]
            assert [kind for kind, _ in kinds[2:]] == ["tool", "agent"]

    asyncio.run(main())


@pytest.mark.parametrize("summary", [None, "", "x" * 70_000])
def test_a_compaction_that_comes_to_nothing_is_closed_all_the_same(tmp_path: Path, summary: str | None) -> None:
    async def main() -> None:
        heard: list[object] = []
        scripts = (compacts(heard, summary=summary),)
        async with real_guardian(tmp_path, ALLOW) as link, rig(tmp_path, *scripts, link=link, governor=PATIENT) as made:
            session = await made.session()
            turn = await made.run_turn(session)
            await made.settled(session.id)
            assert heard[1:] == ([] if summary is None else [SummaryRuled(taken=False)])
            steps = await compaction_steps(made, session)
            assert [step.method for step in steps] == PAIR
            assert orjson.loads(steps[1].payload_json or "")["summary"]["value"] == ABANDONED
            assert "context.compacted" not in await made.types(turn)
            await assert_verified(made, tmp_path)

    asyncio.run(main())


def test_a_worker_that_dies_between_the_two_leaves_a_pair_that_balances(tmp_path: Path) -> None:
    async def main() -> None:
        allowed = asyncio.Event()

        async def hangs(harness: ScriptedHarness) -> None:
            await harness.ask(CompactionAsked())
            allowed.set()
            await asyncio.Event().wait()

        heard: list[object] = []
        scripts = (script(hangs), compacts(heard))
        async with real_guardian(tmp_path, ALLOW) as link, rig(tmp_path, *scripts, link=link, governor=PATIENT) as made:
            session = await made.session()
            turn_id = await made.post(session, attempts=2)
            await allowed.wait()
            await made.stop()
            made.again()
            made.work()
            assert (await made.ended(turn_id)).status == "completed"
            await made.settled(session.id)
            assert [step.method for step in await compaction_steps(made, session)] == PAIR * 2
            await assert_verified(made, tmp_path)

    asyncio.run(main())


def test_a_summary_that_nobody_had_allowed_ends_the_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async def pushes(harness: ScriptedHarness) -> None:
            await harness.ask(Compacted("trust me"))

        async with (
            real_guardian(tmp_path, ALLOW) as link,
            rig(tmp_path, script(pushes), link=link, governor=PATIENT) as made,
        ):
            turn = await made.run_turn()
            assert turn.error is not None
            assert turn.error.code == "harness_protocol_error"
            assert "context.compacted" not in await made.types(turn)

    asyncio.run(main())
