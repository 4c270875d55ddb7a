"""The platform in parts: an API without boxes, a worker without HTTP, each on a database and a Guardian they share.

Answers for refusing settings under which such a process would stand alone without anybody noticing.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from turnkeeper.api.app import build_api
from turnkeeper.api.deps import ApiDeps
from turnkeeper.api.stream_registry import StreamRegistry
from turnkeeper.config import ConfigInvalid, Configuration
from turnkeeper.datadir import DataDir
from turnkeeper.guardian.http import AsgiApp
from turnkeeper.settings import Settings
from turnkeeper.turns.schema_check import ProcessSchemaChecker
from turnkeeper.turns.worker import Worker
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.guardian import open_guardian_side
from turnkeeper.wiring.metrics import Metrics, measured, page_of
from turnkeeper.wiring.platform import api_deps, open_store, store_url
from turnkeeper.wiring.runners import open_pools, runner_door
from turnkeeper.wiring.session_retention import retaining
from turnkeeper.wiring.webhooks import delivering
from turnkeeper.wiring.workers import hearing, open_worker


@dataclass(frozen=True, slots=True)
class ApiProcess:
    """The turn API alone."""

    api: ApiDeps
    asgi: AsgiApp
    guardian: str


@dataclass(frozen=True, slots=True)
class WorkProcess:
    """A worker alone, the page of its figures, and the door for runners, which closes with `streams`."""

    worker: Worker
    page: AsgiApp
    runners: AsgiApp | None
    streams: StreamRegistry


@asynccontextmanager
async def open_api(configuration: Configuration, folder: DataDir) -> AsyncGenerator[ApiProcess]:
    """The turn API; its turns are run by others. Raises `ConfigInvalid`, `StoreUnavailable`, `SchemaOutdated`."""
    require_shared(configuration.settings, "api")
    base = Base(configuration, folder)
    metrics = Metrics(base.clock, process="api")
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(base, observe=metrics.committed))
        await stack.enter_async_context(hearing(store_url(base.settings, folder), base))
        side = await open_guardian_side(stack, base)
        checker = ProcessSchemaChecker()
        stack.push_async_callback(checker.close)
        api = replace(api_deps(base, store, checker), questions=side.questions, measures=metrics)
        yield ApiProcess(api, measured(build_api(api), metrics, base.clock), side.name)


@asynccontextmanager
async def open_work(configuration: Configuration, folder: DataDir) -> AsyncGenerator[WorkProcess]:
    """A worker with everything it needs, not yet at work. Raises as `open_platform` does, and `ConfigInvalid`."""
    require_shared(configuration.settings, "work")
    base = Base(configuration, folder)
    metrics = Metrics(base.clock, process="worker")
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(base, observe=metrics.committed))
        side = await open_guardian_side(stack, base)
        checker = ProcessSchemaChecker()
        stack.push_async_callback(checker.close)
        url = store_url(base.settings, folder)
        pools = open_pools(stack, base)
        worker = await open_worker(
            stack, base, store, side, checker, url=url, metrics=metrics, shows=False, runners=pools
        )
        if pools is not None:
            stack.push_async_callback(pools.close)
        await stack.enter_async_context(delivering(base, store, worker.owner, metrics))
        await stack.enter_async_context(retaining(base, store))
        streams = StreamRegistry()
        yield WorkProcess(worker, page_of(metrics), runner_door(base, pools, store, streams.draining, metrics), streams)


def require_shared(settings: Settings, command: str) -> None:
    """Raises `ConfigInvalid` unless database and Guardian are ones that several processes can share."""
    url = "" if settings.store.url is None else settings.store.url.get_secret_value()
    if not url.startswith("postgresql"):
        raise ConfigInvalid(
            f"`turnkeeper {command}` needs a store that processes share: store.url is not a PostgreSQL server",
            hint="Set store.url to postgresql+psycopg://…, or run everything with `turnkeeper serve`.",
        )
    if settings.guardian.url is None:
        raise ConfigInvalid(
            f"`turnkeeper {command}` needs a Guardian that processes share: guardian.url is not set",
            hint="Start `turnkeeper guardian` and set guardian.url and guardian.secret_file.",
        )
