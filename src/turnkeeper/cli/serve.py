"""`turnkeeper serve`: turn API, worker and Guardian in one process.

The first SIGTERM or SIGINT stops gracefully: no new connections, streams closed with `deploy`, running turns given
`server.drain_ms`. The second stops at once; what was running is taken up by the next start.
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
    shown_address,
    spare_collector,
    uvicorn_config,
)
from turnkeeper.cli.options import ConfigFile, DataDirectory, load
from turnkeeper.clock import SystemClock
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir, hold
from turnkeeper.logs import setup_logging
from turnkeeper.settings import unsafe_choices
from turnkeeper.wiring.platform import Platform, open_platform

_log = structlog.get_logger(__name__)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(serve)


def serve(
    *,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 takes a free one.")] = None,
) -> None:
    """Run everything in one process.

    The turn API (/v1), the worker and the Guardian (/acs), until a signal.
    """
    configuration = load(config, data_dir, server__host=host, server__port=port)
    setup_logging(configuration.settings.log.level, log_format=configuration.settings.log.format)
    folder = DataDir(configuration.settings.data_dir)
    folder.prepare()
    held = hold(folder, command="turnkeeper serve", clock=SystemClock())
    with held, bound_socket(configuration.settings.server) as bound:
        asyncio.run(_serve(configuration, folder, bound))


async def _serve(configuration: Configuration, folder: DataDir, bound: socket.socket) -> None:
    stopping = Stopping()
    try:
        async with open_platform(configuration, folder) as platform:
            server = GracefulServer(uvicorn_config(configuration.settings.server, platform.asgi), platform.api.streams)
            stopping.graceful = server.stop
            spare_collector()
            _announce(configuration, platform, bound)
            await server.serve(sockets=[bound])
            _log.info("stopping", streams=platform.api.streams.open_count)
    except asyncio.CancelledError:
        if not stopping.at_once:
            raise
        _log.warning("stopped_at_once")
    else:
        _log.info("stopped")


def _announce(configuration: Configuration, platform: Platform, bound: socket.socket) -> None:
    for choice in unsafe_choices(configuration.settings):
        _log.warning("unsafe_choice", choice=choice)
    for name, provider in configuration.settings.providers.items():
        if provider.api_key_env is not None and name not in configuration.provider_secrets:
            _log.warning("provider_without_key", provider=name, variable=provider.api_key_env)
    _log.info(
        "started",
        version=__version__,
        data_dir=str(configuration.settings.data_dir),
        config_file=str(configuration.file) if configuration.file else None,
        guardian=platform.guardian,
        sandbox=configuration.settings.sandbox.kind,
        providers=sorted(configuration.settings.providers),
    )
    typer.echo(f"Turnkeeper listens on {shown_address(bound)}")
