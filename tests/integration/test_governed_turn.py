"""A worker and a Guardian, both real, over signed bytes: what one states the other can verify."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.turns.rig import IMPATIENT, KEYRING, Rig, answer, rig, script

from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.guardian.verify import verify_stored
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import parse_rules
from turnkeeper.sandbox.protocol import ToolRequest, ToolResult
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.testing.recording_sandbox import HarnessScript, ScriptedHarness
from turnkeeper.turns import payloads
from turnkeeper.turns.governor import GovernorSettings
from turnkeeper.turns.ports import GuardianUnreachable
from turnkeeper.wiring.doors import InProcessLink
from turnkeeper.wiring.witness import witnesses

RULES = b"""
version: 1
name: test
default: allow
rules:
  - id: no-more-than-three-tool-calls
    hooks: [toolCallRequest]
    when: turn.tool_calls > 3
    decision: deny
    reasoning: At most three tool calls in a turn.
    reason_codes: [tool_call_limit]
"""
PATIENT = GovernorSettings(decision_timeout_ms=5_000, first_backoff_ms=5, max_backoff_ms=20)


class BadWire:
    """A link that drops, doubles and loses, as a seed says, and then lets everything through."""

    def __init__(self, seed: int, link: InProcessLink) -> None:
        self._random = random.Random(seed)
        self._link = link
        self._faults = 25

    async def exchange(self, body: bytes, *, timeout_ms: int) -> bytes:
        fault = self._random.randrange(6) if self._faults > 0 else 5
        self._faults -= fault < 4
        if fault == 0:
            raise GuardianUnreachable("dropped")
        answer = await self._link.exchange(body, timeout_ms=timeout_ms)
        if fault == 1:
            raise GuardianUnreachable("lost")
        if fault == 2:
            return await self._link.exchange(body, timeout_ms=timeout_ms)
        return b"<html>bad gateway</html>" if fault == 3 else answer


@asynccontextmanager
async def real_guardian(folder: Path, rules: bytes = RULES) -> AsyncGenerator[InProcessLink]:
    guardian = Guardian(
        store=SqliteGuardianStore(folder / "guardian.db"), engine=CelEngine(parse_rules(rules)), clock=SystemClock()
    )
    await guardian.start()
    try:
        yield InProcessLink(guardian, Door("in_process", KEYRING))
    finally:
        await guardian.stop()


async def assert_verified(made: Rig, folder: Path) -> None:
    """Both sides agree: every chain is intact, every head was witnessed, every count is the Guardian's own."""
    reader = SqliteChainReader(folder / "guardian.db")
    summaries = {summary.session_id: summary for summary in reader.sessions(limit=100)}
    async for witness in witnesses(made.store):
        report = verify_stored(
            reader,
            summaries[witness.acs_session_id],
            KEYRING,
            witnessed_heads=frozenset({witness.head} if witness.head else ()),
            platform_counts=witness.counts,
        )
        assert report.findings == ()
    assert list(reader.findings(limit=10)) == []


def calls_tools(count: int, told: list[str]) -> HarnessScript:
    """A harness that makes so many calls and keeps what became of them."""

    async def run(harness: ScriptedHarness) -> None:
        for number in range(count):
            result = await harness.ask(ToolRequest(f"c{number}", "shell", '{"command":"true"}'))
            assert isinstance(result, ToolResult)
            told.append(result.status)
        await harness.report("done")

    return script(run)


def test_a_session_of_turns_verifies_offline_from_both_sides(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[str] = []
        async with real_guardian(tmp_path) as link, rig(tmp_path, calls_tools(5, told), link=link) as made:
            session = await made.session()
            first, second = await made.run_turn(session), await made.run_turn(session)
            await made.settled(session.id)
            assert (first.status, second.status) == ("completed", "completed")
            assert told == ["ok", "ok", "ok", "denied", "denied"] * 2
            await assert_verified(made, tmp_path)

    asyncio.run(main())


def test_a_turn_that_lost_its_worker_is_closed_in_the_chain_before_the_next_begins(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[str] = []
        waiting = asyncio.Event()

        async def hangs_after_two(harness: ScriptedHarness) -> None:
            for number in range(2):
                await harness.ask(ToolRequest(f"c{number}", "shell", "{}"))
            waiting.set()
            await asyncio.Event().wait()

        scripts = (script(hangs_after_two), calls_tools(4, told))
        async with real_guardian(tmp_path) as link, rig(tmp_path, *scripts, link=link) as made:
            session = await made.session()
            lost = await made.post(session)
            after = await made.post(session)
            await waiting.wait()
            await made.stop()
            made.again()
            made.work()
            assert (await made.ended(lost)).stop_reason == "sandbox_lost"
            assert (await made.ended(after)).status == "completed"
            await made.settled(session.id)
            assert told == ["ok", "ok", "ok", "denied"]
            steps = [step.method for step in await made.store.steps(session.id)]
            assert steps.index(payloads.TURN_END) < len(steps) - 1 - steps[::-1].index(payloads.TURN_START)
            await assert_verified(made, tmp_path)

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_wire_does_both_sides_agree_in_the_end(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        told: list[str] = []
        async with real_guardian(tmp_path) as link:
            wire = BadWire(seed, link)
            async with rig(tmp_path, calls_tools(3, told), answer, link=wire, governor=PATIENT) as made:
                session = await made.session()
                turns = [await made.post(session) for _ in range(2)]
                for turn_id in turns:
                    turn = await made.ended(turn_id)
                    assert turn.error is None, turn.error
                await made.settled(session.id)
                ends = [step for step in await made.store.steps(session.id) if step.method == payloads.TURN_END]
                assert [step.state for step in ends] == ["answered", "answered"]
                await assert_verified(made, tmp_path)

    asyncio.run(main())


def test_a_guardian_that_comes_back_after_the_turn_hears_how_it_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with real_guardian(tmp_path) as link:
            gate = _Gate(link)

            async def cuts_the_wire(harness: ScriptedHarness) -> None:
                gate.shut = True
                await harness.report("done")

            async with rig(tmp_path, script(cuts_the_wire), link=gate, governor=IMPATIENT) as made:
                turn = await made.run_turn()
                assert turn.stop_reason == "guardian_unavailable"
                gate.shut = False
                await made.settled(turn.session_id)
                end = (await made.store.steps(turn.session_id))[-1]
                assert (end.method, end.state, end.decision) == (payloads.TURN_END, "answered", "allow")
                await assert_verified(made, tmp_path)

    asyncio.run(main())


class _Gate:
    def __init__(self, link: InProcessLink) -> None:
        self._link = link
        self.shut = False

    async def exchange(self, body: bytes, *, timeout_ms: int) -> bytes:
        if self.shut:
            raise GuardianUnreachable("nobody there")
        return await self._link.exchange(body, timeout_ms=timeout_ms)
