"""The whole platform in one process: store, Guardian, boxes, models, worker, API, started and stopped in order.

Answers for the order: whatever is started is stopped in reverse, and the worker stops before anything it needs. Holds
no rule of its own.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from turnkeeper.api.app import build_api
from turnkeeper.api.deps import ApiDeps, ApiSettings
from turnkeeper.api.stream_registry import StreamRegistry
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir, load_or_make_key
from turnkeeper.destinations import parse_rules
from turnkeeper.events.webhooks.addresses import parse_networks
from turnkeeper.guardian.http import AsgiApp
from turnkeeper.ids import RandomIds
from turnkeeper.sandbox.providers import TUNABLE_PARAMETERS
from turnkeeper.sandbox.tools import TOOLS
from turnkeeper.sealing import Sealer
from turnkeeper.settings import LargestBoxSettings, Settings
from turnkeeper.store.turn_store import Observe, SqlTurnStore, unobserved
from turnkeeper.store.tx import StoreLimits
from turnkeeper.turns.model import BoxSize
from turnkeeper.turns.schema_check import ProcessSchemaChecker
from turnkeeper.turns.wakeups import LocalWakeups
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.contents import open_contents
from turnkeeper.wiring.doors import dispatch
from turnkeeper.wiring.guardian import open_guardian_side
from turnkeeper.wiring.harnesses import harness_offer
from turnkeeper.wiring.metrics import Metrics, measured
from turnkeeper.wiring.readiness import readiness
from turnkeeper.wiring.runners import open_pools, runner_door
from turnkeeper.wiring.session_retention import retaining
from turnkeeper.wiring.webhooks import delivering
from turnkeeper.wiring.workers import open_worker, working


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
    metrics = Metrics(base.clock, process="both")
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(base, observe=metrics.committed))
        side = await open_guardian_side(stack, base)
        checker = ProcessSchemaChecker()
        stack.push_async_callback(checker.close)
        pools = open_pools(stack, base)
        worker = await open_worker(
            stack, base, store, side, checker, url=store_url(base.settings, folder), metrics=metrics, runners=pools
        )
        await stack.enter_async_context(working(worker))
        if pools is not None:
            stack.push_async_callback(pools.close)
        await stack.enter_async_context(delivering(base, store, worker.owner, metrics))
        await stack.enter_async_context(retaining(base, store))
        api = replace(api_deps(base, store, checker), questions=side.questions, measures=metrics)
        yield Platform(
            store,
            base.wakeups,
            api,
            dispatch(
                measured(build_api(api), metrics, base.clock),
                side.acs,
                side.admin,
                runner_door(base, pools, store, api.streams.draining, metrics),
            ),
            side.name,
        )


@asynccontextmanager
async def open_store(
    base: Base, *, read_only: bool = False, observe: Observe = unobserved
) -> AsyncGenerator[SqlTurnStore, None]:
    """The turn store alone, as `keys`, `verify` and `doctor` need it; works beside a running server."""
    # The store uses its ids from threads, so nobody else may use the same source.
    store = await SqlTurnStore.open(
        store_url(base.settings, base.folder),
        clock=base.clock,
        ids=RandomIds(base.clock),
        wakeups=base.wakeups,
        limits=StoreLimits(
            queue_depth=base.settings.limits.queue_depth,
            key_queue_depth=base.settings.limits.key_queue_depth,
            cancel_grace_ms=base.settings.worker.cancel_grace_ms,
            pause_expiry_ms=base.settings.limits.pause_expiry_ms,
            retention_days=base.settings.retention.session_days,
            project_bytes=base.settings.files.project_bytes,
        ),
        read_only=read_only,
        observe=observe,
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


def api_deps(base: Base, store: SqlTurnStore, checker: ProcessSchemaChecker) -> ApiDeps:
    """What the routes work with."""

    server, limits = base.settings.server, base.settings.limits
    return ApiDeps(
        store=store,
        news=base.wakeups,
        schema_checker=checker,
        clock=base.clock,
        ids=base.ids,
        cursor_secret=load_or_make_key(base.folder.cursor_key),
        readiness=lambda: readiness(store, base.settings.guardian.url),
        webhooks=store.webhooks(),
        budgets=store.budgets(),
        creations=store.creations(),
        access=store.access(),
        retention=store.retention(),
        operations=store.operations(),
        files=store.files(),
        contents=open_contents(base, store),
        skills=store.skills(),
        secrets=store.secrets(Sealer(load_or_make_key(base.folder.secrets_key))),
        providers=frozenset(base.settings.providers),
        tool_names=frozenset(TOOLS),
        model_params=TUNABLE_PARAMETERS,
        settings=ApiSettings(
            max_body_bytes=server.max_body_bytes,
            metadata_bytes=limits.metadata_bytes,
            text_bytes=limits.text_bytes,
            inline_bytes=limits.inline_bytes,
            file_bytes=base.settings.files.max_bytes,
            upload_timeout_ms=base.settings.files.upload_timeout_ms,
            sse_heartbeat_ms=server.sse_heartbeat_ms,
            sse_max_age_ms=server.sse_max_age_ms,
            poll_ms=base.settings.worker.poll_ms,
            webhooks_allow_http=base.settings.webhooks.allow_http,
            webhook_networks=parse_networks(base.settings.webhooks.networks),
            largest_box=_largest_box(base.settings.sandbox.largest),
            harnesses=harness_offer(base.settings.harness),
            egress=parse_rules(base.settings.sandbox.egress.allow),
            pools=frozenset(base.settings.runners.pools),
        ),
        streams=StreamRegistry(max_streams=server.max_streams),
        texts=base.texts,
    )


def _largest_box(largest: LargestBoxSettings) -> BoxSize:
    return BoxSize(largest.cpu_millis, largest.memory_mib, largest.disk_mib)
