"""The calls of one turn: admission, reservation, the provider, the way back, settlement (contract 8).

INVARIANT: every grant of the ledger is settled exactly once, also when the call fails, times out, is aborted, the
client leaves in the middle of a stream, or this process is asked to stop. What ends a stream is sent when the call is
settled: whoever has read it may count on the ledger.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import structlog

from turnkeeper.clock import Clock
from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.gateway_errors import GATEWAY_FAULT, refusal_for, refusal_of
from turnkeeper.sandbox.gateway_routes import answer_here, check_addressed, check_method, first_protocol, protocol_of
from turnkeeper.sandbox.http_door import ClientLeft, HttpAnswer, HttpRequest, Reply
from turnkeeper.sandbox.metering import (
    MIN_OUTPUT_TOKENS,
    BudgetExhausted,
    CallOutcome,
    CallUsage,
    Grant,
    Meter,
    ModelFailure,
    estimated_usage,
)
from turnkeeper.sandbox.protocols.wire import (
    AnswerFailed,
    AnswerUnusable,
    CallRefused,
    ModelProtocol,
    ModelRequest,
    Reading,
    Refusal,
    parse_answer,
)
from turnkeeper.sandbox.provider_gate import ProviderBusy, ProviderGate
from turnkeeper.sandbox.providers import ModelSpec, ProviderLimits
from turnkeeper.sandbox.sse import SseEvent
from turnkeeper.sandbox.upstream import (
    CallProgress,
    Incoming,
    Outgoing,
    ProviderFailed,
    RetryObserver,
    Upstream,
    UpstreamLimits,
)

LEDGER_TIMEOUT_MS: Final = 10_000
"""How long a reservation or a settlement may take; neither is given up half way for anything else."""
MAX_BYTES_PER_TOKEN: Final = 128
"""No tokenizer in use has a longer token: a stream with more text than this per granted token broke its cap."""
DROPPED_HEADER: Final = "x-turnkeeper-dropped"

_MINUTE_MS: Final = 60_000
_STREAM_HEADERS: Final = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Bounds of one turn's socket."""

    max_request_bytes: int = 32 * 1024 * 1024
    call_timeout_ms: int = 600_000
    request_timeout_ms: int = 60_000
    max_calls_per_minute: int = 600
    max_calls_at_once: int = 4
    max_connections: int = 16
    upstream: UpstreamLimits = field(default_factory=UpstreamLimits)


@dataclass(slots=True)
class _Call:
    """One call under way: everything a settlement needs, at whatever point it stops."""

    protocol: ModelProtocol
    model: ModelSpec
    request: ModelRequest
    grant: Grant
    started_at_ms: int
    reading: Reading
    progress: CallProgress = field(default_factory=CallProgress)
    first_token_ms: int | None = None
    begun: bool = False

    def usage(self) -> CallUsage:
        """The provider's count; the whole reservation when an answer was under way; nothing when none was."""
        reading, estimate = self.reading, self.request.input_tokens
        lost = self.progress.lost * estimate
        if reading.usage is not None:
            return _with_lost_input(reading.usage, lost)
        if reading.complete:
            return _with_lost_input(estimated_usage(input_tokens=estimate, output_bytes=reading.output_bytes), lost)
        if self.progress.in_flight:
            # What was generated and never shown is paid for too, so nothing less than the cap is safe to assume.
            begun = reading.counted_so_far or CallUsage(input_tokens=estimate)
            return CallUsage(
                input_tokens=begun.input_tokens + lost,
                cached_input_tokens=begun.cached_input_tokens,
                cache_write_tokens=begun.cache_write_tokens,
                output_tokens=self.grant.max_output_tokens,
                estimated=True,
            )
        return CallUsage(input_tokens=lost, estimated=lost > 0)

    def outcome(self, now_ms: int) -> CallOutcome:
        """How it went so far."""
        return CallOutcome(
            provider=self.model.provider.name,
            model=self.model.model_id,
            latency_ms=now_ms - self.started_at_ms,
            first_token_ms=self.first_token_ms,
            finish_reason=self.reading.finish_reason,
            retries=self.progress.retries,
            accepted=self.reading.usage is not None
            or self.reading.complete
            or self.progress.in_flight
            or self.progress.lost > 0,
            status=self.progress.status,
        )


class TurnCalls:
    """What answers at one turn's socket."""

    def __init__(
        self,
        *,
        model: ModelSpec,
        meter: Meter,
        upstream: Upstream,
        gate: ProviderGate,
        on_retry: RetryObserver | None,
        limits: GatewayLimits,
        clock: Clock,
    ) -> None:
        self.budget_reached = False
        self.last_error: ModelFailure | None = None
        self._model = model
        self._meter = meter
        self._upstream = upstream
        self._gate = gate
        self._own_gate = ProviderGate(ProviderLimits(max_calls_at_once=limits.max_calls_at_once), clock)
        self._on_retry = on_retry
        self._limits = limits
        self._clock = clock
        self._recent_ms: deque[int] = deque()

    async def answer(self, request: HttpRequest, reply: Reply) -> HttpAnswer | None:
        """The request handler of the socket: nothing it raises but a cancellation, or its client's end, leaves it."""
        protocol = protocol_of(request, self._model)
        speaker = protocol or first_protocol(self._model)
        try:
            check_addressed(request)
            if protocol is None:
                return answer_here(request, self._model)
            check_method(request)
            return await self._complete(protocol, request, reply)
        except ClientLeft:
            raise
        except (CallRefused, ProviderBusy) as refused:
            return _error(speaker, refusal_of(refused))
        except BudgetExhausted as exhausted:
            self.budget_reached = True
            return _error(speaker, refusal_of(exhausted))
        except ProviderFailed as failed:
            self.last_error = failed.failure
            return _error(speaker, refusal_for(failed.failure))
        except Exception:  # noqa: BLE001 - the request handler: records and fails closed
            self.last_error = GATEWAY_FAULT
            _log.exception("model_gateway_fault", provider=self._model.provider.name, model=self._model.model_id)
            return _error(speaker, refusal_for(GATEWAY_FAULT))

    async def _complete(self, protocol: ModelProtocol, request: HttpRequest, reply: Reply) -> HttpAnswer | None:
        asked = protocol.parse_request(request.body, self._model)
        self._check_rate()
        async with self._own_gate.entered(None), self._gate.entered(self):
            call = self._call(protocol, asked, await self._reserve(protocol, asked))
            try:
                body = await self._forward(call, request, reply)
            finally:
                await _uninterrupted(self._settle(call))
        if call.begun:
            await reply.write(body)
            return None
        self.last_error = None
        return HttpAnswer(200, body, _dropped(asked))

    def _check_rate(self) -> None:
        now_ms = self._clock.monotonic_ms()
        while self._recent_ms and self._recent_ms[0] <= now_ms - _MINUTE_MS:
            self._recent_ms.popleft()
        if len(self._recent_ms) >= self._limits.max_calls_per_minute:
            raise CallRefused(f"over {self._limits.max_calls_per_minute} calls a minute", code="rate_limited")
        self._recent_ms.append(now_ms)

    async def _reserve(self, protocol: ModelProtocol, request: ModelRequest) -> Grant:
        reserving = asyncio.ensure_future(self._grant(request))
        try:
            grant = await _uninterrupted(reserving)
        except asyncio.CancelledError:
            if reserving.done() and not reserving.cancelled() and reserving.exception() is None:
                await _uninterrupted(self._settle(self._call(protocol, request, reserving.result())))
            raise
        if grant.max_output_tokens < min(MIN_OUTPUT_TOKENS, request.max_output_tokens):
            await _uninterrupted(self._settle(self._call(protocol, request, grant)))
            raise BudgetExhausted(f"less than {MIN_OUTPUT_TOKENS} output tokens are left")
        return grant

    async def _grant(self, request: ModelRequest) -> Grant:
        async with asyncio.timeout(LEDGER_TIMEOUT_MS / 1000):
            return await self._meter.reserve(
                input_tokens=request.input_tokens, max_output_tokens=request.max_output_tokens
            )

    def _call(self, protocol: ModelProtocol, request: ModelRequest, grant: Grant) -> _Call:
        reading = protocol.reading(request, self._model)
        return _Call(protocol, self._model, request, grant, self._clock.monotonic_ms(), reading)

    async def _forward(self, call: _Call, request: HttpRequest, reply: Reply) -> bytes:
        """The whole body, or what ends a stream that has begun. Raises `ProviderFailed` before one has."""
        try:
            async with asyncio.timeout(self._limits.call_timeout_ms / 1000):
                return await self._exchange(call, request, reply)
        except TimeoutError as error:
            message = f"no answer within {self._limits.call_timeout_ms} ms"
            failed = ProviderFailed(ModelFailure("provider_timeout", message, retryable=True))
            failed.__cause__ = error
        except (AnswerUnusable, AnswerFailed) as error:
            failed = ProviderFailed(_failure_in(error))
            failed.__cause__ = error
        except ProviderFailed as error:
            failed = error
        if not call.begun:
            raise failed
        self.last_error = failed.failure
        return call.protocol.render_stream_error(refusal_for(failed.failure))

    async def _exchange(self, call: _Call, request: HttpRequest, reply: Reply) -> bytes:
        outgoing = Outgoing(
            provider=self._model.provider,
            endpoint=call.protocol.endpoint,
            body=call.protocol.render_request(call.request, self._model, call.grant.max_output_tokens),
            headers=call.protocol.headers(self._model.provider, request.headers),
            stream=call.request.stream,
            error_in=self._error_in(call),
        )
        incoming = await self._upstream.open(outgoing, call.progress, self._on_retry)
        try:
            if call.request.stream:
                return await self._stream(call, incoming, reply)
            body = call.reading.whole(parse_answer(await self._upstream.read(incoming, call.progress)))
        finally:
            await incoming.close()
        call.progress.in_flight = False
        return body

    async def _stream(self, call: _Call, incoming: Incoming, reply: Reply) -> bytes:
        reading, most_bytes = call.reading, call.grant.max_output_tokens * MAX_BYTES_PER_TOKEN
        async for events in incoming.events():
            pieces = [piece for event in events if (piece := reading.piece(event)) is not None]
            if call.first_token_ms is None and reading.started:
                call.first_token_ms = self._clock.monotonic_ms() - call.started_at_ms
            if not call.begun:
                await reply.begin(200, _STREAM_HEADERS | _dropped(call.request))
                call.begun = True
            if reading.complete:
                call.progress.in_flight = False
                self.last_error = None
                return b"".join(pieces) + reading.ending()
            if reading.output_bytes > most_bytes:
                raise AnswerUnusable("the provider generates more than it was allowed to")
            await reply.write(b"".join(pieces))
        return self._broken_off(call)

    def _broken_off(self, call: _Call) -> bytes:
        if call.reading.finish_reason is None:
            failure = ModelFailure("provider_connection_lost", "the provider ended its answer early", retryable=True)
            raise ProviderFailed(failure)
        # Some servers leave out the mark of the end.
        call.reading.complete, call.progress.in_flight, self.last_error = True, False, None
        return call.reading.ending()

    def _error_in(self, call: _Call) -> "_ErrorFinder":
        return _ErrorFinder(call.protocol, call.request, self._model)

    async def _settle(self, call: _Call) -> None:
        async with asyncio.timeout(LEDGER_TIMEOUT_MS / 1000):
            await self._meter.settle(call.grant.call, call.usage(), call.outcome(self._clock.monotonic_ms()))


@dataclass(frozen=True, slots=True)
class _ErrorFinder:
    """Reads a first event apart from the answer that it may begin."""

    protocol: ModelProtocol
    request: ModelRequest
    model: ModelSpec

    def __call__(self, event: SseEvent) -> ModelFailure | None:
        try:
            self.protocol.reading(self.request, self.model).piece(event)
        except AnswerFailed as failed:
            return failed.failure
        return None


async def _uninterrupted(awaitable: Awaitable[_T]) -> _T:
    """Finishes the work first, then lets a cancellation through. Only for work that has a deadline."""
    task = asyncio.ensure_future(awaitable)
    interrupted = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            interrupted = True
    if interrupted:
        if not task.cancelled() and task.exception() is not None:
            _log.error("model_gateway_unsettled", exc_info=task.exception())
        raise asyncio.CancelledError
    return task.result()


def _with_lost_input(usage: CallUsage, lost: int) -> CallUsage:
    if not lost:
        return usage
    return CallUsage(
        input_tokens=usage.input_tokens + lost,
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        estimated=True,
    )


def _failure_in(error: TurnkeeperError) -> ModelFailure:
    if isinstance(error, AnswerFailed):
        return error.failure
    return ModelFailure(error.error_code, error.message, retryable=False)


def _dropped(request: ModelRequest) -> dict[str, str]:
    names = ", ".join(request.dropped)[:1_000]
    return {DROPPED_HEADER: names.encode("ascii", errors="replace").decode()} if names else {}


def _error(protocol: ModelProtocol, refusal: Refusal) -> HttpAnswer:
    # The word by which OpenAI's and Anthropic's own clients decide whether to ask again.
    headers = {"x-should-retry": "true" if refusal.retryable else "false"}
    if refusal.retry_after_s is not None:
        headers["retry-after"] = str(refusal.retry_after_s)
    if refusal.status == 405:
        headers["allow"] = "POST"
    return HttpAnswer(protocol.status_for(refusal), protocol.render_error(refusal), headers)
