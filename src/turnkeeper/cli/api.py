"""`turnkeeper api`: the turn API alone; its turns are run by `turnkeeper work` on the same PostgreSQL.

The first SIGTERM or SIGINT stops gracefully: no new connections, streams closed with `deploy`. The second stops
at once.
"""

import asyncio
import socket
from typing import Annotated

import structlog
import typer

from turnkeeper import __version__
from turnkeeper.cli.listening import (
    GracefulServer,
    Stopping,
    bound_socket,
    run_loop,
    shown_address,
    spare_collector,
    uvicorn_config,
)
from turnkeeper.cli.options import ConfigFile, DataDirectory, load
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir
from turnkeeper.logs import setup_logging
from turnkeeper.wiring.processes import open_api

_log = structlog.get_logger(__name__)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(api)


def api(
    *,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 takes a free one.")] = None,
) -> None:
    """Serve the turn API (/v1), without running turns.

    Needs a PostgreSQL and a Guardian that it shares with `turnkeeper work`.
    """
    configuration = load(config, data_dir, server__host=host, server__port=port)
    setup_logging(configuration.settings.log.level, log_format=configuration.settings.log.format)
    folder = DataDir(configuration.settings.data_dir)
    folder.prepare()
    with bound_socket(configuration.settings.server) as bound:
        run_loop(_serve(configuration, folder, bound))


async def _serve(configuration: Configuration, folder: DataDir, bound: socket.socket) -> None:
    stopping = Stopping()
    try:
        async with open_api(configuration, folder) as process:
            server = GracefulServer(uvicorn_config(configuration.settings.server, process.asgi), process.api.streams)
            stopping.graceful = server.stop
            spare_collector()
            _log.info("started", version=__version__, guardian=process.guardian)
            typer.echo(f"Turnkeeper listens on {shown_address(bound)}")
            await server.serve(sockets=[bound])
            _log.info("stopping", streams=process.api.streams.open_count)
    except asyncio.CancelledError:
        if not stopping.at_once:
            raise
        _log.warning("stopped_at_once")
    else:
        _log.info("stopped")
