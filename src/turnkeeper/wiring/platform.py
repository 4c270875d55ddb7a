"""The whole platform in one process: store, Guardian, boxes, models, worker, API, started and stopped in order.

Answers for the order: whatever is started is stopped in reverse, and the worker stops before anything it needs. Holds
no rule of its own.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from turnkeeper.api.app import build_api
from turnkeeper.api.deps import ApiDeps, ApiSettings, Readiness
from turnkeeper.api.stream_registry import StreamRegistry
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir, load_or_make_key
from turnkeeper.guardian.http import AsgiApp
from turnkeeper.ids import RandomIds
from turnkeeper.sandbox.gateway import ModelGateway
from turnkeeper.sandbox.providers import TUNABLE_PARAMETERS
from turnkeeper.sandbox.tools import TOOLS
from turnkeeper.settings import Settings
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.store.tx import StoreLimits
from turnkeeper.turns.schema_check import ProcessSchemaChecker
from turnkeeper.turns.timing import LoopWaiter
from turnkeeper.turns.wakeups import LocalWakeups
from turnkeeper.turns.workbench import Workbench, WorkerSettings
from turnkeeper.turns.worker import Worker
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.boxes import WorkerBoxes, make_driver
from turnkeeper.wiring.doors import dispatch
from turnkeeper.wiring.guardian import make_governor, open_guardian_side
from turnkeeper.wiring.models import OutputModes, WorkerGateway, provider_sources

MAX_DEAD_LETTERS_COUNTED: Final = 100


@dataclass(frozen=True, slots=True)
class Platform:
    """What runs. `asgi` serves both doors on one port; `api` is what the routes, and `run`, work with."""

    store: SqlTurnStore
    wakeups: LocalWakeups
    api: ApiDeps
    asgi: AsgiApp
    guardian: str


@asynccontextmanager
async def open_platform(configuration: Configuration, folder: DataDir) -> AsyncGenerator[Platform, None]:
    """Everything, running until the end of the block; the data dir is prepared and held by the caller.

    Raises whatever keeps a part from starting: `ConfigInvalid`, `SandboxUnavailable`, `StoreUnavailable`, and others.
    """
    base = Base(configuration, folder)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(base))
        side = await open_guardian_side(stack, base)
        checker = ProcessSchemaChecker()
        stack.push_async_callback(checker.close)
        driver = make_driver(base.settings.sandbox, folder, ids=base.ids, clock=base.clock)
        await driver.start()
        stack.push_async_callback(driver.stop)
        gateway = ModelGateway(clock=base.clock)
        stack.push_async_callback(gateway.close)
        sources = provider_sources(stack, base.settings.providers, configuration.provider_secrets)
        bench = Workbench(
            owner=f"{socket.gethostname()}:{os.getpid()}:{base.ids.uuid()}",
            exclusive=base.settings.store.url is None,
            store=store,
            governor=make_governor(base, store, side),
            boxes=WorkerBoxes(driver),
            gateway=WorkerGateway(gateway, sources),
            checker=checker,
            wakeups=base.wakeups,
            clock=base.clock,
            waiter=LoopWaiter(),
            ids=base.ids,
            workspaces=folder.workspaces,
            tools=TOOLS,
            output_mode_of=OutputModes(base.settings.providers),
            settings=_worker_settings(base.settings),
        )
        await stack.enter_async_context(_working(Worker(bench)))
        api = _api_deps(base, store, checker)
        yield Platform(store, base.wakeups, api, dispatch(build_api(api), side.acs, side.admin), side.name)


@asynccontextmanager
async def open_store(base: Base, *, read_only: bool = False) -> AsyncGenerator[SqlTurnStore, None]:
    """The turn store alone, as `keys`, `verify` and `doctor` need it; works beside a running server."""
    # The store uses its ids from threads, so nobody else may use the same source.
    store = await SqlTurnStore.open(
        store_url(base.settings, base.folder),
        clock=base.clock,
        ids=RandomIds(base.clock),
        wakeups=base.wakeups,
        limits=StoreLimits(
            queue_depth=base.settings.limits.queue_depth, cancel_grace_ms=base.settings.worker.cancel_grace_ms
        ),
        read_only=read_only,
    )
    try:
        yield store
    finally:
        await store.close()


def store_url(settings: Settings, folder: DataDir) -> str:
    """Where turns are kept: the setting, or SQLite in the data dir."""
    if settings.store.url is not None:
        return settings.store.url.get_secret_value()
    return f"sqlite:///{folder.turn_database}"


@asynccontextmanager
async def _working(worker: Worker) -> AsyncGenerator[None, None]:
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.drain()
        await running


def _worker_settings(settings: Settings) -> WorkerSettings:
    chosen = settings.worker
    return WorkerSettings(
        slots=chosen.slots,
        lease_ttl_ms=chosen.lease_ttl_ms,
        poll_ms=chosen.poll_ms,
        drain_ms=settings.server.drain_ms,
        cancel_grace_ms=chosen.cancel_grace_ms,
        budget_grace_ms=chosen.budget_grace_ms,
        inline_bytes=settings.limits.inline_bytes,
        text_bytes=settings.limits.text_bytes,
        result_bytes=settings.limits.result_bytes,
    )


def _api_deps(base: Base, store: SqlTurnStore, checker: ProcessSchemaChecker) -> ApiDeps:
    async def readiness() -> Readiness:
        await store.ping()
        dead = await store.dead_letters(MAX_DEAD_LETTERS_COUNTED)
        return Readiness(ready=True, checks={"store": True}, counters={"dead_letters": len(dead)})

    server, limits = base.settings.server, base.settings.limits
    return ApiDeps(
        store=store,
        news=base.wakeups,
        schema_checker=checker,
        clock=base.clock,
        ids=base.ids,
        cursor_secret=load_or_make_key(base.folder.cursor_key),
        readiness=readiness,
        providers=frozenset(base.settings.providers),
        tool_names=frozenset(TOOLS),
        model_params=TUNABLE_PARAMETERS,
        settings=ApiSettings(
            max_body_bytes=server.max_body_bytes,
            metadata_bytes=limits.metadata_bytes,
            text_bytes=limits.text_bytes,
            sse_heartbeat_ms=server.sse_heartbeat_ms,
            sse_max_age_ms=server.sse_max_age_ms,
            poll_ms=base.settings.worker.poll_ms,
        ),
        streams=StreamRegistry(max_streams=server.max_streams),
    )
