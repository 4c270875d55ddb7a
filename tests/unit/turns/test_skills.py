"""Skills in turns that wait, are stopped, are lost, and have a Guardian that does not answer."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.turns.rig import Rig, rig
from tests.unit.turns.skill_parts import FILES, LOAD, SECRET_WORDS, TEXT, Loading, keep, sent
from tests.unit.turns.test_pauses import ASK, COLD, NO, YES, defer, paused
from tests.unit.turns.test_subagents import holding

from turnkeeper.sandbox.protocol import ToolRequest
from turnkeeper.testing.recording_sandbox import ScriptedOutcome
from turnkeeper.testing.scripted_guardian import ALLOW, Fault
from turnkeeper.turns import payloads
from turnkeeper.turns.model import CanceledBy

SHELL = ToolRequest("shell", "shell", '{"command":"ls"}')
SKILL_METHODS = (payloads.SKILL_REGISTER, payloads.SKILL_LOAD, payloads.SKILL_UNLOAD)


def chain(made: Rig) -> list[str]:
    return [entry.method for entry in made.guardian.entries if entry.method in (*SKILL_METHODS, payloads.TURN_END)]


def test_a_load_is_a_governed_call_with_the_load_inside_and_its_unload_before_the_turns_end(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Loading(LOAD)
        async with rig(tmp_path, agent) as made:
            await keep(made)
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            own = [entry.method for entry in made.guardian.entries if entry.turn_id == turn.id]
            assert own[own.index(payloads.SKILL_REGISTER) :] == [
                payloads.SKILL_REGISTER,
                payloads.TOOL_CALL_REQUEST,
                payloads.SKILL_LOAD,
                payloads.TOOL_CALL_RESULT,
                payloads.AGENT_RESPONSE,
                payloads.SKILL_UNLOAD,
                payloads.TURN_END,
            ]
            assert await sent(made, turn.session_id, payloads.SKILL_UNLOAD) == [
                {"skill_id": "folding", "reason": "explicit_unload"}
            ]

    asyncio.run(main())


def test_the_register_shows_the_text_once_and_the_load_names_the_register_and_the_call(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Loading(LOAD)) as made:
            skill = await keep(made)
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            steps = {step.method: step.request_id for step in await made.store.steps(turn.session_id)}
            (register,) = await sent(made, turn.session_id, payloads.SKILL_REGISTER)
            (load,) = await sent(made, turn.session_id, payloads.SKILL_LOAD)
            digest = {"algorithm": "sha-256", "value": skill.sha256}
            assert register["definition"] == {"digest": digest, "ref": f"urn:turnkeeper:skill:{skill.id}", "body": TEXT}
            assert load["digest"] == digest
            assert load["registration_ref"] == steps[payloads.SKILL_REGISTER]
            assert load["parent_step_id"] == steps[payloads.TOOL_CALL_REQUEST]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["cancel", "crash"])
def test_a_turn_that_is_cut_short_unloads_what_it_had_loaded(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        held = asyncio.Event()
        async with rig(tmp_path, Loading(LOAD, SHELL)) as made:
            await keep(made)
            made.sandbox.tool = holding(held)
            turn_id = await made.post(await made.session())
            async with asyncio.timeout(60):
                await held.wait()
            if how == "cancel":
                await made.store.cancel_turn(turn_id, mode="graceful", by=CanceledBy("user", None))
            else:
                await made.stop()
                made.again()
                made.work()
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            assert chain(made)[-3:] == [payloads.SKILL_LOAD, payloads.SKILL_UNLOAD, payloads.TURN_END]
            (unload,) = await sent(made, turn.session_id, payloads.SKILL_UNLOAD)
            assert unload["reason"] == ("explicit_unload" if how == "cancel" else "error")

    asyncio.run(main())


def test_an_attempt_that_is_lost_unloads_and_the_next_one_loads_again(tmp_path: Path) -> None:
    async def main() -> None:
        held = asyncio.Event()
        async with rig(tmp_path, Loading(LOAD, SHELL)) as made:
            await keep(made)
            made.sandbox.tool = holding(held)
            turn_id = await made.post(await made.session(), attempts=2)
            async with asyncio.timeout(60):
                await held.wait()
            await made.stop()
            made.sandbox.tool = ran
            made.again()
            made.work()
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            assert chain(made) == [
                payloads.SKILL_REGISTER,
                *[payloads.SKILL_LOAD, payloads.SKILL_UNLOAD, payloads.TURN_END] * 2,
            ]

    asyncio.run(main())


async def ran(tool: str, arguments: object) -> ScriptedOutcome:
    del tool, arguments
    return ScriptedOutcome()


def test_a_turn_that_goes_on_has_its_skill_in_its_new_box_and_unloads_it_once(tmp_path: Path) -> None:
    async def main() -> None:
        seen: list[dict[str, bytes]] = []

        async def look(tool: str, arguments: object) -> ScriptedOutcome:
            del tool, arguments
            folder = made.sandbox.skills[-1]
            assert folder is not None
            files = (path for path in folder.rglob("*") if path.is_file())
            seen.append({str(path.relative_to(folder / "folding")): path.read_bytes() for path in files})
            return ScriptedOutcome()

        async with rig(tmp_path, Loading(LOAD, SHELL), settings=COLD) as made:
            await keep(made)
            made.sandbox.tool = look
            made.permissions = {"shell": "ask"}
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=True)
            assert not list((tmp_path / "skills").iterdir())
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            assert seen[0] == FILES
            assert chain(made) == [*SKILL_METHODS, payloads.TURN_END]

    asyncio.run(main())


def test_a_turn_that_is_canceled_while_it_waits_unloads_what_it_had_loaded(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Loading(LOAD, SHELL), settings=COLD) as made:
            await keep(made)
            made.permissions = {"shell": "ask"}
            turn_id = await made.post(await made.session())
            await paused(made, turn_id, parked=True)
            await made.store.cancel_turn(turn_id, mode="graceful", by=CanceledBy("user", None))
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            assert chain(made) == [*SKILL_METHODS, payloads.TURN_END]

    asyncio.run(main())


@pytest.mark.parametrize(("answer", "status"), [(YES, "ok"), (NO, "denied")])
def test_a_load_that_a_person_is_asked_about_waits_for_the_answer(tmp_path: Path, answer: object, status: str) -> None:
    async def main() -> None:
        agent = Loading(LOAD)
        async with rig(tmp_path, agent, settings=COLD) as made:
            await keep(made)
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ASK)
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=True)
            assert await sent(made, asked.session_id, payloads.SKILL_LOAD) == []
            await made.store.decide_approval(asked.id, answer)  # type: ignore[arg-type]
            await made.ended(turn_id)
            assert agent.results[0].status == status
            assert (SECRET_WORDS in agent.told) == (status == "ok")

    asyncio.run(main())


def test_a_guardian_that_says_nothing_lets_no_text_through(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Loading(LOAD)
        async with rig(tmp_path, agent) as made:
            await keep(made)
            made.guardian.fail(payloads.SKILL_LOAD, *[Fault.LOSE_REQUEST] * 500)
            turn_id = await made.post(await made.session())
            turn = await made.ended(turn_id)
            assert (agent.results[0].status, SECRET_WORDS in agent.told) == ("denied", False)
            assert "skill.loaded" not in await made.types(turn)

    asyncio.run(main())


def test_a_guardian_that_does_not_look_at_skills_gets_none_offered(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Loading()
        async with rig(tmp_path, agent) as made:
            await keep(made)
            made.guardian.methods -= {payloads.SKILL_REGISTER}
            await made.run_turn()
            assert agent.tools == ["shell"]

    asyncio.run(main())


@pytest.mark.parametrize("arguments", ["{}", '{"name":"other"}', '{"name":7}', '{"name":"../folding"}'])
def test_a_name_that_is_none_of_the_agents_skills_is_said_so(tmp_path: Path, arguments: str) -> None:
    async def main() -> None:
        agent = Loading(ToolRequest("load", "load_skill", arguments))
        async with rig(tmp_path, agent) as made:
            await keep(made)
            turn = await made.run_turn()
            assert (agent.results[0].status, agent.results[0].content) == (
                "error",
                "not loaded: the skills are folding",
            )
            assert await sent(made, turn.session_id, payloads.SKILL_LOAD) == []

    asyncio.run(main())


def test_an_agent_without_skills_has_no_such_tool(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Loading(LOAD)
        async with rig(tmp_path, agent) as made:
            await made.run_turn()
            assert (agent.tools, agent.results[0].content) == (["shell"], "unknown tool: load_skill")

    asyncio.run(main())


def test_a_guardian_that_says_nothing_is_not_waited_for_once_per_skill(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Loading()
        async with rig(tmp_path, agent) as made:
            for name in ("a", "b", "c"):
                await keep(made, {"SKILL.md": TEXT.replace("folding", name).encode()})
            made.guardian.fail(payloads.SKILL_REGISTER, *[Fault.LOSE_REQUEST] * 500)
            turn_id = await made.post(await made.session())
            turn = await made.ended(turn_id)
            assert len(await sent(made, turn.session_id, payloads.SKILL_REGISTER)) == 1
            assert [start.instructions for start in agent.starts] in ([], ["Be brief."])

    asyncio.run(main())


def test_a_turn_that_is_deferred_keeps_its_skill_over_its_windows_and_unloads_it_at_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Loading(LOAD, SHELL), settings=COLD) as made:
            await keep(made)
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ALLOW, defer())
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=True)
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            unloaded = [payloads.SKILL_UNLOAD, payloads.TURN_END]
            assert chain(made) == [payloads.SKILL_REGISTER, payloads.SKILL_LOAD, payloads.TURN_END, *unloaded]

    asyncio.run(main())


def test_a_load_whose_answer_came_too_late_puts_nothing_into_the_box(tmp_path: Path) -> None:
    async def main() -> None:
        seen: list[list[Path]] = []

        async def look(tool: str, arguments: object) -> ScriptedOutcome:
            del tool, arguments
            folder = made.sandbox.skills[-1]
            assert folder is not None
            seen.append(list(folder.iterdir()))
            return ScriptedOutcome()

        agent = Loading(LOAD, SHELL)
        async with rig(tmp_path, agent) as made:
            await keep(made)
            made.sandbox.tool = look
            made.guardian.fail(payloads.SKILL_LOAD, *[Fault.LOSE_ANSWER] * 500)
            agent.after = made.guardian.heal
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            assert [result.status for result in agent.results] == ["denied", "ok"]
            assert "skill.loaded" not in await made.types(turn)
            assert seen == [[]]
            assert chain(made)[-2:] == [payloads.SKILL_UNLOAD, payloads.TURN_END]

    asyncio.run(main())
