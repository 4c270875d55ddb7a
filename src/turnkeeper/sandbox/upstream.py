"""One model call to a provider: attempts, bounded repeats, and what is known of it wherever it stops.

A refusal that may pass (429, 5xx) and a connection that could not be made or was lost before an answer are repeated a
few times. A provider's error text goes no further than this module: it is mapped to a failure of ours.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import httpx
import orjson

from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.gateway_rules import AnswerUnusable, parse_answer
from turnkeeper.sandbox.metering import ModelFailure, Retry
from turnkeeper.sandbox.providers import Provider

MAX_ERROR_BYTES: Final = 64 * 1024
CONNECT_TIMEOUT_MS: Final = 10_000
MAX_UPSTREAM_CONNECTIONS: Final = 64

_MAX_BACKOFF_DOUBLINGS: Final = 6
_OK: Final = 200
_PASSING_STATUS: Final = frozenset({408, 409, 425, 429})
# Only words: a key has digits or capitals, so an echo of one does not fit.
_IDENTIFIER: Final = re.compile(r"[a-z_]{1,48}\Z")
_CONTEXT_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_QUOTA_CODES: Final = frozenset({"insufficient_quota"})
_STATUS_CODES: Final = {
    400: ("provider_rejected", "the provider refused the request"),
    401: ("provider_denied", "the provider did not accept the key"),
    402: ("provider_denied", "the provider account cannot pay"),
    403: ("provider_denied", "the provider does not allow this call"),
    404: ("provider_model_unknown", "the provider does not know this model or path"),
    413: ("provider_rejected", "the provider finds the request too large"),
    422: ("provider_rejected", "the provider refused the request"),
    429: ("provider_rate_limited", "the provider asks to slow down"),
}

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
    """Bounds of one call to a provider."""

    max_response_bytes: int = 1024 * 1024
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


class Upstream:
    """Calls providers through one shared, bounded connection pool. No redirects, no proxy from the environment."""

    def __init__(self, limits: UpstreamLimits) -> None:
        self._limits = limits
        self._client = httpx.AsyncClient(
            follow_redirects=False,
            trust_env=False,
            # The whole call has a deadline of its own; generating may well be silent for long.
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_MS / 1000),
            limits=httpx.Limits(max_connections=MAX_UPSTREAM_CONNECTIONS),
        )

    async def close(self) -> None:
        """Closes the pool."""
        await self._client.aclose()

    async def complete(
        self, provider: Provider, body: bytes, progress: CallProgress, on_retry: RetryObserver | None
    ) -> dict[str, object]:
        """The provider's answer as an object. Raises `ProviderFailed` when it is of no use to try again."""
        while True:
            try:
                return await self._attempt(provider, body, progress)
            except ProviderFailed as failed:
                if not failed.repeat or progress.retries >= self._limits.max_retries:
                    raise
                delay_ms = self._delay_ms(failed, progress.retries)
                progress.retries += 1
                if on_retry is not None:
                    await on_retry(Retry(failed.failure, delay_ms, progress.retries))
                await asyncio.sleep(delay_ms / 1000)

    async def _attempt(self, provider: Provider, body: bytes, progress: CallProgress) -> dict[str, object]:
        progress.status, progress.in_flight = None, True
        try:
            async with self._client.stream(
                "POST", provider.completions_url, content=body, headers=_headers(provider)
            ) as response:
                progress.status = response.status_code
                if response.status_code != _OK:
                    progress.in_flight = False
                    raise await _refused(response)
                raw = await self._read(response)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            progress.in_flight = False
            raise ProviderFailed(_unreachable(provider), repeat=True) from error
        except httpx.HTTPError as error:
            raise _lost(progress) from error
        answer = _parsed(raw)
        progress.in_flight = False
        return answer

    async def _read(self, response: httpx.Response) -> bytes:
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise ProviderFailed(_bad_answer(f"the answer is encoded as {encoding[:20]!r}, which was not asked for"))
        raw = bytearray()
        async for chunk in response.aiter_raw():
            raw += chunk
            if len(raw) > self._limits.max_response_bytes:
                raise ProviderFailed(_bad_answer(f"the answer is over {self._limits.max_response_bytes} bytes"))
        return bytes(raw)

    def _delay_ms(self, failed: ProviderFailed, retries: int) -> int:
        backoff_ms = self._limits.retry_backoff_ms << min(retries, _MAX_BACKOFF_DOUBLINGS)
        wanted_ms = backoff_ms if failed.retry_after_ms is None else failed.retry_after_ms
        return min(wanted_ms, self._limits.max_retry_delay_ms)


def _headers(provider: Provider) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
    if provider.api_key is not None:
        headers["authorization"] = f"Bearer {provider.api_key.get_secret_value()}"
    return headers


def _lost(progress: CallProgress) -> ProviderFailed:
    failure = ModelFailure("provider_connection_lost", "the provider broke off", retryable=True, status=progress.status)
    if progress.status is not None:
        # The answer had begun, so the provider has worked for it: sending again would pay twice.
        return ProviderFailed(failure)
    progress.lost += 1
    progress.in_flight = False
    return ProviderFailed(failure, repeat=True)


def _parsed(raw: bytes) -> dict[str, object]:
    try:
        return parse_answer(raw)
    except AnswerUnusable as error:
        raise ProviderFailed(_bad_answer(error.message)) from error


def _bad_answer(message: str) -> ModelFailure:
    return ModelFailure("provider_bad_answer", message, retryable=False, status=_OK)


def _unreachable(provider: Provider) -> ModelFailure:
    if provider.kind == "local":
        return ModelFailure("local_model_unavailable", "the local model's server does not answer", retryable=True)
    return ModelFailure("provider_unreachable", "no connection to the provider could be made", retryable=True)


async def _refused(response: httpx.Response) -> ProviderFailed:
    status = response.status_code
    reason = _reason(await _read_error(response))
    passing = status in _PASSING_STATUS or status >= 500
    code, message = _STATUS_CODES.get(status, ("provider_rejected", "the provider refused the request"))
    if reason in _CONTEXT_CODES:
        code, message, passing = "context_length_exceeded", "the context is longer than the model's", False
    elif reason in _QUOTA_CODES:
        code, message, passing = "provider_denied", "the provider account has no quota left", False
    elif status >= 500:
        code, message = "provider_unavailable", "the provider failed"
    elif 300 <= status < 400:
        code, message = "provider_redirected", "the provider answered with a redirect, which is not followed"
    detail = f"{message} (status {status}{f', {reason}' if reason else ''})"
    failure = ModelFailure(code, detail, retryable=passing, status=status)
    return ProviderFailed(failure, repeat=passing, retry_after_ms=_retry_after_ms(response))


async def _read_error(response: httpx.Response) -> bytes:
    raw = bytearray()
    async for chunk in response.aiter_raw():
        raw += chunk
        if len(raw) > MAX_ERROR_BYTES:
            break
    return bytes(raw[:MAX_ERROR_BYTES])


def _reason(body: bytes) -> str | None:
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    error = cast("dict[str, object]", document).get("error") if isinstance(document, dict) else None
    members = cast("dict[str, object]", error) if isinstance(error, dict) else {}
    for name in ("code", "type"):
        value = members.get(name)
        if isinstance(value, str) and _IDENTIFIER.match(value):
            return value
    return None


def _retry_after_ms(response: httpx.Response) -> int | None:
    text = response.headers.get("retry-after", "")
    return int(text) * 1000 if text.isascii() and text.isdigit() and len(text) <= 6 else None
