"""The egress proxy: the only way from a tool box to the network, one proxy per box, outside of it (contract 2.1).

A box has a network namespace with nothing but its own loopback. Its agent opens a listening socket there, before
anything else runs in the box, and hands it out through a unix socket that only this box was given; we answer on it from
here. So who asks is known by the socket and not by anything that is said, and inside the box there is no process that
could be stopped or taken over. Must never answer on a socket that came after the first, nor on one that is anything
but a listening TCP socket on loopback.
"""

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Final

import structlog

from turnkeeper.errors import RemoteProtocolError
from turnkeeper.sandbox.boxes import HostPath, ToolBoxOrder
from turnkeeper.sandbox.egress_admission import (
    STREAM_BYTES,
    Admission,
    EgressDesk,
    EgressLimits,
    EgressPolicy,
    Resolver,
)
from turnkeeper.sandbox.egress_exchange import NO_VAULT, Exchange, Traffic, Vault
from turnkeeper.sandbox.egress_tls import BUNDLE_NAME, BUNDLE_VARIABLES

SOCKET_NAME: Final = "egress.sock"
BOX_DIR: Final = Path("/run/egress")
PROXY_PORT: Final = 3128
PROXY_URL: Final = f"http://127.0.0.1:{PROXY_PORT}"
# The box's own loopback: nothing of ours is there.
NO_PROXY: Final = "localhost,127.0.0.1,::1"
ENVIRONMENT: Final = {
    "HTTP_PROXY": PROXY_URL,
    "HTTPS_PROXY": PROXY_URL,
    "http_proxy": PROXY_URL,
    "https_proxy": PROXY_URL,
    "NO_PROXY": NO_PROXY,
    "no_proxy": NO_PROXY,
}
HANDOVER_TIMEOUT_MS: Final = 30_000
MAX_NEW_PER_S: Final = 200
"""Connections that one box may begin in a second: each costs this process some work."""
ACCEPT_AGAIN_MS: Final = 100

_log = structlog.get_logger(__name__)


class EgressSocketRefused(RemoteProtocolError):
    """What came out of the box was not a listening TCP socket on its loopback."""

    code = "egress_socket_refused"


class EgressProxy:
    """The proxy of one box. `open` it before the box starts and `close` it when the box is gone."""

    def __init__(
        self,
        socket_dir: Path,
        policy: EgressPolicy,
        desk: EgressDesk,
        *,
        resolver: Resolver,
        limits: EgressLimits | None = None,
        vault: Vault = NO_VAULT,
    ) -> None:
        self._socket_dir = socket_dir
        self._limits = limits or EgressLimits()
        self._admission = Admission(policy, desk, resolver, self._limits)
        self._vault = vault
        self._connections: set[asyncio.Task[None]] = set()
        self._door: socket.socket | None = None
        self._handover: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._places = asyncio.Semaphore(self._limits.max_connections)
        self.traffic = Traffic(self._limits.max_bytes)

    @property
    def order(self) -> ToolBoxOrder:
        """What the box needs of it: the folder with the socket, and the variables that programs look for."""
        trust = {} if self._vault.authority is None else dict.fromkeys(BUNDLE_VARIABLES, str(BOX_DIR / BUNDLE_NAME))
        return ToolBoxOrder(
            read_only=(HostPath(self._socket_dir, BOX_DIR),),
            environment={**self._vault.secrets.variables, **trust, **ENVIRONMENT},
        )

    async def open(self) -> None:
        """Waits for the box's socket from now on. Raises `OSError`."""
        if self._vault.authority is not None:
            bundle = self._socket_dir / BUNDLE_NAME
            bundle.write_text(self._vault.authority.bundle, encoding="ascii")
            bundle.chmod(0o644)
        path = self._socket_dir / SOCKET_NAME
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.setblocking(False)
        self._door.bind(str(path))
        # The box has another uid; who can reach the socket is decided by its folder, which only this box has.
        path.chmod(0o666)
        self._door.listen(1)
        self._handover = asyncio.ensure_future(self._take_over(self._door))

    async def attached(self) -> None:
        """Returns when the box's programs can reach us. Raises `EgressSocketRefused`, `TimeoutError`."""
        if self._handover is not None:
            async with asyncio.timeout(HANDOVER_TIMEOUT_MS / 1000):
                await asyncio.shield(self._handover)

    def serve(self, listener: socket.socket) -> None:
        """Answers on a listening socket, which is ours now, until `close`."""
        listener.setblocking(False)
        self._listener = listener
        self._accepting = asyncio.ensure_future(self._accept(listener))

    async def close(self) -> None:
        """Ends every connection; returns when they are gone. Safe to call again."""
        # In this order: each of them starts the next.
        for task in (self._handover, self._accepting):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        for own in (self._door, self._listener):
            if own is not None:
                own.close()

    async def _accept(self, listener: socket.socket) -> None:
        """Takes connections while there is a place, and no faster than `MAX_NEW_PER_S`; the rest wait in the kernel."""
        loop = asyncio.get_running_loop()
        since, count = loop.time(), 0
        while True:
            await self._places.acquire()
            await self._take_one(loop, listener)
            count += 1
            if loop.time() - since >= 1:
                since, count = loop.time(), 0
            elif count >= MAX_NEW_PER_S:
                await asyncio.sleep(since + 1 - loop.time())

    async def _take_one(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        try:
            taken, _ = await loop.sock_accept(listener)
            reader = asyncio.StreamReader(limit=STREAM_BYTES, loop=loop)
            await loop.connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(reader, self._connected, loop=loop), taken
            )
        except OSError as error:
            # This process has no descriptor left, or the program went away between.
            self._places.release()
            _log.warning("egress_not_accepted", error=str(error))
            await asyncio.sleep(ACCEPT_AGAIN_MS / 1000)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = Exchange((reader, writer), self._admission, self.traffic, self._limits, self._vault)
        task = asyncio.ensure_future(exchange.serve())
        self._connections.add(task)
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._places.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("egress_exchange_failed", error=repr(error))

    async def _take_over(self, door: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        peer, _ = await loop.sock_accept(door)
        # Whoever else connects is not answered: at the first call the box is no longer what it was.
        with contextlib.closing(door), peer:
            await _readable(peer)
            self.serve(_received(peer))


def _received(peer: socket.socket) -> socket.socket:
    _, fds, _, _ = socket.recv_fds(peer, 1, 1)
    if len(fds) != 1:
        raise EgressSocketRefused("the box handed out no socket")
    listener = socket.socket(fileno=fds[0])
    try:
        _check_listener(listener)
    except BaseException:
        listener.close()
        raise
    return listener


def _check_listener(listener: socket.socket) -> None:
    if listener.family != socket.AF_INET or listener.type != socket.SOCK_STREAM:
        raise EgressSocketRefused("the box handed out something else than a TCP socket")
    if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) or listener.getsockname()[0] != "127.0.0.1":
        raise EgressSocketRefused("the box handed out a socket that does not listen on its loopback")


async def _readable(peer: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(peer.fileno(), lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(peer.fileno())
