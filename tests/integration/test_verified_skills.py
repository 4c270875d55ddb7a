"""Skills before a real Guardian, on a bad wire and in turns that are cut short: chains verify and pairs close."""

import asyncio
from pathlib import Path

import pytest
from tests.integration.test_governed_turn import PATIENT, BadWire, assert_verified, real_guardian
from tests.unit.turns.rig import Rig, rig
from tests.unit.turns.skill_parts import LOAD, Loading, keep
from tests.unit.turns.test_skills import SHELL
from tests.unit.turns.test_subagents import holding

from turnkeeper.turns import payloads
from turnkeeper.turns.model import CanceledBy, Turn


async def closed(made: Rig, folder: Path, turn: Turn) -> None:
    """The turn's loads and unloads are as many, and both sides agree about all of it."""
    await made.settled(turn.session_id)
    steps = await made.store.steps(turn.session_id)
    loads = [step for step in steps if step.method == payloads.SKILL_LOAD and step.decision == "allow"]
    assert len(loads) == sum(step.method == payloads.SKILL_UNLOAD for step in steps) == 1
    await assert_verified(made, folder)


@pytest.mark.parametrize("seed", range(3))
def test_a_wire_that_drops_doubles_and_loses_leaves_no_load_open(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        async with real_guardian(tmp_path) as link:
            bad = BadWire(seed, link)
            async with rig(tmp_path, Loading(LOAD, SHELL), link=bad, governor=PATIENT) as made:
                await keep(made)
                await closed(made, tmp_path, await made.run_turn())

    asyncio.run(main())


@pytest.mark.parametrize("how", ["cancel", "crash"])
def test_a_turn_that_is_cut_short_closes_its_load_in_the_chain(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        held = asyncio.Event()
        async with real_guardian(tmp_path) as link, rig(tmp_path, Loading(LOAD, SHELL), link=link) as made:
            await keep(made)
            made.sandbox.tool = holding(held)
            turn_id = await made.post(await made.session())
            async with asyncio.timeout(60):
                await held.wait()
            if how == "cancel":
                await made.store.cancel_turn(turn_id, mode="graceful", by=CanceledBy("user", None))
            else:
                await made.stop()
                made.again()
                made.work()
            await closed(made, tmp_path, await made.ended(turn_id))

    asyncio.run(main())
