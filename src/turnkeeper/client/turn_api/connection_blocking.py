"""Requests over HTTP with the patience that `Retries` says (contract 1, 9 and 13).

Answers for one request and its one meaning, however often it was sent. Must never show the key, follow a redirection
with it, or read an answer without bounds.

Made from `turnkeeper.client.turn_api.connection` by `tests/unit/client/turn_api_half.py`; change it there.
"""

import random
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from turnkeeper.client.settings import SettingRefused
from turnkeeper.client.turn_api.answers import Answer, Failure, read_answer
from turnkeeper.client.turn_api.documents import AnswerUnreadable
from turnkeeper.client.turn_api.pauses import sleep
from turnkeeper.client.turn_api.problems import ServerUnreachable
from turnkeeper.client.turn_api.retries import Call, Retries, Upload

MAX_ANSWER_BYTES: Final = 64 * 1_048_576
TIMEOUT_S: Final = 30.0
STREAM_SILENCE_S: Final = 60.0
"""The server says something every 15 seconds; a connection that is silent for so long is gone."""

_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """An open stream: its status, and its bytes as they come."""

    status: int
    headers: Mapping[str, str]
    pieces: Iterator[bytes]


class Connection:
    """One server and one key."""

    def __init__(self, base_url: str, key: str, *, retries: Retries, http: httpx.Client | None) -> None:
        self.retries = retries
        self._base_url = check_base_url(base_url)
        self._authorization = f"Bearer {key}"
        self._given = http
        self._http = http or httpx.Client(trust_env=False, follow_redirects=False, timeout=TIMEOUT_S)

    def close(self) -> None:
        """Closes the connections that are not the caller's; idempotent."""
        if self._given is None:
            self._http.close()

    def ask(self, call: Call, *, timeout_ms: int | None = None) -> Answer:
        """The answer. Raises `ApiProblem`, `ServerUnreachable`, `AnswerUnreadable`."""
        failures = 0
        while True:
            answer = self._try(call, timeout_ms)
            if isinstance(answer, Answer):
                return answer
            failures += 1
            if not answer.may_repeat or failures >= self.retries.max_attempts:
                raise answer.error
            self.pause(failures, answer.retry_after_ms)

    def pause(self, failures: int, retry_after_ms: int | None = None) -> None:
        """Waits as long as it should after so many failures in a row."""
        # Chance that keeps clients apart needs no secret source.
        sleep(self.retries.pause_ms(failures, retry_after_ms, random.random()))  # noqa: S311

    @contextmanager
    def open(self, path: str, query: Mapping[str, str], *, last_event_id: int) -> Generator[StreamOpened, None, None]:
        """A stream of events. Raises `httpx.TransportError`, also while its pieces are read."""
        headers = self._headers() | {"Accept": "text/event-stream", "Last-Event-ID": str(last_event_id)}
        url, timeout = self._base_url + path, httpx.Timeout(TIMEOUT_S, read=STREAM_SILENCE_S)
        with self._http.stream("GET", url, params=query, headers=headers, timeout=timeout) as response:
            yield StreamOpened(response.status_code, _lower(response), response.iter_bytes())

    def _try(self, call: Call, timeout_ms: int | None) -> Answer | Failure:
        try:
            status, headers, body = self._send(call, TIMEOUT_S + (timeout_ms or 0) / 1000)
        except _NEVER_SENT as error:
            return Failure(_unreachable(error), may_repeat=True)
        except httpx.TransportError as error:
            return Failure(_unreachable(error), call.repeatable)
        except httpx.DecodingError:
            return Failure(AnswerUnreadable("the answer cannot be decoded"), call.repeatable)
        return read_answer(call, status, headers, body, self.retries)

    def _send(self, call: Call, timeout_s: float) -> tuple[int, Mapping[str, str], bytes]:
        headers = self._headers()
        if call.idempotency_key is not None:
            headers["Idempotency-Key"] = call.idempotency_key
        with self._http.stream(
            call.method,
            self._base_url + call.path,
            params=call.query,
            json=call.body,
            **_form(call.upload),
            headers=headers,
            timeout=timeout_s,
        ) as response:
            return response.status_code, _lower(response), read_bounded(response.iter_bytes())

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._authorization}


def read_bounded(pieces: Iterator[bytes]) -> bytes:
    """All of them. Raises `AnswerUnreadable` for too many."""
    answer = bytearray()
    for piece in pieces:
        answer += piece
        if len(answer) > MAX_ANSWER_BYTES:
            raise AnswerUnreadable(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
    return bytes(answer)


def _form(upload: Upload | None) -> dict[str, Any]:
    if upload is None:
        return {}
    return {"files": {"file": (upload.name, upload.content, upload.media_type)}, "data": dict(upload.fields)}


def check_base_url(url: str) -> str:
    """The server's address without a slash or `/v1` at its end. Raises `SettingRefused`."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise SettingRefused(f"{url!r} is no address of a server: http or https and a host")
    return url.rstrip("/").removesuffix("/v1")


def monotonic_ms() -> int:
    """Milliseconds from an arbitrary start."""
    return time.monotonic_ns() // 1_000_000


def _lower(response: httpx.Response) -> Mapping[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _unreachable(error: httpx.TransportError) -> ServerUnreachable:
    hint = "Look whether the server runs, and whether this is its address."
    return ServerUnreachable(f"no answer came: {type(error).__name__}", hint=hint)
