"""`turnkeeper work`: a worker alone, beside others on the same PostgreSQL.

The first SIGTERM or SIGINT takes no more turns and lets those that run end within `server.drain_ms`; the second stops
at once, and another worker takes over what was running.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import structlog
import typer

from turnkeeper import __version__
from turnkeeper.api.stream_registry import StreamRegistry
from turnkeeper.cli.listening import GracefulServer, Stopping, bound_socket, shown_address, uvicorn_config
from turnkeeper.cli.options import ConfigFile, DataDirectory, load
from turnkeeper.clock import SystemClock
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir, hold
from turnkeeper.guardian.http import AsgiApp
from turnkeeper.logs import setup_logging
from turnkeeper.settings import ServerSettings, Settings, unsafe_choices
from turnkeeper.wiring.processes import WorkProcess, open_work

_log = structlog.get_logger(__name__)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(work)


def work(*, config: ConfigFile = None, data_dir: DataDirectory = None) -> None:
    """Run turns, without an API.

    Several workers share a PostgreSQL and a Guardian; each has a data dir of its own.
    """
    configuration = load(config, data_dir)
    setup_logging(configuration.settings.log.level, log_format=configuration.settings.log.format)
    folder = DataDir(configuration.settings.data_dir)
    folder.prepare()
    with hold(folder, command="turnkeeper work", clock=SystemClock()):
        asyncio.run(_work(configuration, folder))


async def _work(configuration: Configuration, folder: DataDir) -> None:
    stopping = Stopping()
    try:
        async with open_work(configuration, folder) as process, _doors(configuration.settings, process):
            worker = process.worker
            stopping.graceful = worker.drain
            for choice in unsafe_choices(configuration.settings):
                _log.warning("unsafe_choice", choice=choice)
            _log.info("started", version=__version__, worker=worker.owner, slots=configuration.settings.worker.slots)
            typer.echo(f"Turnkeeper works as {worker.owner}")
            await worker.run()
    except asyncio.CancelledError:
        if not stopping.at_once:
            raise
        _log.warning("stopped_at_once")
    else:
        _log.info("stopped")


@asynccontextmanager
async def _doors(settings: Settings, process: WorkProcess) -> AsyncGenerator[None]:
    """Shows the figures, and serves runners, where the settings say so, until the end of the block."""
    worker, runners = settings.worker, settings.runners
    async with AsyncExitStack() as stack:
        if worker.metrics_port is not None:
            here = _at(settings, worker.metrics_host, worker.metrics_port)
            shown = await stack.enter_async_context(_serving(here, process.page, StreamRegistry()))
            _log.info("showing_metrics", address=shown)
        if runners.port is not None and process.runners is not None:
            here = _at(settings, runners.host, runners.port)
            shown = await stack.enter_async_context(_serving(here, process.runners, process.streams))
            _log.info("serving_runners", address=shown, pools=sorted(runners.pools))
        yield


def _at(settings: Settings, host: str, port: int) -> ServerSettings:
    return settings.server.model_copy(update={"host": host, "port": port})


@asynccontextmanager
async def _serving(here: ServerSettings, app: AsgiApp, streams: StreamRegistry) -> AsyncGenerator[str]:
    """The address of a port that is open until the end of the block."""
    with bound_socket(here) as bound:
        server = GracefulServer(uvicorn_config(here, app), streams)
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            yield shown_address(bound)
        finally:
            server.stop()
            await serving
