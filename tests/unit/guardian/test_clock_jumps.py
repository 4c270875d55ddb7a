"""A wall clock that jumps under a running Guardian: steps outside the window are refused, nothing is taken twice."""

from pathlib import Path

import pytest
from tests.unit.guardian.kit import KEYRING, TOOL_CALL, Agent, House, engine, greeted, running
from tests.unit.guardian.test_approvals import POLICY, again, answer, asked

from turnkeeper.acs import Refusal
from turnkeeper.acs.replay import DEFAULT_SKEW_WINDOW_MS
from turnkeeper.clock import render_time
from turnkeeper.guardian.verify import verify_stored
from turnkeeper.store.chain_reader import SqliteChainReader

HOUR_MS = 3_600_000
INSIDE_MS = DEFAULT_SKEW_WINDOW_MS - 1_000


def problems(here: House, agent: Agent) -> list[str]:
    """What `verify` has to say about an agent's session."""
    with SqliteChainReader(here.path) as reader:
        (summary,) = [one for one in reader.sessions(limit=9) if one.session_id == agent.session_id]
        return [found.code for found in verify_stored(reader, summary, KEYRING).findings]


@pytest.mark.parametrize("jump_ms", [-HOUR_MS, HOUR_MS])
def test_a_step_is_refused_while_the_clocks_disagree_and_taken_when_they_agree_again(
    tmp_path: Path, jump_ms: int
) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        right = render_time(here.clock.now())
        here.clock.jump(jump_ms)
        refusal = await agent.refused("toolCallRequest", TOOL_CALL, timestamp=right)
        assert (refusal.code, refusal.reason) == (-32006, "timestamp_out_of_window")
        here.clock.jump(-jump_ms)
        assert (await agent.tool()).decision == "allow"
        assert problems(here, agent) == []

    running(tmp_path, work)


def test_an_old_message_does_not_become_new_when_the_clock_jumps_back_to_its_time(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        body = agent.body("steps/toolCallRequest", TOOL_CALL)
        await agent.post(body)
        here.clock.jump(HOUR_MS)
        assert (await agent.tool()).decision == "allow"
        here.clock.jump(-HOUR_MS)
        copied = await agent.post(body)
        assert isinstance(copied, Refusal)
        assert copied.code == -32005
        assert problems(here, agent) == []

    running(tmp_path, work)


def test_the_memory_of_a_replay_outlives_a_restart_with_a_clock_in_the_past(tmp_path: Path) -> None:
    async def before(here: House) -> tuple[str, bytes]:
        agent = await greeted(here)
        body = agent.body("steps/toolCallRequest", TOOL_CALL)
        await agent.post(body)
        here.clock.jump(HOUR_MS)
        await agent.tool()
        return agent.session_id, body

    session_id, body = running(tmp_path, before)

    async def after(here: House) -> None:
        copied = await here.agent(session_id=session_id).post(body)
        assert isinstance(copied, Refusal)
        assert copied.code == -32005

    running(tmp_path, after)


def test_timestamps_that_go_back_within_the_window_break_no_chain(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        here.clock.jump(INSIDE_MS)
        await agent.tool()
        here.clock.jump(-INSIDE_MS)
        assert (await agent.tool()).decision == "allow"
        assert problems(here, agent) == []

    running(tmp_path, work)


def test_a_grant_that_was_used_stays_used_when_the_clock_jumps_back(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        question = await asked(agent)
        answer(here)
        here.clock.jump(1_000)
        assert (await again(agent, question)).decision == "allow"
        here.clock.jump(-1_000)
        assert (await again(agent, question)).decision == "deny"
        assert problems(here, agent) == []

    running(tmp_path, work, policy=engine(POLICY))
