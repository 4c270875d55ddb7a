"""One model call to a provider: attempts, bounded repeats, and what is known of it wherever it stops.

A refusal that may pass (429, 5xx) and a connection that could not be made or was lost before an answer are repeated a
few times, never once a byte of an answer has come. A provider's error text goes no further than this package: it is
mapped to a failure of ours.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import httpx

from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.metering import ModelFailure, Retry
from turnkeeper.sandbox.protocols.failures import failure_of_status
from turnkeeper.sandbox.providers import Provider
from turnkeeper.sandbox.sse import EventTooLarge, SseDecoder, SseEvent

MAX_ERROR_BYTES: Final = 64 * 1024
CONNECT_TIMEOUT_MS: Final = 10_000
MAX_UPSTREAM_CONNECTIONS: Final = 256

_MAX_BACKOFF_DOUBLINGS: Final = 6
_OK: Final = 200
_STREAM_TYPE: Final = "text/event-stream"

RetryObserver: TypeAlias = Callable[[Retry], Awaitable[None]]


class ProviderFailed(TurnkeeperError):
    """A model call failed. `repeat`: sending it again may help and costs nothing twice."""

    code = "provider_failed"

    def __init__(self, failure: ModelFailure, *, repeat: bool = False, retry_after_ms: int | None = None) -> None:
        super().__init__(failure.message, code=failure.code)
        self.failure = failure
        self.repeat = repeat
        self.retry_after_ms = retry_after_ms


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """Bounds of one call to a provider. A stream may be larger than a whole answer: it has a frame around each word."""

    max_response_bytes: int = 4 * 1024 * 1024
    max_stream_bytes: int = 256 * 1024 * 1024
    max_event_bytes: int = 8 * 1024 * 1024
    max_retries: int = 2
    retry_backoff_ms: int = 500
    max_retry_delay_ms: int = 20_000


@dataclass(slots=True)
class CallProgress:
    """What is known of a call while it runs, so that it can be settled wherever it stops.

    `lost` counts attempts that may have reached the provider and got no answer; `in_flight` says that one is under
    way or broke off inside its answer.
    """

    retries: int = 0
    lost: int = 0
    in_flight: bool = False
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as it goes to the provider. `error_in` tells an event that is an error in place of an answer."""

    provider: Provider
    endpoint: str
    body: bytes
    headers: Mapping[str, str]
    stream: bool
    error_in: Callable[[SseEvent], ModelFailure | None]


@dataclass(slots=True)
class Incoming:
    """An answer that has begun. `close` it, whatever became of it."""

    response: httpx.Response
    batches: AsyncGenerator[list[SseEvent]]
    first: list[SseEvent] = field(default_factory=list[SseEvent])

    async def events(self) -> AsyncGenerator[list[SseEvent]]:
        """The events of a stream, as many at a time as have come. Raises `ProviderFailed`."""
        if self.first:
            yield self.first
        async for batch in self.batches:
            yield batch

    async def close(self) -> None:
        """Lets the connection go: back to the pool when all was read, else closed."""
        await self.batches.aclose()
        await self.response.aclose()


class Upstream:
    """Calls providers through one shared, bounded connection pool. No redirects, no proxy from the environment."""

    def __init__(self, limits: UpstreamLimits) -> None:
        self._limits = limits
        self._client = httpx.AsyncClient(
            follow_redirects=False,
            trust_env=False,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_MS / 1000),
            limits=httpx.Limits(max_connections=MAX_UPSTREAM_CONNECTIONS),
        )

    async def close(self) -> None:
        """Closes the pool."""
        await self._client.aclose()

    async def open(self, outgoing: Outgoing, progress: CallProgress, on_retry: RetryObserver | None) -> Incoming:
        """An answer of the provider that has begun: its head, and of a stream the first event.

        Raises `ProviderFailed` when it is of no use to try again.
        """
        while True:
            try:
                return await self._attempt(outgoing, progress)
            except ProviderFailed as failed:
                if not failed.repeat or progress.retries >= self._limits.max_retries:
                    raise
                delay_ms = self._delay_ms(failed, progress.retries)
                progress.retries += 1
                if on_retry is not None:
                    await on_retry(Retry(failed.failure, delay_ms, progress.retries))
                await asyncio.sleep(delay_ms / 1000)

    async def read(self, incoming: Incoming, progress: CallProgress) -> bytes:
        """The rest of a whole answer. Raises `ProviderFailed`."""
        raw = bytearray()
        try:
            async for chunk in incoming.response.aiter_raw():
                raw += chunk
                if len(raw) > self._limits.max_response_bytes:
                    raise ProviderFailed(_bad_answer(f"the answer is over {self._limits.max_response_bytes} bytes"))
        except httpx.HTTPError as error:
            raise _lost(error, progress) from error
        return bytes(raw)

    async def _attempt(self, outgoing: Outgoing, progress: CallProgress) -> Incoming:
        progress.status, progress.in_flight = None, True
        try:
            response = await self._client.send(self._request(outgoing), stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            progress.in_flight = False
            raise ProviderFailed(_unreachable(outgoing.provider), repeat=True) from error
        except httpx.HTTPError as error:
            raise _lost(error, progress) from error
        incoming = Incoming(response, self._batches(response, progress))
        try:
            progress.status = response.status_code
            await self._begin(outgoing, incoming, progress)
        except BaseException:
            await incoming.close()
            raise
        return incoming

    async def _begin(self, outgoing: Outgoing, incoming: Incoming, progress: CallProgress) -> None:
        if incoming.response.status_code != _OK:
            progress.in_flight = False
            raise await _refused(incoming.response)
        _check_form(incoming.response, stream=outgoing.stream)
        if not outgoing.stream:
            return
        async for events in incoming.batches:
            failure = outgoing.error_in(events[0])
            if failure is not None:
                # Nothing was generated: this is a refusal that came late.
                progress.in_flight = False
                raise ProviderFailed(failure, repeat=failure.retryable)
            incoming.first = events
            return

    def _request(self, outgoing: Outgoing) -> httpx.Request:
        limits = outgoing.provider.limits
        headers = {
            "content-type": "application/json",
            "accept": _STREAM_TYPE if outgoing.stream else "application/json",
            "accept-encoding": "identity",
            **outgoing.headers,
        }
        timeout = httpx.Timeout(limits.read_timeout_ms / 1000, connect=limits.connect_timeout_ms / 1000)
        url = outgoing.provider.url(outgoing.endpoint)
        return self._client.build_request("POST", url, content=outgoing.body, headers=headers, timeout=timeout)

    async def _batches(self, response: httpx.Response, progress: CallProgress) -> AsyncGenerator[list[SseEvent]]:
        decoder, size_bytes = SseDecoder(self._limits.max_event_bytes), 0
        try:
            async for chunk in response.aiter_raw():
                size_bytes += len(chunk)
                if size_bytes > self._limits.max_stream_bytes:
                    raise ProviderFailed(_bad_answer(f"the answer is over {self._limits.max_stream_bytes} bytes"))
                events = decoder.feed(chunk)
                if events:
                    yield events
        except EventTooLarge as error:
            raise ProviderFailed(_bad_answer(error.message)) from error
        except httpx.HTTPError as error:
            raise _lost(error, progress) from error

    def _delay_ms(self, failed: ProviderFailed, retries: int) -> int:
        backoff_ms = self._limits.retry_backoff_ms << min(retries, _MAX_BACKOFF_DOUBLINGS)
        wanted_ms = backoff_ms if failed.retry_after_ms is None else failed.retry_after_ms
        return min(wanted_ms, self._limits.max_retry_delay_ms)


def _check_form(response: httpx.Response, *, stream: bool) -> None:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise ProviderFailed(_bad_answer(f"the answer is encoded as {encoding[:20]!r}, which was not asked for"))
    if stream and not response.headers.get("content-type", "").startswith(_STREAM_TYPE):
        raise ProviderFailed(_bad_answer("the answer is not the stream that was asked for"))


def _lost(error: httpx.HTTPError, progress: CallProgress) -> ProviderFailed:
    code, message = "provider_connection_lost", "the provider broke off"
    if isinstance(error, httpx.TimeoutException):
        code, message = "provider_timeout", "the provider was silent for too long"
    failure = ModelFailure(code, message, retryable=True, status=progress.status)
    if progress.status is not None or isinstance(error, httpx.TimeoutException):
        # The answer had begun, or the provider worked at it for long: sending again would pay twice.
        return ProviderFailed(failure)
    progress.lost += 1
    progress.in_flight = False
    return ProviderFailed(failure, repeat=True)


def _bad_answer(message: str) -> ModelFailure:
    return ModelFailure("provider_bad_answer", message, retryable=False, status=_OK)


def _unreachable(provider: Provider) -> ModelFailure:
    if provider.kind == "local":
        return ModelFailure("local_model_unavailable", "the local model's server does not answer", retryable=True)
    return ModelFailure("provider_unreachable", "no connection to the provider could be made", retryable=True)


async def _refused(response: httpx.Response) -> ProviderFailed:
    failure = failure_of_status(response.status_code, await _read_error(response))
    return ProviderFailed(failure, repeat=failure.retryable, retry_after_ms=_retry_after_ms(response))


async def _read_error(response: httpx.Response) -> bytes:
    raw = bytearray()
    try:
        async for chunk in response.aiter_raw():
            raw += chunk
            if len(raw) > MAX_ERROR_BYTES:
                break
    except httpx.HTTPError:
        # The status says enough.
        return b""
    return bytes(raw[:MAX_ERROR_BYTES])


def _retry_after_ms(response: httpx.Response) -> int | None:
    text = response.headers.get("retry-after", "")
    return int(text) * 1000 if text.isascii() and text.isdigit() and len(text) <= 6 else None
