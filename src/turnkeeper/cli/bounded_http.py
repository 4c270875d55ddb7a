"""HTTP/1.1 with the two bounds that uvicorn's parser leaves out: how large the head of a request may be, and how slow.

Answers for a connection that costs no more than a head of bytes and a few seconds before it has asked for something:
otherwise anybody without a key could fill the memory with headers, or every place with silence. Bodies are bounded by
whoever reads them. Must never hold up a connection whose answer is still being made.
"""

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 65_536
"""Request line and headers of one request."""
HEAD_TIMEOUT_S: Final = 10.0
"""From the connection, or a request's first byte, to the end of the head."""


class HeadRefused(Exception):
    """The head is larger than it may be; the parser gives up on the connection."""


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    _heading = True
    _begun = False
    _head_bytes = 0
    _refusal: str | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begins to wait for the first head."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing any more."""
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses, and gives up on a head that is too large before it is whole."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._heading and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(self._too_large())
        elif self._heading:
            self._watch()

    def on_message_begin(self) -> None:
        """A request's first byte was read."""
        self._begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole. Raises `HeadRefused`, which the parser turns into a refusal."""
        self._heading = self._begun = False
        self._stop_watching()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            self._refusal = self._too_large()
            raise HeadRefused(self._refusal)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is whole; the next head may come."""
        self._heading, self._head_bytes = True, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuses what was sent, with our reason where there is one, and closes."""
        super().send_400_response(self._refusal or msg)

    def _watch(self) -> None:
        # Whoever waits for an answer may be silent: only a head that has begun, or that nothing precedes, is late.
        answering = bool(self.cycle) and not self.cycle.response_complete
        if self._deadline is None and (self._begun or not answering):
            self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self._late)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self._begun:
            self.send_400_response(f"The head of the request did not arrive within {HEAD_TIMEOUT_S:g} s.")
        else:
            self.transport.close()

    def _too_large(self) -> str:
        return f"The head of the request has more than {MAX_HEAD_BYTES} bytes."
