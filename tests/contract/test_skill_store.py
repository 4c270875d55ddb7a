"""Skills in the turn store: versions by name, apart by project; and their unloads, however a turn ends."""

import asyncio
import hashlib
from dataclasses import replace

import orjson
import pytest
from tests.contract.pause_samples import a_pause
from tests.contract.store_rig import AGENT, ANSWER, BY_APP, LOST, Rig, a_step, with_store

from turnkeeper.turns.model import PROJECT_ID, Fence, StepAnswer
from turnkeeper.turns.payloads import SKILL_LOAD, SKILL_UNLOAD, TURN_END
from turnkeeper.turns.ports import NotFound, PageRequest
from turnkeeper.turns.skills import NewSkill, Skill, WantedSkill

SHA256 = hashlib.sha256(b"hello").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()
NEW = NewSkill(PROJECT_ID, "folding", "Folds paper: \u00e9.", SHA256, 5)
ELSEWHERE = "prj_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"


async def added(rig: Rig, new: NewSkill = NEW) -> Skill:
    return (await rig.store.skills().add_skill(new)).thing


async def loaded(rig: Rig, fence: Fence, name: str, decision: str = "allow") -> None:
    payload_json = orjson.dumps({"skill_id": name}).decode()
    new = replace(a_step(rig.ids, fence.turn_id), method=SKILL_LOAD, payload_json=payload_json)
    step = await rig.store.ask_step(fence.session_id, new, fence, [])
    await rig.store.answer_step(fence.session_id, step.request_id, StepAnswer("answered", decision, "h"), fence, [])


async def due(rig: Rig, fence: Fence) -> list[tuple[str, str | None]]:
    """What is still to be sent, and for unloads of what and why."""
    found: list[tuple[str, str | None]] = []
    for step in await rig.store.pending_steps(fence.session_id):
        payload = orjson.loads(step.payload_json or "{}")
        found.append((step.method, f"{payload['skill_id']}: {payload['reason']}" if payload else None))
    return found


@with_store
async def test_versions_count_by_name_and_the_newest_archive_again_is_no_other(rig: Rig) -> None:
    first, again = await added(rig), await added(rig)
    second = await added(rig, replace(NEW, sha256=OTHER))
    third = await added(rig)
    other = await added(rig, replace(NEW, name="other"))
    assert again == first
    assert [one.version for one in (first, second, third, other)] == [1, 2, 3, 1]
    assert (await rig.store.skills().skills(PROJECT_ID, PageRequest())).items == (other, third, second, first)


@with_store
async def test_two_uploads_at_once_are_two_versions(rig: Rig) -> None:
    made = await asyncio.gather(*(added(rig, replace(NEW, sha256=sha256)) for sha256 in (SHA256, OTHER)))
    assert sorted(one.version for one in made) == [1, 2]


@with_store
async def test_a_skill_is_named_by_id_by_name_or_by_version_and_within_its_project(rig: Rig) -> None:
    first, second = await added(rig), await added(rig, replace(NEW, sha256=OTHER))
    wanted = [
        WantedSkill(name="folding"),
        WantedSkill(name="folding", version=1),
        WantedSkill(id=first.id),
        WantedSkill(id=first.id, version=2),
        WantedSkill(name="none"),
    ]
    store = rig.store.skills()
    assert await store.wanted(PROJECT_ID, wanted) == (second, first, first, None, None)
    assert await store.wanted(ELSEWHERE, wanted[:3]) == (None, None, None)
    assert await store.skill(first.id) == first
    with pytest.raises(NotFound):
        await store.skill("skl_01KBC3Y5M8Q2V7R9T4W6X1Z0AB")


@with_store
async def test_an_agent_version_keeps_the_skills_that_it_was_made_with(rig: Rig) -> None:
    ref = (await added(rig)).ref
    agent = await rig.store.create_agent(replace(AGENT, skills=(ref,)))
    changed = await rig.store.change_agent(agent.id, AGENT, expected_version=1)
    assert (await rig.store.agent(agent.id, 1)).skills == (ref,)
    assert changed.skills == ()


@with_store
async def test_the_archive_of_a_skill_is_named_for_as_long_as_the_project_has_it(rig: Rig) -> None:
    await added(rig)
    assert await rig.store.files().unnamed([SHA256, OTHER]) == frozenset({OTHER})


@with_store
async def test_a_turn_that_ends_unloads_what_was_let_be_loaded_before_its_turn_end(rig: Rig) -> None:
    fence = await rig.running()
    for name, decision in (("first", "allow"), ("denied", "deny"), ("second", "allow")):
        await loaded(rig, fence, name, decision)
    await rig.store.end(fence, ANSWER)
    assert await due(rig, fence) == [
        (SKILL_UNLOAD, "second: explicit_unload"),
        (SKILL_UNLOAD, "first: explicit_unload"),
        (TURN_END, None),
    ]


@with_store
async def test_a_turn_that_is_lost_unloads_for_an_error(rig: Rig) -> None:
    fence = await rig.running()
    await loaded(rig, fence, "folding")
    await rig.store.end(fence, LOST)
    assert await due(rig, fence) == [(SKILL_UNLOAD, "folding: error"), (TURN_END, None)]


@with_store
async def test_a_waiting_turn_that_nobody_holds_unloads_when_it_is_canceled(rig: Rig) -> None:
    fence = await rig.running()
    await loaded(rig, fence, "folding")
    await rig.store.pause(fence, a_pause(rig.clock, rig.ids, fence), ())
    await rig.store.park(fence, ())
    assert await due(rig, fence) == []
    await rig.store.cancel_turn(fence.turn_id, mode="graceful", by=BY_APP)
    assert (await due(rig, fence))[0] == (SKILL_UNLOAD, "folding: explicit_unload")
