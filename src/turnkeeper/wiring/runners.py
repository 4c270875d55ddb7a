"""Joins runners elsewhere to this process's worker. No rule of its own."""

import asyncio
from contextlib import AsyncExitStack

from turnkeeper.datadir import load_or_make_key
from turnkeeper.guardian.http import AsgiApp
from turnkeeper.runners.app import RunnerParts, build_runner_app
from turnkeeper.runners.calls import RunnerCalls
from turnkeeper.runners.leases import LeaseTerms
from turnkeeper.runners.pools import RunnerPools
from turnkeeper.runners.tokens import LeaseTokens, PoolTokens
from turnkeeper.sandbox.state_dir import StateDir, remove_tree
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.timing import LoopWaiter
from turnkeeper.turns.worker import QUEUE_TOPIC
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.metrics import Metrics


def open_pools(stack: AsyncExitStack, base: Base) -> RunnerPools | None:
    """The pools of the settings; None where there are none. Raises `SandboxUnavailable`."""
    settings = base.settings
    if not settings.runners.pools:
        return None
    sockets = StateDir(base.folder.boxes)
    sockets.open()
    stack.callback(sockets.close)
    return RunnerPools(
        settings.runners.pools,
        socket_dir=sockets.socket_dir,
        remove=remove_tree,
        stir=lambda: base.wakeups.ring(QUEUE_TOPIC),
        clock=base.clock,
        waiter=LoopWaiter(),
        ids=base.ids,
        ttl_ms=settings.worker.lease_ttl_ms,
    )


def runner_door(
    base: Base, pools: RunnerPools | None, store: SqlTurnStore, draining: asyncio.Event, metrics: Metrics
) -> AsgiApp | None:
    """What serves the runners; None where there are no pools."""
    if pools is None:
        return None
    settings = base.settings
    return build_runner_app(
        RunnerParts(
            pools,
            RunnerCalls(pools, store, base.wakeups, base.clock),
            PoolTokens({name: pool.token_sha256 for name, pool in settings.runners.pools.items()}),
            LeaseTokens(load_or_make_key(base.folder.runners_key)),
            LeaseTerms(settings.worker.lease_ttl_ms, settings.worker.cancel_grace_ms, settings.runners.url),
            base.ids,
            draining,
            metrics.refused_runner,
        )
    )
