"""kill -9 of a Guardian under load, again and again: what it has answered stands, in one line, and nothing twice.

The short form is part of the suite; `make chaos-guardian` kills fifty times. A failure names its seed.
"""

import asyncio
import os
import random
from pathlib import Path

import httpx
import pytest
from tests.acceptance.guardian_alone import GuardianAlone
from tests.acceptance.guardian_load import Agent, Load, Told, check_line
from tests.acceptance.server import Json

from turnkeeper.acs import Disposition, Refusal

ROUNDS = int(os.environ.get("TURNKEEPER_CHAOS_ROUNDS", "5"))
SEED = int(os.environ.get("TURNKEEPER_CHAOS_SEED", "20261130"))
AGENTS = 8
MOST_DECISIONS = 200
REPEATS = 2

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 20 * ROUNDS)]


async def killed_again_and_again(guardian: GuardianAlone, load: Load, chance: random.Random) -> None:
    """Kills at a moment nobody chose, sometimes also while it starts, and asks again for what was answered."""
    async with load.running():
        for _ in range(ROUNDS):
            await load.more(chance.randint(1, MOST_DECISIONS))
            load.gone()
            await asyncio.to_thread(guardian.kill)
            if chance.random() < 0.2:
                await asyncio.to_thread(guardian.spawn)
                await asyncio.to_thread(guardian.kill)
            await asyncio.to_thread(guardian.start)
            load.back()
            async with httpx.AsyncClient(trust_env=False) as http:
                for agent in load.agents:
                    await ask_again(guardian.url, http, agent, chance)
        await load.more(MOST_DECISIONS)


async def ask_again(url: str, http: httpx.AsyncClient, agent: Agent, chance: random.Random) -> None:
    """An answered step is no new step: a copy is told nothing, its owner what was decided."""
    answered = list(agent.told.items())
    for request_id, earlier in [*answered[-REPEATS:], *chance.sample(answered, min(REPEATS, len(answered)))]:
        copied = agent.read((await http.post(url, content=earlier.body)).content, request_id)
        assert isinstance(copied, Refusal)
        # A copy of more than five minutes ago is too old to be looked up at all.
        assert copied.code in (-32005, -32006)
        assert copied.recorded is None
        signed = agent.signed(earlier.method, earlier.payload, request_id, turn_id=earlier.turn_id)
        repeat = agent.read((await http.post(url, content=signed)).content, request_id)
        assert isinstance(repeat, Refusal)
        assert repeat.recorded is not None
        assert (repeat.recorded.decision, repeat.recorded.chain_hash) == (earlier.decision, earlier.chain_hash)


def check_record(guardian: GuardianAlone, agents: list[Agent]) -> None:
    """The chain verifies without a finding and has every answer, in the order in which they were given."""
    report = guardian.verified()
    assert report["findings"] == []
    assert report["intact"] is True
    closed = {session["session_id"]: session["closed"] for session in report["sessions"]}
    assert closed == {agent.session_id: True for agent in agents}
    for agent in agents:
        check_line(agent.told, guardian.exported(agent.session_id))


def test_kills_under_load_lose_no_answer_and_accept_nothing_twice(tmp_path: Path) -> None:
    """Sessions go on across the restarts; every one of them ends in order."""
    chance = random.Random(SEED)
    with GuardianAlone(tmp_path) as guardian:

        async def main() -> Load:
            load = Load(guardian.url, guardian.keyring, agents=AGENTS)
            await killed_again_and_again(guardian, load, chance)
            return load

        load = asyncio.run(main())
        assert guardian.terminate() == 0
    assert load.statuses == {200}, f"seed {SEED}"
    assert not any(agent.undecided for agent in load.agents), f"seed {SEED}"
    check_record(guardian, load.agents)


def lined_up(*heads: str) -> list[Json]:
    """Rows of an export whose steps are named by their heads."""
    return [{"request": {"params": {"request_id": head}}, "entry": {"entry_hash": head}} for head in heads]


def told(head: str, *, sent_at: int, heard_at: int) -> Told:
    """An answer with a head of its own."""
    return Told("steps/toolCallRequest", {}, None, b"", Disposition.ALLOW, head, sent_at, heard_at)


@pytest.mark.parametrize("rows", [lined_up("a"), lined_up("b", "a"), lined_up("a", "b", "a")])
def test_a_lost_a_moved_and_a_doubled_step_would_be_seen(rows: list[Json]) -> None:
    answers = {"a": told("a", sent_at=0, heard_at=1), "b": told("b", sent_at=2, heard_at=3)}
    check_line(answers, lined_up("a", "b"))
    with pytest.raises(AssertionError):
        check_line(answers, rows)
