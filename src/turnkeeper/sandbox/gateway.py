"""The model gateway: the one thing a loop box can reach, outside the box, one unix socket per turn.

Lends a turn its agent's own model and nothing else of the provider's account: one route, one model, listed
parameters, caps on body, output, time, rate and calls at once. Adds the key, meters every call (contract 8). The key
never enters a box, in neither direction. INVARIANT: every grant of the ledger is settled exactly once, also when the
call fails, times out, is aborted, or this process is asked to stop.
"""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import orjson
import structlog

from turnkeeper.clock import Clock, SystemClock
from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.gateway_rules import (
    AnswerUnusable,
    CallRefused,
    ModelRequest,
    finish_reason_of,
    parse_request,
    render_answer,
    render_request,
)
from turnkeeper.sandbox.http_door import HttpAnswer, HttpRequest, serve_connection
from turnkeeper.sandbox.metering import (
    MIN_OUTPUT_TOKENS,
    BudgetExhausted,
    CallOutcome,
    CallUsage,
    Grant,
    Meter,
    ModelFailure,
    Retry,
    usage_of,
)
from turnkeeper.sandbox.providers import ModelSpec, check_params, size_bytes_of
from turnkeeper.sandbox.upstream import CallProgress, ProviderFailed, RetryObserver, Upstream, UpstreamLimits

__all__ = [
    "BudgetExhausted",
    "CallOutcome",
    "CallUsage",
    "GatewayHandle",
    "GatewayLimits",
    "Grant",
    "Meter",
    "ModelFailure",
    "ModelGateway",
    "ModelSpec",
    "Retry",
]

COMPLETIONS_PATH: Final = "/v1/chat/completions"
SOCKET_NAME: Final = "gateway.sock"
MAX_SOCKET_PATH_BYTES: Final = 107
LEDGER_TIMEOUT_MS: Final = 10_000
"""How long a reservation or a settlement may take; neither is given up half way for anything else."""

_MINUTE_MS: Final = 60_000
_MODEL_ERROR_STATUS: Final = 502
_STATUS: Final = {
    "invalid_request": 400,
    "invalid_json": 400,
    "parameter_not_allowed": 400,
    "not_supported_yet": 400,
    "tools_not_supported": 400,
    "budget_reached": 402,
    "model_not_allowed": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "call_in_progress": 429,
    "rate_limited": 429,
}

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class SocketPathTooLong(TurnkeeperError):
    """The directory for a turn's socket lies too deep for an AF_UNIX address."""

    code = "socket_path_too_long"


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Bounds of one turn's socket."""

    max_request_bytes: int = 4 * 1024 * 1024
    call_timeout_ms: int = 600_000
    max_calls_per_minute: int = 600
    max_connections: int = 4
    upstream: UpstreamLimits = field(default_factory=UpstreamLimits)


class ModelGateway:
    """Opens a socket per turn. One per process: it holds the connections to the providers."""

    def __init__(self, *, limits: GatewayLimits | None = None, clock: Clock | None = None) -> None:
        self._limits = limits or GatewayLimits()
        self._clock = clock or SystemClock()
        self._upstream = Upstream(self._limits.upstream)

    async def open(
        self, socket_dir: Path, model: ModelSpec, meter: Meter, *, on_retry: RetryObserver | None = None
    ) -> "GatewayHandle":
        """A turn's socket, `gateway.sock` in `socket_dir`, serving until the handle is closed.

        `on_retry` hears of each repeated attempt. Raises `SocketPathTooLong`, `ModelParamsRefused`.
        """
        check_params(model.params)
        path = socket_dir / SOCKET_NAME
        if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            raise SocketPathTooLong(f"{path} is over {MAX_SOCKET_PATH_BYTES} bytes", hint="Use a shorter data dir.")
        calls = _Calls(
            model=model,
            meter=meter,
            upstream=self._upstream,
            on_retry=on_retry,
            limits=self._limits,
            clock=self._clock,
        )
        handle = GatewayHandle(path, calls)
        await handle.listen(self._limits)
        return handle

    async def close(self) -> None:
        """Closes the connections to the providers. Handles are closed by whoever opened them."""
        await self._upstream.close()


class GatewayHandle:
    """A turn's open socket, and what the worker wants to know of it when the turn ends."""

    def __init__(self, path: Path, calls: "_Calls") -> None:
        self.path = path
        self._calls = calls
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def budget_reached(self) -> bool:
        """Whether a call was refused because the ledger had nothing left for it."""
        return self._calls.budget_reached

    @property
    def last_error(self) -> ModelFailure | None:
        """Why the most recent model call failed; `None` when it succeeded, or none was made."""
        return self._calls.last_error

    async def listen(self, limits: GatewayLimits) -> None:
        """Binds the socket. For `ModelGateway.open`."""

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._connections) >= limits.max_connections:
                writer.transport.abort()
                return
            task = asyncio.ensure_future(
                serve_connection(reader, writer, self._calls.answer, max_body_bytes=limits.max_request_bytes)
            )
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        self._server = await asyncio.start_unix_server(connected, self.path)
        # The box's process has another uid. Who can reach the socket is decided by its directory, which only
        # this one box has.
        self.path.chmod(0o666)

    async def close(self) -> None:
        """Aborts a running call, settles it, closes the socket. Safe to call again."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self.path.unlink(missing_ok=True)


@dataclass(slots=True)
class _Call:
    """One call under way: everything a settlement needs, at whatever point it stops."""

    model: ModelSpec
    request: ModelRequest
    grant: Grant
    started_at_ms: int
    progress: CallProgress = field(default_factory=CallProgress)
    answer: dict[str, object] | None = None
    answer_bytes: int = 0

    def usage(self) -> CallUsage:
        """The provider's count; the whole reservation when an answer was under way; nothing when none was."""
        estimate = self.request.input_tokens
        lost = self.progress.lost * estimate
        if self.answer is not None:
            usage = usage_of(self.answer, input_estimate=estimate, output_bytes=self.answer_bytes)
            return usage if not lost else _with_lost_input(usage, lost)
        if self.progress.in_flight:
            return CallUsage(input_tokens=estimate + lost, output_tokens=self.grant.max_output_tokens, estimated=True)
        return CallUsage(input_tokens=lost, estimated=lost > 0)

    def outcome(self, now_ms: int) -> CallOutcome:
        """How it went so far."""
        return CallOutcome(
            provider=self.model.provider.name,
            model=self.model.model_id,
            latency_ms=now_ms - self.started_at_ms,
            # Without streaming the first byte and the whole answer are one; no time to the first token is known.
            first_token_ms=None,
            finish_reason=None if self.answer is None else finish_reason_of(self.answer),
            retries=self.progress.retries,
            accepted=self.answer is not None or self.progress.in_flight or self.progress.lost > 0,
            status=self.progress.status,
        )


class _Calls:
    """The calls of one turn: admission, reservation, the provider, settlement."""

    def __init__(
        self,
        *,
        model: ModelSpec,
        meter: Meter,
        upstream: Upstream,
        on_retry: RetryObserver | None,
        limits: GatewayLimits,
        clock: Clock,
    ) -> None:
        self.budget_reached = False
        self.last_error: ModelFailure | None = None
        self._model = model
        self._meter = meter
        self._upstream = upstream
        self._on_retry = on_retry
        self._limits = limits
        self._clock = clock
        self._busy = False
        self._recent_ms: deque[int] = deque()

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """The request handler of the socket: nothing it raises but a cancellation leaves it."""
        try:
            _check_route(request)
            return await self._complete(request.body)
        except CallRefused as refused:
            return _error(_STATUS[refused.error_code], refused.error_code, refused.message)
        except BudgetExhausted as exhausted:
            self.budget_reached = True
            return _error(_STATUS[BudgetExhausted.code], BudgetExhausted.code, exhausted.message)
        except ProviderFailed as failed:
            self.last_error = failed.failure
            return _error(
                _MODEL_ERROR_STATUS, failed.failure.code, failed.failure.message, retryable=failed.failure.retryable
            )
        except Exception:  # noqa: BLE001 - the request handler: records and fails closed
            self.last_error = ModelFailure("gateway_fault", "the gateway failed", retryable=True)
            _log.exception("model_gateway_fault", provider=self._model.provider.name, model=self._model.model_id)
            return _error(500, "gateway_fault", "the gateway failed")

    async def _complete(self, body: bytes) -> HttpAnswer:
        request = parse_request(body, self._model)
        self._admit()
        self._busy = True
        try:
            call = _Call(self._model, request, await self._reserve(request), self._clock.monotonic_ms())
            try:
                answer = await self._forward(call)
            finally:
                await _uninterrupted(self._settle(call))
        finally:
            self._busy = False
        self.last_error = None
        return HttpAnswer(200, answer)

    def _admit(self) -> None:
        if self._busy:
            raise CallRefused("a call of this turn is under way", code="call_in_progress")
        now_ms = self._clock.monotonic_ms()
        while self._recent_ms and self._recent_ms[0] <= now_ms - _MINUTE_MS:
            self._recent_ms.popleft()
        if len(self._recent_ms) >= self._limits.max_calls_per_minute:
            raise CallRefused(f"over {self._limits.max_calls_per_minute} calls a minute", code="rate_limited")
        self._recent_ms.append(now_ms)

    async def _reserve(self, request: ModelRequest) -> Grant:
        reserving = asyncio.ensure_future(self._grant(request))
        try:
            grant = await _uninterrupted(reserving)
        except asyncio.CancelledError:
            if reserving.done() and not reserving.cancelled() and reserving.exception() is None:
                await _uninterrupted(self._settle(self._unused(request, reserving.result())))
            raise
        if grant.max_output_tokens < min(MIN_OUTPUT_TOKENS, request.max_output_tokens):
            await _uninterrupted(self._settle(self._unused(request, grant)))
            raise BudgetExhausted(f"less than {MIN_OUTPUT_TOKENS} output tokens are left")
        return grant

    async def _grant(self, request: ModelRequest) -> Grant:
        async with asyncio.timeout(LEDGER_TIMEOUT_MS / 1000):
            return await self._meter.reserve(
                input_tokens=request.input_tokens, max_output_tokens=request.max_output_tokens
            )

    def _unused(self, request: ModelRequest, grant: Grant) -> _Call:
        return _Call(self._model, request, grant, self._clock.monotonic_ms())

    async def _forward(self, call: _Call) -> bytes:
        body = render_request(call.request, self._model, call.grant.max_output_tokens)
        try:
            async with asyncio.timeout(self._limits.call_timeout_ms / 1000):
                call.answer = await self._upstream.complete(self._model.provider, body, call.progress, self._on_retry)
            call.answer_bytes = size_bytes_of(call.answer.get("choices"))
            return render_answer(call.answer, self._model)
        except TimeoutError as error:
            message = f"no answer within {self._limits.call_timeout_ms} ms"
            raise ProviderFailed(ModelFailure("provider_timeout", message, retryable=True)) from error
        except AnswerUnusable as error:
            raise ProviderFailed(ModelFailure(error.error_code, error.message, retryable=False)) from error

    async def _settle(self, call: _Call) -> None:
        async with asyncio.timeout(LEDGER_TIMEOUT_MS / 1000):
            await self._meter.settle(call.grant.call, call.usage(), call.outcome(self._clock.monotonic_ms()))


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


def _check_route(request: HttpRequest) -> None:
    if request.target != COMPLETIONS_PATH:
        raise CallRefused(f"only POST {COMPLETIONS_PATH} is here", code="not_found")
    if request.method != "POST":
        raise CallRefused(f"only POST {COMPLETIONS_PATH} is here", code="method_not_allowed")


def _with_lost_input(usage: CallUsage, lost: int) -> CallUsage:
    return CallUsage(
        input_tokens=usage.input_tokens + lost,
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        estimated=True,
    )


def _error(status: int, code: str, message: str, *, retryable: bool | None = None) -> HttpAnswer:
    error: dict[str, object] = {"code": code, "message": message}
    if retryable is not None:
        error["retryable"] = retryable
    headers = {"retry-after": "60"} if code == "rate_limited" else {"allow": "POST"} if status == 405 else {}
    return HttpAnswer(status, orjson.dumps({"error": error}), headers)
