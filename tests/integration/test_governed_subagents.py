"""Subagents before a real Guardian: every chain verifies from both sides, whatever the wire and the worker do."""

import asyncio
from pathlib import Path

import pytest
from tests.integration.test_governed_turn import PATIENT, BadWire, assert_verified, real_guardian
from tests.unit.turns.rig import Rig, rig
from tests.unit.turns.test_subagents import READER, Delegating, hanging, holding

from turnkeeper.guardian.export import export_lines
from turnkeeper.ids import uuid_of
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.turns.model import CanceledBy


async def threads_of(made: Rig, session_id: str) -> list[str]:
    steps = await made.store.thread_steps(session_id)
    return list(dict.fromkeys(step.thread_id for step in steps if step.thread_id is not None))


def test_a_turn_with_a_subagent_verifies_in_both_chains(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Delegating()
        async with real_guardian(tmp_path) as link, rig(tmp_path, agent, link=link, governor=PATIENT) as made:
            made.subagents = (READER,)
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            await assert_verified(made, tmp_path)
            threads = await threads_of(made, turn.session_id)
            reader = SqliteChainReader(tmp_path / "guardian.db")
            assert len(threads) == 1
            exported = list(export_lines(reader, uuid_of(threads[0])))
            # The hello, and its nine steps.
            assert len(exported) == 10

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
def test_a_wire_that_drops_doubles_and_loses_leaves_no_pair_open(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        async with real_guardian(tmp_path) as link:
            bad = BadWire(seed, link)
            async with rig(tmp_path, Delegating(), link=bad, governor=PATIENT) as made:
                made.subagents = (READER,)
                turn = await made.run_turn()
                await made.settled(turn.session_id)
                await assert_verified(made, tmp_path)

    asyncio.run(main())


@pytest.mark.parametrize("how", ["cancel", "crash"])
def test_a_turn_that_is_cut_short_closes_its_subagent_in_both_chains(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        held = asyncio.Event()
        async with real_guardian(tmp_path) as link, rig(tmp_path, Delegating(hanging), link=link) as made:
            made.subagents = (READER,)
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
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            await assert_verified(made, tmp_path)
            assert len(await threads_of(made, turn.session_id)) == 1

    asyncio.run(main())
