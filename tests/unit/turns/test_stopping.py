"""A turn that is stopped between its place in the queue and its first line of code (contract 6, row 12)."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.turns.rig import BY_USER, rig

from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.turns import payloads


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
