"""Posts webhooks over HTTP, to the very address that was checked (contract 12, safety).

Answers for a bounded try: 15 s in all, 64 KiB read of the answer, no redirection followed, no proxy of the environment
used. Must never connect to an address that `addresses` refuses, nor resolve a name a second time after the check.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import SplitResult

import httpx

from turnkeeper.events.webhooks.addresses import Network, check_url, pick_address
from turnkeeper.events.webhooks.endpoints import WebhookInvalid
from turnkeeper.events.webhooks.ports import Answer, Resolver

TIMEOUT_MS: Final = 15_000
MAX_ANSWER_BYTES: Final = 65_536
KEPT_ANSWER_BYTES: Final = 1_024
_PORTS: Final = {"https": 443, "http": 80}


class HttpSender:
    """`Sender` over HTTP/1.1."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        resolver: Resolver,
        *,
        allow_http: bool = False,
        allowed: Sequence[Network] = (),
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self._client = client
        self._resolver = resolver
        self._allow_http = allow_http
        self._allowed = tuple(allowed)
        self._timeout_ms = timeout_ms

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer, or what kept one from coming. Never raises for what a receiver does."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._post(url, headers, body)
        except TimeoutError:
            return _nothing(f"no answer within {self._timeout_ms} ms")
        except WebhookInvalid as refused:
            return _nothing(refused.message)
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError) as error:
            return _nothing(f"{type(error).__name__}: {error}"[:500])

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        parts = check_url(url, allow_http=self._allow_http, allowed=self._allowed)
        host = parts.hostname or ""
        address = pick_address(await self._resolver(host, parts.port or _PORTS[parts.scheme]), allowed=self._allowed)
        request = self._client.build_request(
            "POST",
            _pinned(parts, address),
            content=body,
            headers={**headers, "host": parts.netloc},
            # The certificate is checked against the name, whatever address the connection goes to.
            extensions={"sni_hostname": host},
        )
        response = await self._client.send(request, stream=True, follow_redirects=False)
        try:
            head = await _read(response)
        finally:
            await response.aclose()
        return Answer(response.status_code, None, head, response.headers.get("retry-after"))


def _pinned(parts: SplitResult, address: str) -> str:
    shown = f"[{address}]" if ":" in address else address
    netloc = shown if parts.port is None else f"{shown}:{parts.port}"
    return parts._replace(netloc=netloc).geturl()


async def _read(response: httpx.Response) -> str:
    kept = bytearray()
    seen = 0
    async for chunk in response.aiter_raw():
        seen += len(chunk)
        kept += chunk[: KEPT_ANSWER_BYTES - len(kept)]
        if seen >= MAX_ANSWER_BYTES:
            break
    return kept.decode(errors="replace")


def _nothing(error: str) -> Answer:
    return Answer(None, error, None, None)
