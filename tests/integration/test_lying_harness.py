"""A harness of the operator's own (kind `command`) that lies over its stdio, as a real process.

Each lie is contained (the turn has one ending and its process is gone), set right, and shown in the turn's events.
"""

import asyncio
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from tests.unit.turns.rig import SETTINGS, rig

from turnkeeper.clock import SystemClock
from turnkeeper.ids import RandomIds
from turnkeeper.sandbox.boxes import DriverSettings, LoopBoxOrder
from turnkeeper.sandbox.unsafe_none import UnsafeNoneDriver
from turnkeeper.testing.recording_sandbox import RecordingSandbox
from turnkeeper.turns.box_ports import LoopBox, LoopOrder, NetworkOrder, ToolBox
from turnkeeper.turns.governor import GovernorSettings
from turnkeeper.turns.model import AgentLimits, BoxSize, Turn, TurnStatus
from turnkeeper.turns.worker import Worker

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(240)]

LIAR: Final = Path(__file__).with_name("lying_harness.py")
SCHEMA: Final = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
PATIENT: Final = GovernorSettings(decision_timeout_ms=20_000, first_backoff_ms=5, max_backoff_ms=20)


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Loop boxes with the liar in them."""

    driver: UnsafeNoneDriver
    own: RecordingSandbox
    lie: str
    kind: str = "none"

    async def loop_box(self, order: LoopOrder) -> LoopBox:
        del order
        return await self.driver.loop_box(LoopBoxOrder((sys.executable, "-I", str(LIAR), self.lie)))

    async def tool_box(
        self, workspace: Path, size: BoxSize, network: NetworkOrder | None = None, *, skills: Path | None = None
    ) -> ToolBox:
        return await self.own.tool_box(workspace, size, network, skills=skills)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a turn: as its row says, and its events by type."""

    turn: Turn
    events: dict[str, dict[str, Any]]


def outcome(
    tmp_path: Path, lie: str, *, schema: str | None = None, timeout_ms: int = 60_000, ready_ms: int = 30_000
) -> Outcome:
    """One turn of a harness that lies."""

    async def main() -> Outcome:
        ids, clock = RandomIds(SystemClock()), SystemClock()
        driver = UnsafeNoneDriver(DriverSettings(tmp_path / "run", warm_boxes=0, ready_timeout_ms=ready_ms), ids, clock)
        await driver.start()
        try:
            settings = replace(SETTINGS, start_timeout_ms=20_000)
            async with rig(tmp_path, settings=settings, governor=PATIENT, start=False) as made:
                made.limits = AgentLimits(timeout_ms=timeout_ms)
                made.bench = replace(made.bench, boxes=_Boxes(driver, made.sandbox, lie))
                made.worker = Worker(made.bench)
                made.work()
                turn = await made.run_turn(schema=schema)
                return Outcome(turn, {event.type: orjson.loads(event.data) for event in await made.events(turn)})
        finally:
            await driver.stop()

    return asyncio.run(main())


def test_false_usage_is_not_counted_and_is_told(tmp_path: Path) -> None:
    seen = outcome(tmp_path, "usage")
    assert (seen.turn.status, seen.turn.usage.by_model) == (TurnStatus.COMPLETED, ())
    assert seen.events["usage.mismatch"]["reported"]["model_calls"] == 99


def test_a_budget_that_was_not_reached_is_not_believed(tmp_path: Path) -> None:
    seen = outcome(tmp_path, "budget")
    assert seen.turn.stop_reason == "end_turn"
    assert seen.events["report.normalized"]["fields"] == ["stop_reason"]


def test_a_result_that_was_never_valid_is_no_result(tmp_path: Path) -> None:
    seen = outcome(tmp_path, "result", schema=SCHEMA)
    assert (seen.turn.status, seen.turn.result_json, seen.turn.result_error) == (TurnStatus.COMPLETED, None, "invalid")


@pytest.mark.parametrize("lie", ["foreign type", "fence", "worker's frame", "garbage", "long line"])
def test_what_the_protocol_does_not_have_ends_the_turn_and_writes_nothing_else(tmp_path: Path, lie: str) -> None:
    seen = outcome(tmp_path, lie)
    assert seen.turn.error is not None
    assert (seen.turn.status, seen.turn.error.code) == (TurnStatus.FAILED, "harness_protocol_error")
    assert not {"turn.completed", "message.completed", "tool.completed"} & set(seen.events)
    assert "sandbox.released" in seen.events


def test_another_turns_id_starts_nothing(tmp_path: Path) -> None:
    seen = outcome(tmp_path, "another turn")
    assert (seen.turn.stop_reason, seen.turn.attempt) == ("sandbox_unavailable", 0)


def test_a_harness_that_leaves_is_lost(tmp_path: Path) -> None:
    seen = outcome(tmp_path, "leaves")
    assert (seen.turn.stop_reason, seen.events["sandbox.lost"]["reason"]) == ("sandbox_lost", "host_lost")


def test_a_harness_that_never_gets_ready_has_its_tries_and_no_more(tmp_path: Path) -> None:
    seen = outcome(tmp_path, "silent", ready_ms=500)
    assert (seen.turn.stop_reason, seen.turn.attempt, seen.turn.tries) == ("sandbox_unavailable", 0, 3)


def test_a_harness_that_says_nothing_more_has_its_time_and_no_more(tmp_path: Path) -> None:
    seen = outcome(tmp_path, "says nothing more", timeout_ms=1_000)
    assert (seen.turn.status, seen.turn.stop_reason) == (TurnStatus.FAILED, "timeout")
