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
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=MAX_LINE_BYTES,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
    complaining = asyncio.ensure_future(_tail(process.stderr))
    try:
        feeding = asyncio.ensure_future(_feed(process.stdin, prompt))
        strays = await _read(process.stdout, output, on_line)
        await feeding
        status = await process.wait()
        said = await asyncio.wait_for(complaining, DRAIN_TIMEOUT_S)
        return Ran(status, (said or strays).decode(errors="replace"))
    finally:
        _kill(process.pid)
        complaining.cancel()
        await process.wait()


async def _feed(stdin: asyncio.StreamWriter, prompt: str) -> None:
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


async def _tail(stderr: asyncio.StreamReader) -> bytes:
    tail = b""
    while piece := await stderr.read(MAX_COMPLAINT_BYTES):
        tail = (tail + piece)[-MAX_COMPLAINT_BYTES:]
    return tail


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
