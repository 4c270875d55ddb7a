"""The runner's side of the hooks: each connection is a report, ruled on by the worker, answered in the client's words.

Answers for a block in place of every answer that does not come, and for nothing being believed of a report beyond "this
is what the client wants".
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Final, cast

from turnkeeper.boxed.hook import MAX_REPORT_BYTES
from turnkeeper.boxed.worker_link import WorkerLink
from turnkeeper.errors import TurnkeeperError
from turnkeeper.harness.channel import WorkerGone
from turnkeeper.hooks.events import (
    Block,
    Dialect,
    HookEvent,
    HookInputInvalid,
    Proceed,
    Replace,
    Reply,
    Ruling,
    ToolFinished,
    ToolRequested,
)
from turnkeeper.sandbox.protocol import ToolAsked, ToolRan, ToolResult, ToolRuled

MAX_OUTPUT_CHARACTERS: Final = 128 * 1024
"""Of a tool's output: the rest is cut, for the Guardian and for the agent alike."""


class HookDesk:
    """Takes the questions of one client's hooks to the worker. `asked` are the calls that a hook asked about."""

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self.asked: set[str] = set()

    async def rule(self, event: HookEvent) -> Ruling:
        """What the client may do. Prompts are the turn's input, which the worker asked about before anything began."""
        match event:
            case ToolRequested():
                return await self._requested(event)
            case ToolFinished():
                return await self._finished(event)
            case _:
                return Proceed()

    async def _requested(self, event: ToolRequested) -> Ruling:
        self.asked.add(event.call_id)
        arguments = json.dumps(event.arguments, ensure_ascii=False)
        ruled = await self._link.ask(ToolAsked(event.call_id, event.name, arguments), ToolRuled)
        if not ruled.allowed:
            return Block(ruled.reason or "denied")
        changed = cast("dict[str, object]", json.loads(ruled.arguments))
        return Proceed() if changed == event.arguments else Replace(changed)

    async def _finished(self, event: ToolFinished) -> Ruling:
        shown = event.text[:MAX_OUTPUT_CHARACTERS]
        status = "error" if event.failed else "ok"
        told = await self._link.ask(ToolRan(event.call_id, status, shown), ToolResult)
        if told.status not in {"ok", "error"}:
            return Block(told.content or told.status)
        content = f"{told.content}\n\n[{told.notice}]" if told.notice else told.content
        return Proceed() if content == event.text else Replace(content)


class HookDoor:
    """Listens for hooks until it is closed."""

    def __init__(self, dialect: Dialect, desk: HookDesk) -> None:
        self._dialect = dialect
        self._desk = desk
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def listen(self, address: str) -> None:
        """Opens the door."""
        self._server = await asyncio.start_unix_server(self._connected, address, limit=MAX_REPORT_BYTES + 1)

    async def close(self) -> None:
        """Closes it, with whoever waits there."""
        if self._server is not None:
            self._server.close()
        for answering in tuple(self._answering):
            answering.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering = asyncio.ensure_future(self._answer(reader, writer))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            reply = await self._reply(await _read_report(reader))
            document = {"stdout": reply.stdout.decode(), "stderr": reply.stderr, "exit_code": reply.exit_code}
            with contextlib.suppress(ConnectionError):
                writer.write(json.dumps(document).encode())
                await writer.drain()
        finally:
            writer.close()

    async def _reply(self, report: bytes) -> Reply:
        try:
            event = self._dialect.read_report(_parsed(report)).event
            return self._dialect.render_reply(event, await self._desk.rule(event))
        except TurnkeeperError as error:
            return Reply(stderr=f"turnkeeper: {error.message}\n", exit_code=2)
        except WorkerGone:
            return Reply(stderr="turnkeeper: nobody is there to decide\n", exit_code=2)


async def _read_report(reader: asyncio.StreamReader) -> bytes:
    report = b""
    while (piece := await reader.read(65_536)) and len(report) <= MAX_REPORT_BYTES:
        report += piece
    return report


def _parsed(report: bytes) -> Mapping[str, object]:
    try:
        document: object = json.loads(report)
    except (ValueError, RecursionError) as error:
        raise HookInputInvalid(f"the report is no JSON: {error}") from error
    if len(report) > MAX_REPORT_BYTES or not isinstance(document, dict):
        raise HookInputInvalid("the report is too long, or no object")
    return cast("dict[str, object]", document)
