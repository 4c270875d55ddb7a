"""Turns of pools: given to who has their runners, and to nobody else."""

from dataclasses import replace

from tests.contract.store_rig import AGENT, Rig, with_store

from turnkeeper.turns.model import Session
from turnkeeper.turns.ports import NewSession


async def session_of(rig: Rig, pool: str | None) -> Session:
    """A session of an agent that the pool's runners run."""
    agent = await rig.store.create_agent(replace(AGENT, pool=pool))
    assert agent.pool == pool
    return await rig.store.create_session(NewSession(agent.id, None, "{}", None))


@with_store
async def test_a_pools_turn_is_claimed_for_the_pool_alone(rig: Rig) -> None:
    far = await rig.post((await session_of(rig, "gpu")).id)
    assert await rig.store.claim("worker", slot=True) is None
    assert await rig.store.claim("worker", slot=True, pool="cpu") is None
    here = await rig.post((await session_of(rig, None)).id)
    claimed = await rig.store.claim("worker", slot=True, pool="gpu")
    assert (claimed and claimed.turn.id) == far.id
    assert await rig.store.claim("worker", slot=True, pool="gpu") is None
    assert (await rig.claim()).turn.id == here.id


@with_store
async def test_only_who_has_the_runners_takes_over_what_has_to_be_started(rig: Rig) -> None:
    await rig.post((await session_of(rig, "gpu")).id)
    claimed = await rig.store.claim("gone", slot=True, pool="gpu")
    assert claimed is not None
    assert await rig.store.held_by_others("other") == ()
    assert await rig.store.held_by_others("other", ["cpu"]) == ()
    (hold,) = await rig.store.held_by_others("other", ["cpu", "gpu"])
    assert hold.fence == claimed.fence


@with_store
async def test_anybody_ends_what_a_dead_worker_was_running_for_a_pool(rig: Rig) -> None:
    await rig.post((await session_of(rig, "gpu")).id)
    claimed = await rig.store.claim("gone", slot=True, pool="gpu")
    assert claimed is not None
    await rig.start(claimed.fence)
    (hold,) = await rig.store.held_by_others("other")
    assert [claim.turn.id for claim in await rig.store.take_over("other", [hold])] == [claimed.turn.id]
