"""One run of a client: its process, its output line by line, and its end."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from turnkeeper.boxed.clients import Output
from turnkeeper.boxed.lines import parse_line

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_COMPLAINT_BYTES: Final = 16_384
DRAIN_TIMEOUT_S: Final = 5


class ClientFloods(Exception):
    """A line of the client's output is longer than any that it has reason for."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended. `complaint` is the end of its standard error, or of what it printed that was no line of JSON."""

    exit_status: int
    complaint: str


async def run_client(argv: Sequence[str], prompt: str, output: Output, on_line: Callable[[], None]) -> Ran:
    """Runs it to its end; `on_line` hears of each line that was taken. Raises `ClientFloods`, and what `on_line` does.

    However this ends, nothing of the client's own process group goes on.
    """
    stdout, stderr = await _Pipe.open(MAX_LINE_BYTES), await _Pipe.open(MAX_COMPLAINT_BYTES)
    complaint = _Tail(stderr.reader)
    try:
        process = await _started(argv, stdout, stderr)
        reading = asyncio.ensure_future(_read(stdout.reader, output, on_line))
        helping = [asyncio.ensure_future(complaint.fill()), asyncio.ensure_future(_feed(process, prompt))]
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                # Something that the client left running may hold its output open; that is no part of the answer.
                await asyncio.wait({reading}, timeout=DRAIN_TIMEOUT_S)
            strays = reading.result() if reading.done() else b""
            status = await ended
            await asyncio.wait({helping[0]}, timeout=DRAIN_TIMEOUT_S)
            return Ran(status, (complaint.kept or strays).decode(errors="replace"))
        finally:
            _kill(process.pid)
            for task in (reading, *helping):
                task.cancel()
            await ended
    finally:
        stdout.close()
        stderr.close()


class _Pipe:
    """A pipe of our own: asyncio's would count a client as running for as long as anything holds its output open."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport, inlet: int) -> None:
        self.reader = reader
        self._transport = transport
        self.inlet = inlet

    @classmethod
    async def open(cls, limit: int) -> "_Pipe":
        """A new one."""
        outlet, inlet = os.pipe()
        reader = asyncio.StreamReader(limit=limit)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(outlet, "rb", 0)
        )
        return cls(reader, transport, inlet)

    def close_inlet(self) -> None:
        """Once the client has it."""
        if self.inlet >= 0:
            os.close(self.inlet)
            self.inlet = -1

    def close(self) -> None:
        """Closes what is open of it."""
        self.close_inlet()
        self._transport.close()


async def _started(argv: Sequence[str], stdout: _Pipe, stderr: _Pipe) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=stdout.inlet,
        stderr=stderr.inlet,
        start_new_session=True,
    )
    stdout.close_inlet()
    stderr.close_inlet()
    return process


async def _feed(process: asyncio.subprocess.Process, prompt: str) -> None:
    stdin = process.stdin
    assert stdin is not None  # noqa: S101 - it was asked for
    try:
        stdin.write(prompt.encode())
        await stdin.drain()
    except ConnectionError:
        return
    finally:
        stdin.close()


async def _read(stdout: asyncio.StreamReader, output: Output, on_line: Callable[[], None]) -> bytes:
    strays = b""
    while True:
        try:
            line = await stdout.readline()
        except ValueError as error:
            raise ClientFloods(f"a line has more than {MAX_LINE_BYTES} bytes") from error
        if not line:
            return strays
        document = parse_line(line)
        if document is None:
            strays = (strays + line)[-MAX_COMPLAINT_BYTES:]
            continue
        output.take(document)
        on_line()


class _Tail:
    """The end of a stream."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self.kept = b""
        self._stream = stream

    async def fill(self) -> None:
        """Reads it all."""
        while piece := await self._stream.read(MAX_COMPLAINT_BYTES):
            self.kept = (self.kept + piece)[-MAX_COMPLAINT_BYTES:]


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
