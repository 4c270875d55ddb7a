"""The model's socket on the loopback interface: clients speak to an address, and the box has a socket for them.

The network namespace is the box's own, so the port is nobody else's. Bytes pass as they are; what may be asked is the
gateway's business.
"""

import asyncio
import contextlib
from typing import Final

PIECE_BYTES: Final = 65_536
MAX_CONNECTIONS: Final = 32


class Loopback:
    """Listens until it is closed."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, port: int) -> int:
        """Opens the port, 0 being a free one; which it is."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Ends every connection."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        connection = asyncio.ensure_future(self._joined(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(self._socket_path)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        finally:
            writer.transport.abort()
            inner_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
