"""Repeats (ACS 10.3 and our extension): who repeats with a new nonce learns what was decided, a copy learns nothing."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from tests.unit.guardian.kit import MESSAGE, TOOL_CALL, House, engine, greeted, running
from tests.unit.guardian.stores import Failing, until

from turnkeeper.acs import Refusal
from turnkeeper.guardian.settings import GuardianSettings

REQUEST_ID = "3d3f7b0e-7d0b-4a39-9d55-4f3bb0f3a001"
SMALL = GuardianSettings(max_in_flight=2, max_remembered_ids=4, max_cached_sessions=2)


def test_a_signed_repeat_learns_the_decision_and_its_hash(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        first = await agent.tool(request_id=REQUEST_ID)
        await agent.tool()
        refusal = await agent.refused("toolCallRequest", TOOL_CALL, request_id=REQUEST_ID)
        assert refusal.code == -32005
        assert refusal.recorded is not None
        assert (refusal.recorded.decision, refusal.recorded.chain_hash) == (first.decision, first.chain_hash)

    running(tmp_path, work)


def test_a_copy_of_a_message_or_of_its_repeat_learns_nothing_even_after_a_restart(tmp_path: Path) -> None:
    async def before(here: House) -> tuple[str, list[bytes]]:
        agent = await greeted(here)
        await agent.tool(request_id=REQUEST_ID)
        await agent.refused("toolCallRequest", TOOL_CALL, request_id=REQUEST_ID)
        for body in agent.sent[1:3]:
            copied = await agent.post(body)
            assert isinstance(copied, Refusal)
            assert (copied.code, copied.recorded) == (-32005, None)
        return agent.session_id, agent.sent[:3]

    async def after(here: House) -> None:
        agent = here.agent(session_id=session_id)
        for body in bodies:
            copied = await agent.post(body)
            assert isinstance(copied, Refusal)
            assert (copied.code, copied.recorded) == (-32005, None)

    session_id, bodies = running(tmp_path, before)
    running(tmp_path, after)


def test_the_repeat_of_a_refused_request_learns_of_no_decision(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.refused("userMessage", {"content": []}, request_id=REQUEST_ID)
        refusal = await agent.refused("userMessage", MESSAGE, request_id=REQUEST_ID)
        assert refusal.recorded is not None
        assert refusal.recorded.decision is None
        assert cast("dict[str, object]", refusal.data)["recorded"] == {
            "decision": None,
            "chain_hash": None,
            "code": -32602,
        }

    running(tmp_path, work)


def test_another_key_learns_nothing_of_a_request(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.tool(request_id=REQUEST_ID)
        thief = here.agent(session_id=agent.session_id, key_id="other")
        assert (await thief.tool(request_id=REQUEST_ID)).reason_codes == ("key_not_bound",)

    running(tmp_path, work)


def test_a_repeat_waits_until_the_first_is_durable(tmp_path: Path) -> None:
    failing = Failing()

    async def work(here: House) -> None:
        agent = await greeted(here)
        failing.store.gate.clear()
        first = asyncio.create_task(agent.tool(request_id=REQUEST_ID))
        await until(lambda: failing.store.waiting)
        repeat = asyncio.create_task(agent.refused("toolCallRequest", TOOL_CALL, request_id=REQUEST_ID))
        await until(lambda: here.guardian.in_flight == 2)
        assert not repeat.done()
        failing.store.gate.set()
        told = (await repeat).recorded
        assert told is not None
        assert told.chain_hash == (await first).chain_hash

    running(tmp_path, work, wrap=failing)


def test_ids_beyond_the_memory_are_found_in_the_store(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        first = await agent.tool(request_id=REQUEST_ID, nonce="n" * 16)
        for _ in range(12):
            await agent.tool()
        told = (await agent.refused("toolCallRequest", TOOL_CALL, request_id=REQUEST_ID)).recorded
        assert told is not None
        assert told.chain_hash == first.chain_hash
        assert (await agent.refused("toolCallRequest", TOOL_CALL, nonce="n" * 16)).code == -32005

    running(tmp_path, work, settings=SMALL)


def test_many_sessions_pass_through_a_small_cache_and_none_loses_its_place(tmp_path: Path) -> None:
    failing = Failing()

    async def work(here: House) -> None:
        agents = [await greeted(here) for _ in range(8)]
        for _ in range(6):
            verdicts = [await agent.tool() for agent in agents]
            assert {verdict.decision for verdict in verdicts} == {"allow"}
        for agent in agents:
            replay = await agent.post(agent.sent[1])
            assert isinstance(replay, Refusal)
            assert replay.code == -32005
        assert failing.store.loads > 40
        assert here.guardian.cached_sessions <= SMALL.max_cached_sessions

    running(tmp_path, work, wrap=failing, settings=SMALL)


@pytest.mark.parametrize("parallel", [2, 20])
def test_copies_that_arrive_at_once_are_decided_once(tmp_path: Path, parallel: int) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        body = agent.body("steps/toolCallRequest", TOOL_CALL)
        answers = await asyncio.gather(*(agent.post(body) for _ in range(parallel)))
        assert sum(not isinstance(answer, Refusal) for answer in answers) == 1

    running(tmp_path, work, policy=engine())
