"""A Guardian that is told to stop, is frozen, or has more to do than it may, while many agents are at work."""

import asyncio
import os
import signal
import sqlite3
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests.acceptance.guardian_alone import GuardianAlone
from tests.acceptance.guardian_load import TOOL_CALL, Load, check_line

from turnkeeper.acs import Verdict

AGENTS = 6
DECISIONS = 60
MAX_IN_FLIGHT = 256
TOO_MANY = 40

pytestmark = pytest.mark.timeout(120)


def check_record(guardian: GuardianAlone, load: Load) -> None:
    """Every answer was HTTP 200 and stands in a chain that verifies."""
    assert load.statuses == {200}
    assert guardian.verified()["findings"] == []
    for agent in load.agents:
        assert agent.undecided == []
        check_line(agent.told, guardian.exported(agent.session_id))


def test_sigterm_under_load_answers_what_it_has_taken_and_loses_nothing(tmp_path: Path) -> None:
    """A step is answered or was never taken: nobody has to learn from a repeat what became of it."""

    async def main(guardian: GuardianAlone) -> Load:
        load = Load(guardian.url, guardian.keyring, agents=AGENTS)
        async with load.running():
            for _ in range(2):
                await load.more(DECISIONS)
                load.gone()
                assert await asyncio.to_thread(guardian.terminate) == 0
                await asyncio.to_thread(guardian.start)
                load.back()
            await load.more(DECISIONS)
        return load

    with GuardianAlone(tmp_path) as guardian:
        load = asyncio.run(main(guardian))
        assert [agent.recovered for agent in load.agents] == [0] * AGENTS
        check_record(guardian, load)


def test_a_guardian_that_was_frozen_goes_on_with_every_session(tmp_path: Path) -> None:
    async def main(guardian: GuardianAlone) -> Load:
        load = Load(guardian.url, guardian.keyring, agents=AGENTS)
        async with load.running():
            await load.more(DECISIONS)
            os.kill(guardian.pid, signal.SIGSTOP)
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(guardian.url, content=b"{}", timeout=0.5, trust_env=False)
            os.kill(guardian.pid, signal.SIGCONT)
            await load.more(DECISIONS)
        return load

    with GuardianAlone(tmp_path) as guardian:
        check_record(guardian, asyncio.run(main(guardian)))


async def many_at_once(guardian: GuardianAlone, load: Load, ids: list[str]) -> tuple[dict[str, bytes], list[Verdict]]:
    """Steps over a connection each while the store waits for a lock, until the first answers are there."""
    lock, agent = sqlite3.connect(guardian.database, isolation_level=None), load.agents[0]
    bodies = {one: agent.signed("steps/toolCallRequest", TOOL_CALL, one) for one in ids}
    async with load.http as http:
        await agent.shake_hands()
        lock.execute("BEGIN IMMEDIATE")
        posts = [asyncio.create_task(http.post(guardian.url, content=body)) for body in bodies.values()]
        await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        lock.execute("ROLLBACK")
        responses = await asyncio.gather(*posts)
    lock.close()
    answers = [agent.read(response.content, one) for one, response in zip(ids, responses, strict=True)]
    return bodies, [answer for answer in answers if isinstance(answer, Verdict)]


def test_more_steps_than_may_be_in_flight_are_denied_and_may_be_sent_again(tmp_path: Path) -> None:
    ids = [str(uuid4()) for _ in range(MAX_IN_FLIGHT + TOO_MANY)]
    with GuardianAlone(tmp_path) as guardian:
        load = Load(guardian.url, guardian.keyring, agents=1, connections=len(ids))
        bodies, verdicts = asyncio.run(many_at_once(guardian, load, ids))
        assert len(verdicts) == len(ids)
        assert {(verdict.decision, verdict.reason_codes) for verdict in verdicts} >= {("deny", ("overloaded",))}
        assert {verdict.reason_codes for verdict in verdicts} <= {(), ("overloaded",), ("store_failed",)}
        denied = next(one for one, verdict in zip(ids, verdicts, strict=True) if verdict.decision == "deny")
        again = load.agents[0].read(httpx.post(guardian.url, content=bodies[denied], trust_env=False).content, denied)
        assert isinstance(again, Verdict)
        assert again.decision == "allow"
        assert guardian.verified()["findings"] == []
