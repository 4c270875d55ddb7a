"""Wires to a Guardian: HTTP, and a callable in the same process. `turnkeeper.client.stdio` has the third.

Answers for one request and the bytes that came back, within bounds. Must never look into an answer: an answer is what
its signature proves, whatever a status line says around it.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol, TypeAlias

import httpx

from turnkeeper.client.errors import TransportFailed
from turnkeeper.errors import TurnkeeperError

TransportName: TypeAlias = Literal["http", "https", "stdio"]

MAX_ANSWER_BYTES: Final = 1 << 20
MAX_CONNECTIONS: Final = 100


class Transport(Protocol):
    """A wire. One may be shared by every session of a client."""

    @property
    def name(self) -> TransportName:
        """What the hello offers."""
        ...

    async def exchange(self, body: bytes, *, timeout_ms: int) -> bytes:
        """One request and its answer, given up on after about `timeout_ms`. Raises `TransportFailed`."""
        ...

    async def close(self) -> None:
        """Lets go of the wire; idempotent."""
        ...


class HttpTransport:
    """A Guardian behind a URL. Proxy settings of the environment are not obeyed: they could lead a step astray."""

    def __init__(
        self, url: str, *, client: httpx.AsyncClient | None = None, max_answer_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        """`client` brings certificates, a socket path or the like; it stays the caller's to close."""
        self._url = url
        self._given = client
        self._own: httpx.AsyncClient | None = None
        self._max_answer_bytes = max_answer_bytes

    @property
    def name(self) -> TransportName:
        """By the URL's scheme."""
        return "https" if self._url.lower().startswith("https:") else "http"

    async def exchange(self, body: bytes, *, timeout_ms: int) -> bytes:
        """One POST. Raises `TransportFailed`."""
        try:
            async with self._client().stream(
                "POST",
                self._url,
                content=body,
                headers={"content-type": "application/json"},
                timeout=timeout_ms / 1000,
            ) as response:
                return await self._bounded(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise TransportFailed(f"the Guardian could not be reached: {type(error).__name__}") from error

    async def close(self) -> None:
        """Closes the connections that are not the caller's."""
        if self._own is not None:
            own, self._own = self._own, None
            await own.aclose()

    def _client(self) -> httpx.AsyncClient:
        if self._given is not None:
            return self._given
        if self._own is None:
            # Made at first use, so that its connections belong to the event loop that uses them.
            limits = httpx.Limits(max_connections=MAX_CONNECTIONS)
            self._own = httpx.AsyncClient(trust_env=False, follow_redirects=False, limits=limits)
        return self._own

    async def _bounded(self, response: httpx.Response) -> bytes:
        answer = bytearray()
        async for chunk in response.aiter_bytes():
            answer += chunk
            if len(answer) > self._max_answer_bytes:
                raise TransportFailed(f"the answer has more than {self._max_answer_bytes} bytes")
        return bytes(answer)


class InProcessTransport:
    """A Guardian in this very process, still asked in signed envelopes only."""

    def __init__(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        """`answer` takes a request's bytes and returns the answer's."""
        self._answer = answer

    @property
    def name(self) -> TransportName:
        """In process counts as HTTP: there is no name of its own in the standard."""
        return "http"

    async def exchange(self, body: bytes, *, timeout_ms: int) -> bytes:
        """One call. The time is the caller's to keep. Raises `TransportFailed`."""
        del timeout_ms
        try:
            return await self._answer(body)
        except (OSError, TurnkeeperError) as error:
            raise TransportFailed(f"the Guardian failed in process: {type(error).__name__}") from error

    async def close(self) -> None:
        """Nothing to let go of."""
