"""`turnkeeper serve`: turn API, worker and Guardian in one process.

The first SIGTERM or SIGINT stops gracefully: no new connections, streams closed with `deploy`, running turns given
`server.drain_ms`. The second stops at once; what was running is taken up by the next start.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Generator
from typing import Annotated

import structlog
import typer
import uvicorn

from turnkeeper import __version__
from turnkeeper.api.server import ApiServer
from turnkeeper.cli.options import ConfigFile, DataDirectory, load
from turnkeeper.clock import SystemClock
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir, hold
from turnkeeper.errors import TurnkeeperError
from turnkeeper.logs import setup_logging
from turnkeeper.settings import ServerSettings, unsafe_choices
from turnkeeper.wiring.platform import Platform, open_platform

_log = structlog.get_logger(__name__)


class AddressUnusable(TurnkeeperError):
    """The address to listen on is taken, or is not ours."""

    code = "address_unusable"


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
    with hold(folder, command="turnkeeper serve", clock=SystemClock()), _bound(configuration.settings.server) as bound:
        asyncio.run(_serve(configuration, folder, bound))


@contextlib.contextmanager
def _bound(server: ServerSettings) -> Generator[socket.socket, None, None]:
    """A socket at the address, before anything else is started: a taken port is the most common mistake."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's algorithm off only where it is: 40 ms an answer otherwise.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((server.host, server.port))
        except OSError as error:
            raise AddressUnusable(
                f"{server.host} port {server.port} cannot be listened on: {error.strerror}",
                hint="Choose another with --port, or 0 for a free one.",
            ) from error
        yield bound


async def _serve(configuration: Configuration, folder: DataDir, bound: socket.socket) -> None:
    stopping = _Stopping()
    try:
        async with open_platform(configuration, folder) as platform:
            server = _Server(_uvicorn_config(configuration.settings.server, platform), platform.api.streams)
            stopping.graceful = server.stop
            _announce(configuration, platform, bound)
            await server.serve(sockets=[bound])
            _log.info("stopping", streams=platform.api.streams.open_count)
    except asyncio.CancelledError:
        if not stopping.at_once:
            raise
        _log.warning("stopped_at_once")
    else:
        _log.info("stopped")


class _Server(ApiServer):
    """Listens; leaves signals to whoever runs it."""

    def stop(self) -> None:
        """Begins the graceful end."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """No handlers of its own: a signal during the start or the drain has to count too."""
        yield


class _Stopping:
    """What signals do: the first begins the graceful end, the second cancels whatever still waits."""

    def __init__(self) -> None:
        self.at_once = False
        self.graceful = self._cancel
        self._signals = 0
        self._main = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._arrived)

    def _arrived(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self.graceful()
        else:
            self._cancel()

    def _cancel(self) -> None:
        self.at_once = True
        if self._main is not None:
            self._main.cancel()


def _uvicorn_config(server: ServerSettings, platform: Platform) -> uvicorn.Config:
    return uvicorn.Config(
        platform.asgi,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=server.max_connections,
        timeout_graceful_shutdown=max(1, server.drain_ms // 1000),
    )


def _announce(configuration: Configuration, platform: Platform, bound: socket.socket) -> None:
    for choice in unsafe_choices(configuration.settings):
        _log.warning("unsafe_choice", choice=choice)
    for name, provider in configuration.settings.providers.items():
        if provider.api_key_env is not None and name not in configuration.provider_secrets:
            _log.warning("provider_without_key", provider=name, variable=provider.api_key_env)
    host, port = bound.getsockname()[:2]
    _log.info(
        "started",
        version=__version__,
        data_dir=str(configuration.settings.data_dir),
        config_file=str(configuration.file) if configuration.file else None,
        guardian=platform.guardian,
        sandbox=configuration.settings.sandbox.kind,
        providers=sorted(configuration.settings.providers),
    )
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"Turnkeeper listens on http://{shown}:{port}")
