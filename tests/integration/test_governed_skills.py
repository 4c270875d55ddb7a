"""Skills in a real tool box, before a real Guardian: what was let through is loaded, and nothing else of it is seen."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from tests.integration.egress_parts import run
from tests.integration.mcp_parts import ALLOW, RealToolBoxes, governed, nowhere
from tests.integration.test_governed_turn import PATIENT, assert_verified
from tests.unit.sandbox.box_parts import DriverClass, running, settings
from tests.unit.turns.rig import Rig, rig
from tests.unit.turns.skill_parts import LOAD, READ, SECRET_WORDS, TEXT, WRITE, Loading, keep, sent

from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.protocol import ToolRequest
from turnkeeper.sandbox.unsafe_none import UnsafeNoneDriver
from turnkeeper.settings import HarnessSettings
from turnkeeper.turns import payloads
from turnkeeper.turns.model import Turn
from turnkeeper.turns.worker import Worker
from turnkeeper.wiring.boxes import WorkerBoxes, order_of
from turnkeeper.wiring.harnesses import BoxOrders

pytestmark = pytest.mark.sandbox


def denied(hook: str) -> bytes:
    return f"""
version: 1
name: test
default: allow
rules:
  - id: never
    hooks: [{hook}]
    when: 'true'
    decision: deny
    reasoning: Not this skill.
""".encode()


@contextlib.asynccontextmanager
async def boxed(
    folder: Path, agent: Loading, rules: bytes = ALLOW, driver_type: DriverClass = BwrapDriver
) -> AsyncGenerator[Rig]:
    """A worker whose loop is a script, whose tool boxes are real, and whose Guardian is real."""
    async with (
        governed(folder, rules) as link,
        running(driver_type, settings(folder)) as driver,
        rig(folder, agent, link=link, governor=PATIENT, start=False) as made,
    ):
        boxes = WorkerBoxes(driver, BoxOrders(HarnessSettings(), {}, order_of))
        made.bench = replace(made.bench, boxes=RealToolBoxes(made, boxes, nowhere))
        made.worker = Worker(made.bench)
        made.work()
        yield made


async def over(made: Rig, folder: Path) -> Turn:
    """A turn that is over and verified."""
    turn = await made.run_turn()
    await made.settled(turn.session_id)
    await assert_verified(made, folder)
    return turn


async def balanced(made: Rig, turn: Turn, loads: int) -> None:
    """Each load that was let through has its unload, within the turn."""
    steps = await made.store.steps(turn.session_id)
    loaded = [step for step in steps if step.method == payloads.SKILL_LOAD and step.decision == "allow"]
    unloaded = [step.ordinal for step in steps if step.method == payloads.SKILL_UNLOAD]
    assert (len(loaded), len(unloaded)) == (loads, loads)
    assert all(ordinal < steps[-1].ordinal for ordinal in unloaded)


def played(folder: Path, agent: Loading, work: Callable[[Rig], Awaitable[None]], rules: bytes = ALLOW) -> None:
    async def main() -> None:
        async with boxed(folder, agent, rules) as made:
            await work(made)

    run(main())


def test_a_loaded_skill_is_told_and_its_files_can_be_read_and_not_written(tmp_path: Path) -> None:
    agent = Loading(LOAD, READ, WRITE)

    async def work(made: Rig) -> None:
        skill = await keep(made)
        turn = await over(made, tmp_path)
        loaded, read, wrote = agent.results
        assert (loaded.status, loaded.content.endswith(TEXT)) == ("ok", True)
        assert read.content.startswith("a crane")
        assert "Read-only" in wrote.content
        assert "folding\n" in wrote.content
        (event,) = [event for event in await made.events(turn) if event.type == "skill.loaded"]
        assert (event.source, orjson.loads(event.data)) == (
            "sandbox",
            {"turn_id": turn.id, "name": "folding", "version": 1, "sha256": skill.sha256},
        )
        await balanced(made, turn, 1)
        assert not (tmp_path / "skills" / turn.session_id).exists()

    played(tmp_path, agent, work)


def test_a_skill_that_is_loaded_into_a_box_that_is_there_already_is_seen_in_it(tmp_path: Path) -> None:
    agent = Loading(READ, LOAD, READ)

    async def work(made: Rig) -> None:
        await keep(made)
        await over(made, tmp_path)
        before, _, after = agent.results
        assert "No such file" in before.content
        assert after.content.startswith("a crane")

    played(tmp_path, agent, work)


def test_without_a_box_the_files_are_where_the_model_is_told(tmp_path: Path) -> None:
    agent = Loading(LOAD, ToolRequest("read", "shell", '{"command":"cat ../../skills/*/folding/scripts/fold.txt"}'))

    async def main() -> None:
        async with boxed(tmp_path, agent, driver_type=UnsafeNoneDriver) as made:
            await keep(made)
            turn = await over(made, tmp_path)
            assert str(tmp_path / "skills" / turn.session_id / "folding") in agent.results[0].content
            assert agent.results[1].content.startswith("a crane")

    run(main())


def test_an_agent_hears_the_name_and_the_description_and_not_the_text(tmp_path: Path) -> None:
    agent = Loading()

    async def work(made: Rig) -> None:
        await keep(made)
        turn = await over(made, tmp_path)
        assert "- folding: Folds paper." in agent.starts[0].instructions
        assert (SECRET_WORDS in agent.told, agent.tools) == (False, ["shell", "load_skill"])
        (register,) = await sent(made, turn.session_id, payloads.SKILL_REGISTER)
        assert register["skill_id"] == "folding"
        await balanced(made, turn, 0)

    played(tmp_path, agent, work)


def test_nothing_of_a_skill_whose_load_is_denied_reaches_the_model_or_its_box(tmp_path: Path) -> None:
    agent = Loading(LOAD, READ)

    async def work(made: Rig) -> None:
        await keep(made)
        turn = await over(made, tmp_path)
        assert (agent.results[0].status, agent.results[0].content) == ("denied", "denied: Not this skill.")
        assert "No such file" in agent.results[1].content
        assert SECRET_WORDS not in agent.told
        assert "skill.loaded" not in await made.types(turn)
        await balanced(made, turn, 0)

    played(tmp_path, agent, work, denied("skillLoad"))


def test_a_skill_whose_registration_is_denied_is_offered_to_nobody(tmp_path: Path) -> None:
    agent = Loading(LOAD)

    async def work(made: Rig) -> None:
        await keep(made)
        turn = await over(made, tmp_path)
        assert (agent.tools, "folding" in agent.starts[0].instructions) == (["shell"], False)
        assert agent.results[0].content == "unknown tool: load_skill"
        assert await sent(made, turn.session_id, payloads.SKILL_LOAD) == []

    played(tmp_path, agent, work, denied("skillRegister"))


def test_an_archive_that_was_changed_is_denied_by_its_digest(tmp_path: Path) -> None:
    agent = Loading(LOAD, READ)

    async def work(made: Rig) -> None:
        skill = await keep(made)
        (stored,) = [path for path in (tmp_path / "contents").rglob("*") if path.name.endswith(skill.sha256[4:])]
        stored.chmod(0o600)
        stored.write_bytes(stored.read_bytes() + b"!")
        turn = await made.run_turn()
        await made.settled(turn.session_id)
        assert agent.results[0].status == "denied"
        assert "not approved with this digest" in agent.results[0].content
        assert "No such file" in agent.results[1].content
        (load,) = await sent(made, turn.session_id, payloads.SKILL_LOAD)
        assert load["digest"] != {"algorithm": "sha-256", "value": skill.sha256}
        await balanced(made, turn, 0)

    played(tmp_path, agent, work)


def test_a_skill_is_registered_once_in_a_session_and_loaded_in_each_turn(tmp_path: Path) -> None:
    agent = Loading(LOAD)

    async def work(made: Rig) -> None:
        await keep(made)
        session = await made.session()
        turns = [await made.run_turn(session) for _ in range(2)]
        await made.settled(session.id)
        await assert_verified(made, tmp_path)
        assert [result.status for result in agent.results] == ["ok", "ok"]
        assert len(await sent(made, session.id, payloads.SKILL_REGISTER)) == 1
        await balanced(made, turns[-1], 2)

    played(tmp_path, agent, work)
