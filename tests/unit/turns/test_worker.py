"""The worker from claim to ending, on a real store."""

import asyncio
from pathlib import Path

from tests.unit.turns.rig import rig


def test_a_turn_is_asked_for_run_answered_and_reported(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            assert (turn.status, turn.stop_reason, turn.text) == ("completed", "end_turn", "done")
            assert await made.types(turn) == [
                "turn.queued",
                "message.received",
                "turn.starting",
                "sandbox.ready",
                "turn.started",
                "model.called",
                "message.started",
                "message.completed",
                "sandbox.released",
                "turn.completed",
            ]
            assert made.guardian.written() == [
                "steps/sessionStart",
                "agbom/snapshot",
                "steps/agentTrigger",
                "steps/turnStart",
                "steps/userMessage",
                "steps/agentResponse",
                "steps/turnEnd",
            ]
            assert made.sandbox.left_behind == []

    asyncio.run(main())
