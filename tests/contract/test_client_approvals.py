"""A step that a person must agree to, from the agent's side, at the real Guardian (ACS 9, CORE-ASK-06)."""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Literal

import pytest
from tests.unit.guardian.kit import IN_PROCESS, KEYRING, House, engine, findings, running

from turnkeeper.client import (
    Allowed,
    ClientSettings,
    Denied,
    GuardianClient,
    Identity,
    InProcessTransport,
    StepDenied,
    StepPending,
    SystemTime,
    Timing,
)
from turnkeeper.clock import Clock, epoch_ms
from turnkeeper.guardian.approvals import ApprovalAnswer, Approver
from turnkeeper.store.guardian_desk import SqliteGuardianDesk

POLICY = b"""
version: 1
name: approvals
default: allow
rules:
  - id: wait
    hooks: [toolCallRequest]
    tools: [wait]
    decision: defer
    reasoning: Later.
    defer: {reason: low_confidence, resolution_method: human_approval, resolution_timeout_ms: 600000}
  - id: ask
    hooks: [toolCallRequest]
    tools: [shell]
    decision: ask
    reasoning: A person decides.
    ask: {question: "Run it?", timeout_seconds: 600, approver: {type: human, id: operators}}
"""
OPERATOR = Approver("key_1", "ana", "human", frozenset({"operators"}))
Producer = Literal["none", "deterministic"]


class TimeOfTheHouse(SystemTime):
    """The Guardian's wall time, and durations as they are."""

    def __init__(self, wall: Clock) -> None:
        self._wall = wall

    def now(self) -> datetime:
        """The wall time."""
        return self._wall.now()


def client(here: House, settings: ClientSettings) -> GuardianClient:
    """An agent that polls often."""

    async def answer(body: bytes) -> bytes:
        return await here.guardian.answer(body, IN_PROCESS)

    identity = Identity("agent", KEYRING)
    return GuardianClient(InProcessTransport(answer), identity, settings=settings, time=TimeOfTheHouse(here.clock))


def polling(producer: Producer = "none") -> ClientSettings:
    """Settings of an agent that asks again every few milliseconds."""
    return ClientSettings(timing=Timing(first_poll_ms=5, max_poll_ms=20), provenance=producer)


async def decide(here: House, decision: str) -> None:
    """What an operator says once there is a question."""
    store, now_ms = SqliteGuardianDesk(here.path), epoch_ms(here.clock.now())
    async with asyncio.timeout(30):
        while not (waiting := store.approvals(status=None, after=0, limit=9, now_ms=now_ms)):
            await asyncio.sleep(0.01)
    ((_, approval),) = waiting
    store.decide(approval.approval_id, ApprovalAnswer(decision), OPERATOR, now_ms)


async def one_call(guardian: GuardianClient) -> dict[str, object]:
    """A tool call in a turn of its own."""
    async with guardian.session() as session, session.turn() as turn:
        return await turn.tool_call_request("shell", {"command": "ls"})


@pytest.mark.parametrize("producer", ["none", "deterministic"])
def test_an_agent_waits_until_a_person_agrees_and_then_acts(tmp_path: Path, producer: Producer) -> None:
    """Its counts and its lineage are still what the Guardian has."""

    async def work(here: House) -> None:
        async with client(here, polling(producer)) as guardian:
            told, _ = await asyncio.gather(one_call(guardian), decide(here, "approve"))
        assert told == {"command": "ls"}
        assert findings(here) == []

    running(tmp_path, work, policy=engine(POLICY))


def test_an_agent_does_not_act_where_a_person_disagrees(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        async with client(here, polling()) as guardian:
            told, _ = await asyncio.gather(one_call(guardian), decide(here, "deny"), return_exceptions=True)
        assert isinstance(told, StepDenied)
        assert told.reason_codes == ("approval_denied",)

    running(tmp_path, work, policy=engine(POLICY))


def test_a_turn_may_be_left_and_the_step_resolved_in_a_later_one(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        settings = ClientSettings(pending="raise", timing=Timing(first_poll_ms=5))
        async with client(here, settings) as guardian, guardian.session() as session:
            with pytest.raises(StepPending) as waiting:
                async with session.turn() as turn:
                    await turn.tool_call_request("shell", {"command": "ls"})
            await decide(here, "approve")
            async with session.turn("auto_continuation") as turn:
                assert isinstance(await turn.resolve(waiting.value.pending), Allowed)
        assert findings(here) == []

    running(tmp_path, work, policy=engine(POLICY))


def test_a_deferred_turn_is_gone_on_with_under_its_own_id(tmp_path: Path) -> None:
    """The Guardian keeps its counts across the deferral."""

    async def work(here: House) -> None:
        settings = ClientSettings(pending="raise", timing=Timing(first_poll_ms=5))
        async with client(here, settings) as guardian, guardian.session() as session:
            with pytest.raises(StepPending) as waiting:
                async with session.turn() as turn:
                    await turn.tool_call_request("wait", {"command": "ls"})
            await decide(here, "approve")
            async with session.turn("auto_continuation", turn_id=waiting.value.pending.turn_id) as again:
                assert isinstance(await again.resolve(waiting.value.pending), Allowed)
        assert findings(here) == []

    running(tmp_path, work, policy=engine(POLICY))


def test_a_grant_that_was_used_is_used_up(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        settings = ClientSettings(pending="raise", timing=Timing(first_poll_ms=5))
        async with client(here, settings) as guardian, guardian.session() as session, session.turn() as turn:
            with pytest.raises(StepPending) as waiting:
                await turn.tool_call_request("shell", {"command": "ls"})
            await decide(here, "approve")
            assert isinstance(await turn.resolve(waiting.value.pending), Allowed)
            used = await turn.resubmit(waiting.value.pending)
            assert isinstance(used, Denied)
            assert used.reason_codes == ("approval_used",)

    running(tmp_path, work, policy=engine(POLICY))
