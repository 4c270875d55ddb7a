"""A model that says what a script tells it: Chat Completions, Responses and Messages on the loopback interface.

Whole answers and streams, tool calls, errors, streams that break off and words that come slowly. For tests, the demo
and the acceptance suite, where an answer must be known beforehand. It generates nothing and must never be taken for a
model: its answers name `scripted` as their fingerprint or in their ids.
"""

import argparse
import asyncio
import json
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self, cast

from turnkeeper.sandbox.http_door import ClientLeft, HttpAnswer, HttpRequest, Reply, serve_connection
from turnkeeper.testing.scripted_answers import (
    Script,
    ScriptedAnswer,
    ScriptedCall,
    ScriptedUsage,
    ScriptMalformed,
    SeenRequest,
    WireName,
    parse_script,
)
from turnkeeper.testing.scripted_wires import WIRES

__all__ = [
    "Script",
    "ScriptMalformed",
    "ScriptedAnswer",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedUsage",
    "SeenRequest",
    "parse_script",
    "running_scripted_model",
]

PATHS: Final[Mapping[str, WireName]] = {
    "/v1/chat/completions": "chat_completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024

_STOP_TIMEOUT_S: Final = 10


class ScriptedModel:
    """The server. A script is a list, used up one answer per request and then answered 500, or a callable.

    `requests` holds what was asked, in order; `abandoned` counts clients that left before their answer.
    `api_key`, if given, is demanded (401 otherwise).
    """

    def __init__(self, script: Script, *, api_key: str | None = None) -> None:
        self.requests: list[SeenRequest] = []
        self.abandoned = 0
        self._news = asyncio.Condition()
        self._script = script
        self._api_key = api_key
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._port = 0

    @property
    def base_url(self) -> str:
        """Where it listens, with `/v1`, as a provider's `base_url`."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def start(self, port: int = 0) -> None:
        """Listens on 127.0.0.1; port 0 is a free one."""

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(
                serve_connection(reader, writer, self._answer, max_body_bytes=MAX_REQUEST_BYTES)
            )
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        self._server = await asyncio.start_server(connected, "127.0.0.1", port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes every connection."""
        if self._server is None:
            return
        self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._server = None

    async def wait_until(self, holds: Callable[[], bool], *, timeout_ms: int = 10_000) -> None:
        """Returns when `holds()` is true, looking again at each request and each abandoned one.

        Only from the event loop the server runs on. Raises `TimeoutError`.
        """
        async with asyncio.timeout(timeout_ms / 1000), self._news:
            await self._news.wait_for(holds)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _answer(self, request: HttpRequest, reply: Reply) -> HttpAnswer | None:
        wire = PATHS.get(request.target.partition("?")[0])
        if request.method != "POST" or wire is None:
            return _error("chat_completions", 404, "not_found")
        if self._api_key is not None and self._api_key != _key_of(request):
            return _error(wire, 401, "invalid_api_key")
        seen = SeenRequest(
            wire,
            len(self.requests),
            request.method,
            request.target,
            request.headers,
            _object(request.body),
            request.body,
        )
        self.requests.append(seen)
        await self._tell()
        try:
            return await _play(self._next(seen), seen, reply)
        except (asyncio.CancelledError, ClientLeft):
            self.abandoned += 1
            await self._tell()
            raise

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _next(self, seen: SeenRequest) -> ScriptedAnswer:
        if callable(self._script):
            return self._script(seen)
        if seen.index >= len(self._script):
            return ScriptedAnswer(status=500, error_code="script_used_up")
        return self._script[seen.index]


@contextmanager
def running_scripted_model(script: Script, *, api_key: str | None = None, port: int = 0) -> Generator[ScriptedModel]:
    """A scripted model on a thread of its own, for callers that have no event loop."""
    model = ScriptedModel(script, api_key=api_key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="scripted-model", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(model.start(port), loop).result(_STOP_TIMEOUT_S)
        yield model
    finally:
        asyncio.run_coroutine_threadsafe(model.stop(), loop).result(_STOP_TIMEOUT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_STOP_TIMEOUT_S)
        loop.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves a script file until interrupted; prints the base URL as its first line."""
    parser = argparse.ArgumentParser(prog="python -m turnkeeper.testing.scripted_model", description=main.__doc__)
    parser.add_argument("--script", type=Path, required=True, help="JSON file with the list of answers")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--api-key", help="demand this key")
    options = parser.parse_args(arguments)
    model = ScriptedModel(parse_script(options.script.read_text()), api_key=options.api_key)
    try:
        asyncio.run(_serve(model, options.port))
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(model: ScriptedModel, port: int) -> None:
    await model.start(port)
    print(model.base_url, flush=True)
    await asyncio.Event().wait()


async def _play(answer: ScriptedAnswer, seen: SeenRequest, reply: Reply) -> HttpAnswer | None:
    if answer.delay_ms:
        await asyncio.sleep(answer.delay_ms / 1000)
    if answer.hang_up:
        raise ConnectionResetError("scripted to hang up")
    wire = WIRES[seen.wire]
    if answer.raw is not None:
        return HttpAnswer(answer.status, answer.raw, answer.headers)
    if answer.status != 200:
        return _error(seen.wire, answer.status, answer.error_code, answer.headers)
    if not seen.streams:
        return HttpAnswer(200, json.dumps(wire.whole(answer, seen)).encode(), answer.headers)
    await reply.begin(200, {"content-type": "text/event-stream", **answer.headers})
    for number, event in enumerate(_events(answer, seen)):
        if number == answer.cut_after_events:
            raise ConnectionResetError("scripted to break off")
        if answer.event_delay_ms:
            await asyncio.sleep(answer.event_delay_ms / 1000)
        await reply.write(event)
    return None


def _events(answer: ScriptedAnswer, seen: SeenRequest) -> list[bytes]:
    wire = WIRES[seen.wire]
    events = wire.events(answer, seen)
    if answer.stream_error is None:
        return events
    return [*events[: answer.error_after], wire.stream_error(answer.stream_error)]


def _error(wire: WireName, status: int, code: str, headers: Mapping[str, str] | None = None) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(WIRES[wire].error(code)).encode(), headers or {})


def _key_of(request: HttpRequest) -> str | None:
    return request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")


def _object(raw: bytes) -> dict[str, object]:
    try:
        document: object = json.loads(raw)
    except ValueError:
        return {}
    return cast("dict[str, object]", document) if isinstance(document, dict) else {}


if __name__ == "__main__":
    sys.exit(main())
