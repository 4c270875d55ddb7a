"""A model that says what a script tells it: an OpenAI-compatible Chat Completions server on the loopback interface.

For tests, the demo and the acceptance suite, where an answer must be known beforehand. It generates nothing and must
never be taken for a model: its answers name `scripted` as their fingerprint.
"""

import argparse
import asyncio
import json
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias, cast

from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.http_door import HttpAnswer, HttpRequest, serve_connection

COMPLETIONS_PATH: Final = "/v1/chat/completions"
MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024

_BYTES_PER_TOKEN: Final = 4
_STOP_TIMEOUT_S: Final = 10


class ScriptMalformed(TurnkeeperError):
    """A script file is not a list of answers."""

    code = "script_malformed"


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call of the scripted model. `arguments` is text, so it need not be JSON; `id` None: made up."""

    name: str
    arguments: str = "{}"
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptedUsage:
    """What the scripted model says it consumed."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """One answer of the script.

    A `status` other than 200 sends an error with `error_code`. `usage` None is counted from the texts unless
    `omit_usage`. `raw` replaces the whole body. `delay_ms` passes before anything is sent; `hang_up` closes the
    connection instead of answering.
    """

    text: str | None = None
    tool_calls: tuple[ScriptedCall, ...] = ()
    usage: ScriptedUsage | None = None
    omit_usage: bool = False
    finish_reason: str | None = None
    status: int = 200
    error_code: str = "scripted_error"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay_ms: int = 0
    raw: bytes | None = None
    hang_up: bool = False


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request as it arrived; `body` is `{}` when it was not a JSON object. `index` counts from 0."""

    index: int
    method: str
    target: str
    headers: Mapping[str, str]
    body: Mapping[str, object]
    raw: bytes

    @property
    def messages(self) -> list[dict[str, object]]:
        """The conversation so far."""
        return cast("list[dict[str, object]]", self.body.get("messages", []))

    @property
    def tool_names(self) -> list[str]:
        """The names of the tools that were offered."""
        tools = cast("list[dict[str, dict[str, str]]]", self.body.get("tools", []))
        return [tool["function"]["name"] for tool in tools]


Script: TypeAlias = Sequence[ScriptedAnswer] | Callable[[SeenRequest], ScriptedAnswer]


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

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        if request.method != "POST" or request.target != COMPLETIONS_PATH:
            return _error(404, "not_found")
        if self._api_key is not None and request.headers.get("authorization") != f"Bearer {self._api_key}":
            return _error(401, "invalid_api_key")
        seen = SeenRequest(
            len(self.requests), request.method, request.target, request.headers, _object(request.body), request.body
        )
        self.requests.append(seen)
        await self._tell()
        try:
            return await _play(self._next(seen), seen)
        except asyncio.CancelledError:
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


def parse_script(text: str) -> list[ScriptedAnswer]:
    """A script from JSON: a list of objects with the members of `ScriptedAnswer` (without `raw`).

    `tool_calls` are `{"name", "arguments"}`, arguments an object or a text. Raises `ScriptMalformed`.
    """
    try:
        entries = cast("object", json.loads(text))
        if not isinstance(entries, list):
            raise ScriptMalformed("a script is a list of answers")
        return [_parse_entry(cast("dict[str, object]", entry)) for entry in cast("list[object]", entries)]
    except (ValueError, TypeError, KeyError) as error:
        raise ScriptMalformed(f"a script could not be read: {error}") from error


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


async def _play(answer: ScriptedAnswer, seen: SeenRequest) -> HttpAnswer:
    if answer.delay_ms:
        await asyncio.sleep(answer.delay_ms / 1000)
    if answer.hang_up:
        raise ConnectionResetError("scripted to hang up")
    if answer.raw is not None:
        return HttpAnswer(answer.status, answer.raw, answer.headers)
    if answer.status != 200:
        return _error(answer.status, answer.error_code, answer.headers)
    if seen.body.get("stream"):
        return _error(400, "stream_not_scripted")
    return HttpAnswer(200, json.dumps(_completion(answer, seen)).encode(), answer.headers)


def _completion(answer: ScriptedAnswer, seen: SeenRequest) -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": answer.text}
    if answer.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id or f"call_{seen.index}_{position}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for position, call in enumerate(answer.tool_calls)
        ]
    finish_reason = answer.finish_reason or ("tool_calls" if answer.tool_calls else "stop")
    document: dict[str, object] = {
        "id": f"chatcmpl-{seen.index}",
        "object": "chat.completion",
        "created": 0,
        "model": seen.body.get("model", "scripted"),
        "system_fingerprint": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
    }
    if not answer.omit_usage:
        document["usage"] = _usage(answer.usage or _counted(message, seen))
    return document


def _counted(message: Mapping[str, object], seen: SeenRequest) -> ScriptedUsage:
    return ScriptedUsage(
        prompt_tokens=-(-len(json.dumps(seen.messages)) // _BYTES_PER_TOKEN),
        completion_tokens=-(-len(json.dumps(message)) // _BYTES_PER_TOKEN),
    )


def _usage(usage: ScriptedUsage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _error(status: int, code: str, headers: Mapping[str, str] | None = None) -> HttpAnswer:
    body = {"error": {"message": f"scripted model: {code}", "type": "scripted", "code": code}}
    return HttpAnswer(status, json.dumps(body).encode(), headers or {})


def _object(raw: bytes) -> dict[str, object]:
    try:
        document: object = json.loads(raw)
    except ValueError:
        return {}
    return cast("dict[str, object]", document) if isinstance(document, dict) else {}


def _parse_entry(entry: Mapping[str, object]) -> ScriptedAnswer:
    members = dict(entry)
    calls = cast("list[dict[str, object]]", members.pop("tool_calls", []))
    usage = cast("dict[str, int] | None", members.pop("usage", None))
    return ScriptedAnswer(
        tool_calls=tuple(_parse_call(call) for call in calls),
        usage=None if usage is None else ScriptedUsage(**usage),
        **members,  # pyright: ignore[reportArgumentType] - a wrong name is a TypeError, reported as ScriptMalformed
    )


def _parse_call(call: Mapping[str, object]) -> ScriptedCall:
    arguments = call.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ScriptedCall(str(call["name"]), text)


if __name__ == "__main__":
    sys.exit(main())
