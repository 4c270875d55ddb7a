"""A turn that is stopped between its place in the queue and its first line of code (contract 6, row 12)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.unit.turns.rig import BY_USER, rig, script

from turnkeeper.events.envelope import NewEvent
from turnkeeper.testing.fake_clock import PATIENCE_TICKS
from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.turns import payloads, worker
from turnkeeper.turns.lease import Lease
from turnkeeper.turns.model import Fence, Turn


async def never_begins(harness: ScriptedHarness) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("mode", ["graceful", "immediate"])
def test_a_cancel_while_its_box_starts_ends_a_turn_that_never_ran(tmp_path: Path, mode: str) -> None:
    async def main() -> None:
        async with rig(tmp_path, never_begins) as made:
            turn_id = await made.post(await made.session())
            await made.until(turn_id, lambda turn: turn.status == "starting")
            await made.store.cancel_turn(turn_id, mode=mode, by=BY_USER)  # type: ignore[arg-type]
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            ends = [step.payload["outcome"] for step in made.guardian.entries if step.method == payloads.TURN_END]
            assert (turn.status, turn.attempt, ends) == ("canceled", 0, ["interrupted"])
            assert (await made.types(turn))[-1] == "turn.canceled"
            assert (made.sandbox.left_behind, turn.usage.by_model) == ([], ())

    asyncio.run(main())


class KnownLease(Lease):
    """A lease that a test can look at."""

    known: ClassVar[list[Lease]] = []

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.known.append(self)


def test_a_cancel_that_meets_the_start_half_way_ends_a_turn_that_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 19: it may not end as one that was still starting, nor as a fault of ours."""
    monkeypatch.setattr(worker, "Lease", KnownLease)

    async def main() -> None:
        async with rig(tmp_path, script(never_begins)) as made:
            started = made.store.started

            async def slowly(fence: Fence, events: Sequence[NewEvent], *, resumed: bool = False) -> Turn:
                running = await started(fence, events, resumed=resumed)
                await made.store.cancel_turn(fence.turn_id, mode="graceful", by=BY_USER)
                await KnownLease.known[-1].canceled.wait()
                for _ in range(PATIENCE_TICKS):
                    await asyncio.sleep(0)
                return running

            made.store.started = slowly  # type: ignore[method-assign]
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            assert (turn.status, turn.stop_reason, turn.attempt) == ("canceled", "canceled", 1)
            assert made.sandbox.left_behind == []

    asyncio.run(main())


def test_a_cancel_while_its_worker_asks_the_guardian_ends_a_turn_that_was_still_waiting(tmp_path: Path) -> None:
    """Row 2, in the last moment there is: the Guardian has let everything through."""

    async def main() -> None:
        async with rig(tmp_path) as made:
            starting = made.store.starting

            async def later(fence: Fence, events: Sequence[NewEvent]) -> Turn:
                await made.store.cancel_turn(fence.turn_id, mode="graceful", by=BY_USER)
                return await starting(fence, events)

            made.store.starting = later  # type: ignore[method-assign]
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            assert (turn.status, turn.attempt) == ("canceled", 0)
            assert "turn.starting" not in await made.types(turn)
            assert made.guardian.entries[-1].payload["outcome"] == "interrupted"

    asyncio.run(main())
