"""The worker of a process, and what it shares with others on the same database: news, and who lives."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sqlalchemy import URL, make_url

from turnkeeper import trees
from turnkeeper.datadir import load_or_make_key
from turnkeeper.runners.pools import RunnerPools
from turnkeeper.sandbox.gateway import ModelGateway
from turnkeeper.sandbox.stranded import count_stranded
from turnkeeper.sandbox.tools import TOOLS
from turnkeeper.sealing import Sealer
from turnkeeper.settings import Settings
from turnkeeper.store.dialects.postgres_texts import PostgresTexts
from turnkeeper.store.dialects.sqlite_workers import WorkerFiles
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.box_ports import NoRunners
from turnkeeper.turns.schema_check import ProcessSchemaChecker
from turnkeeper.turns.takeover import Liveness
from turnkeeper.turns.timing import LoopWaiter
from turnkeeper.turns.workbench import Workbench, WorkerSettings
from turnkeeper.turns.worker import Worker
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.boxes import WorkerBoxes, make_driver, order_of
from turnkeeper.wiring.contents import open_contents
from turnkeeper.wiring.egress import open_egress
from turnkeeper.wiring.guardian import GuardianSide, make_governor
from turnkeeper.wiring.harnesses import BoxOrders
from turnkeeper.wiring.metrics import Metrics
from turnkeeper.wiring.models import (
    ContextWindows,
    ModelWires,
    OutputModes,
    ToolCallings,
    WorkerGateway,
    gateway_limits,
    provider_sources,
)

if TYPE_CHECKING:
    from turnkeeper.store.dialects.postgres_news import PostgresNews


async def open_worker(
    stack: AsyncExitStack,
    base: Base,
    store: SqlTurnStore,
    side: GuardianSide,
    checker: ProcessSchemaChecker,
    *,
    url: str,
    metrics: Metrics,
    shows: bool = True,
    runners: RunnerPools | None = None,
) -> Worker:
    """A worker with its boxes, not yet at work. `url` is the store's; `shows` says that the process has an API too;
    `runners` come to it for turns of their pools.

    Raises `SandboxUnavailable`, `OwnerTaken`.
    """
    settings = base.settings
    driver = make_driver(settings.sandbox, base.folder, ids=base.ids, clock=base.clock)
    await driver.start()
    stack.push_async_callback(driver.stop)
    # What an earlier process left when it was killed; no turn of this one has begun.
    await asyncio.to_thread(trees.remove, base.folder.skills)
    gateway = ModelGateway(limits=gateway_limits(settings.gateway), clock=base.clock)
    stack.push_async_callback(gateway.close)
    sources = provider_sources(stack, settings.providers, base.configuration.provider_secrets)
    aliases = {name: provider.model_aliases for name, provider in settings.providers.items()}
    owner = f"{socket.gethostname()}:{os.getpid()}:{base.ids.uuid()}"
    bench = Workbench(
        owner=owner,
        liveness=await stack.enter_async_context(working_as(owner, url, base, shows=shows)),
        store=store,
        governor=make_governor(base, store, side, metrics),
        boxes=WorkerBoxes(
            driver,
            BoxOrders(settings.harness, settings.providers, order_of),
            open_egress(stack, settings.sandbox, base.folder, base.clock),
            runners,
        ),
        gateway=WorkerGateway(gateway, sources, aliases),
        checker=checker,
        files=store.files(),
        contents=open_contents(base, store),
        wakeups=base.wakeups,
        clock=base.clock,
        waiter=LoopWaiter(),
        ids=base.ids,
        workspaces=base.folder.workspaces,
        skill_folders=base.folder.skills,
        tools=TOOLS,
        output_mode_of=OutputModes(settings.providers),
        tool_calling_of=ToolCallings(settings.providers),
        window_of=ContextWindows(settings.providers),
        wire_of=ModelWires(settings.providers),
        settings=_worker_settings(settings),
        questions=side.questions,
        texts=base.texts,
        vault=store.secrets(Sealer(load_or_make_key(base.folder.secrets_key))),
        measures=metrics,
        runners=runners or NoRunners(),
    )
    worker = Worker(bench)
    metrics.watch({"turnkeeper_worker_turns": lambda: worker.active, "turnkeeper_orphan_sandboxes": count_stranded})
    return worker


@asynccontextmanager
async def working(worker: Worker) -> AsyncGenerator[None]:
    """The worker is at work until the end of the block, and drained then."""
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.drain()
        await running


@asynccontextmanager
async def working_as(owner: str, url: str, base: Base, *, shows: bool = True) -> AsyncGenerator[Liveness]:
    """This process is the worker `owner` until the end of the block; who can tell of the others' ends.

    With `shows` it hears what agents write elsewhere.
    """
    database = make_url(url)
    if database.drivername == "sqlite":
        files = WorkerFiles(Path(str(database.database)))
        with files.hold(owner):
            yield files
        return
    news = _postgres_news(database, base, owner, shows=shows)
    async with news.opened():
        yield news


@asynccontextmanager
async def hearing(url: str, base: Base) -> AsyncGenerator[None]:
    """What other processes commit is news here, until the end of the block; for a process that is no worker."""
    database = make_url(url)
    if database.drivername == "sqlite":
        yield
        return
    async with _postgres_news(database, base, None, shows=True).opened():
        yield


def _postgres_news(url: URL, base: Base, owner: str | None, *, shows: bool) -> "PostgresNews":
    # Its driver is an extra that an installation on SQLite does not have.
    module = import_module("turnkeeper.store.dialects.postgres_news")
    texts = PostgresTexts(base.texts, base.clock, shows=shows)
    return cast("type[PostgresNews]", module.PostgresNews)(url, base.wakeups, owner, texts)


def _worker_settings(settings: Settings) -> WorkerSettings:
    chosen = settings.worker
    return WorkerSettings(
        slots=chosen.slots,
        lease_ttl_ms=chosen.lease_ttl_ms,
        poll_ms=chosen.poll_ms,
        reap_ms=chosen.reap_ms,
        drain_ms=settings.server.drain_ms,
        cancel_grace_ms=chosen.cancel_grace_ms,
        budget_grace_ms=chosen.budget_grace_ms,
        pause_warm_ms=chosen.pause_warm_ms,
        pause_expiry_ms=settings.limits.pause_expiry_ms,
        inline_bytes=settings.limits.inline_bytes,
        text_bytes=settings.limits.text_bytes,
        result_bytes=settings.limits.result_bytes,
        tool_output_bytes=settings.limits.tool_output_bytes,
        output_files=settings.files.max_outputs,
        output_file_bytes=settings.files.max_bytes,
        output_total_bytes=settings.files.max_outputs_bytes,
        max_destinations=settings.sandbox.egress.destinations,
    )
