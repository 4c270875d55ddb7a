"""A uvicorn server that stops although event streams are open.

uvicorn waits for open answers before it tells the application that it stops; a stream would keep it waiting. This one
says so first.
"""

import socket

import uvicorn

from turnkeeper.api.stream_registry import StreamRegistry


class ApiServer(uvicorn.Server):
    """`uvicorn.Server`, ending the streams of the application as its first step of shutting down."""

    def __init__(self, config: uvicorn.Config, streams: StreamRegistry) -> None:
        super().__init__(config)
        self._streams = streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Streams close with `deploy`, long waits are answered, then everything else as usual."""
        self._streams.drain()
        await super().shutdown(sockets)
