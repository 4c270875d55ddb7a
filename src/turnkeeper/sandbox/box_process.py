"""One started box: its processes, its bounded stdio, and its certain end.

Started with `subprocess` from the event loop's own thread, because `--die-with-parent` follows the thread that
forked; watched through pidfds, because a pid may be somebody else's by the time it is signalled.
INVARIANT: no amount of output makes us hold more than the line limit twice and the diagnostics ring.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, cast

from turnkeeper.errors import RemoteProtocolError
from turnkeeper.sandbox.boxes import BoxLost, BoxNotGone, EndReason, SandboxUnavailable
from turnkeeper.sandbox.standstill import go_on_below, stop_below

DIAGNOSTICS_BYTES: Final = 16 * 1024
MAX_STDERR_BYTES: Final = 16 << 20
MAX_INFO_BYTES: Final = 4096
START_TIMEOUT_MS: Final = 10_000
SEND_TIMEOUT_MS: Final = 10_000
KILL_TIMEOUT_MS: Final = 5_000
POLL_MS: Final = 5
LAST_WORDS_MS: Final = 500


class LineTooLong(RemoteProtocolError):
    """The box wrote a line over the limit, or more in all than a box may."""

    code = "box_output_too_large"


def _nothing() -> None:
    return None


def _nothing_left() -> bool:
    return True


def _none_counted() -> int:
    return 0


def _attach_to_nothing(_: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Launch:
    """A command that makes a box. The descriptors in `fds` are inherited and then closed here.

    `info` is the reading end of bubblewrap's `--info-fd`. `kill_rest`, for boxes without a process namespace, kills
    what else belongs to the box and says whether that was nothing. `release` is called once, when all of it is gone.
    `channel` is what we write to and read from where that is not the process's own standard input and output.
    A box waits before it runs anything until `block` is closed; by then `attach` has been told its first process.
    `oom_kills` counts the processes that the kernel ended because the box's memory was used up.
    """

    argv: tuple[str, ...]
    executable: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    directory: Path = Path("/")
    fds: tuple[int, ...] = ()
    info: IO[bytes] | None = None
    channel: tuple[IO[bytes], IO[bytes]] | None = None
    block: int | None = None
    attach: Callable[[int], None] = _attach_to_nothing
    oom_kills: Callable[[], int] = _none_counted
    kill_rest: Callable[[], bool] = _nothing_left
    release: Callable[[], None] = _nothing


class DiagnosticsRing(asyncio.Protocol):
    """The last bytes of a stderr. One that will not stop is closed, so that it costs us no more time."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._total = 0
        self._transport: asyncio.BaseTransport | None = None
        self._over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember whom to close."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep the end of what came."""
        self._total += len(data)
        self._kept += data
        del self._kept[:-DIAGNOSTICS_BYTES]
        if self._total > MAX_STDERR_BYTES and self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more will come."""
        self._over.set()

    async def over(self) -> None:
        """Returns when everything that was written has been read, or after `LAST_WORDS_MS`."""
        if self._transport is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), LAST_WORDS_MS / 1000)

    def text(self) -> str:
        """What was kept, as text."""
        return self._kept.decode("utf-8", "replace").strip()


class BoxProcess:
    """The host's side of a running box. Made by `spawn`."""

    def __init__(self, launch: Launch, process: "subprocess.Popen[bytes]", max_line_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self._launch = launch
        self._process = process
        self._outer = os.pidfd_open(process.pid)
        self._inner: int | None = None
        self._block = launch.block
        self._exited: asyncio.Future[None] = loop.create_future()
        self._reader = asyncio.StreamReader(limit=max_line_bytes)
        self._writer: asyncio.StreamWriter | None = None
        self._ring = DiagnosticsRing()
        self._transports: list[asyncio.BaseTransport] = []
        self._tell: list[Callable[[], None]] = []
        self._killing: asyncio.Task[None] | None = None
        self._signalled = False
        self._stopped: frozenset[int] | None = None
        self._told_oom_kills = 0
        self._end_reason: EndReason | None = None
        loop.add_reader(self._outer, self._on_exit)

    @classmethod
    async def spawn(cls, launch: Launch, *, max_line_bytes: int) -> "BoxProcess":
        """Start the box and wait until it has its namespaces. Raises `SandboxUnavailable`."""
        process = _start(launch)
        try:
            box = cls(launch, process, max_line_bytes)
        except OSError as error:
            process.kill()
            process.communicate()
            raise _refused(launch, error) from error
        try:
            await box._connect()
            if launch.info is not None:
                await box._learn_inner(launch.info)
        except BaseException as error:
            await box.kill()
            if isinstance(error, OSError):
                raise SandboxUnavailable(f"a box could not be connected: {error.strerror}") from error
            raise
        return box

    @property
    def diagnostics(self) -> str:
        """The last of the box's stderr."""
        return self._ring.text()

    @property
    def is_alive(self) -> bool:
        """Whether the box has neither ended nor been told to."""
        return not self._signalled and not self._exited.done()

    def when_gone(self, tell: Callable[[], None]) -> None:
        """Call `tell` once every process of the box is gone."""
        self._tell.append(tell)

    async def ended(self) -> None:
        """Returns when the first process has exited, by itself or not."""
        await asyncio.shield(self._exited)

    async def write(self, line: bytes) -> None:
        """Send bytes. Raises `BoxLost` when nobody reads them within `SEND_TIMEOUT_MS`."""
        if self._writer is None or not self.is_alive:
            raise self._lost("the box has ended")
        try:
            self._writer.write(line)
            await asyncio.wait_for(self._writer.drain(), SEND_TIMEOUT_MS / 1000)
        except TimeoutError as error:
            self.signal_kill()
            raise self._lost("the box does not read what it is sent") from error
        except OSError as error:
            raise self._lost("the box closed its input") from error

    async def read_line(self) -> bytes:
        """The next line with its end. Raises `BoxLost` at the end of the output, `LineTooLong`."""
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            self.signal_kill()
            raise LineTooLong("the box wrote a line over the limit") from error
        except asyncio.IncompleteReadError as error:
            raise self._lost("the box ended" + (" in the middle of a line" if error.partial else "")) from error
        except OSError as error:
            raise self._lost("the box's output broke") from error

    @property
    def end_reason(self) -> EndReason | None:
        """Why we ended it, or why the kernel did as far as can be told; None for every other end, and for none."""
        if self._end_reason is None and not self.is_alive and self._launch.oom_kills() > self._told_oom_kills:
            self._end_reason = "oom"
        return self._end_reason

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has ended processes of the box for that since this was last asked."""
        kills = self._launch.oom_kills()
        told, self._told_oom_kills = self._told_oom_kills, kills
        return kills > told

    async def suspend(self) -> bool:
        """Stops every process inside. False where there is no namespace, or they would not stand still."""
        if self._inner is None or not self.is_alive or self._stopped is not None:
            return self._stopped is not None
        self._stopped = await asyncio.to_thread(stop_below, self._process.pid)
        return self._stopped is not None

    async def resume(self) -> None:
        """Sets going what `suspend` stopped."""
        stopped, self._stopped = self._stopped, None
        if stopped is not None:
            await asyncio.to_thread(go_on_below, self._process.pid, stopped)

    def signal_kill(self, reason: EndReason | None = None) -> None:
        """SIGKILL to everything in the box; `kill` is still owed, to wait and to clean up."""
        self._signalled = True
        self._end_reason = self._end_reason or reason
        for pidfd in (self._inner, self._outer):
            if pidfd is not None and pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        self._launch.kill_rest()

    async def kill(self) -> None:
        """SIGKILL and wait until every process is gone. Idempotent. Raises `BoxNotGone` after `KILL_TIMEOUT_MS`."""
        if self._killing is None:
            self.signal_kill()
            self._killing = asyncio.create_task(self._bury())
        await asyncio.shield(self._killing)

    async def _bury(self) -> None:
        try:
            async with asyncio.timeout(KILL_TIMEOUT_MS / 1000):
                await self.ended()
                await self._inner_gone()
            await self._ring.over()
        except TimeoutError as error:
            raise BoxNotGone(f"a killed box was still there after {KILL_TIMEOUT_MS} ms") from error
        finally:
            self._close_pipes()
        for tell in (self._launch.release, *self._tell):
            tell()

    def _close_pipes(self) -> None:
        for transport in self._transports:
            transport.close()
        if self._writer is not None and not self._writer.is_closing():
            # What is still to be written has no reader any more.
            self._writer.transport.abort()
        self._unblock()
        # Those that were never connected, because starting was given up on in between, belong to nobody else.
        process = self._process
        for pipe in (process.stdin, process.stdout, process.stderr, self._launch.info, *(self._launch.channel or ())):
            if pipe is not None:
                pipe.close()

    async def _inner_gone(self) -> None:
        if self._inner is not None:
            # The namespace's first process becomes readable only after the kernel has ended all the others.
            await _readable(self._inner)
            os.close(self._inner)
            self._inner = None
        # Nothing tells when the last of several unrelated processes is gone.
        while not self._launch.kill_rest():  # noqa: ASYNC110
            await asyncio.sleep(POLL_MS / 1000)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        pipes = self._process
        writing, reading = self._launch.channel or (_pipe(pipes.stdin), _pipe(pipes.stdout))
        out, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._reader), reading)
        self._transports.append(out)
        err, _ = await loop.connect_read_pipe(lambda: self._ring, _pipe(pipes.stderr))
        self._transports.append(err)
        # A reader protocol is also the documented way to get a writer that can drain.
        into, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), writing
        )
        self._writer = asyncio.StreamWriter(into, protocol, None, loop)

    async def _learn_inner(self, info: IO[bytes]) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT_MS / 1000):
                child = await _read_child_pid(info)
                if child is None:
                    await self.ended()
        except TimeoutError as error:
            raise SandboxUnavailable("bubblewrap did not start in time", diagnostics=self.diagnostics) from error
        if child is None:
            await self._ring.over()
            raise SandboxUnavailable(
                f"bubblewrap could not make the box: {self.diagnostics[-300:] or 'it said nothing'}",
                diagnostics=self.diagnostics,
            )
        with contextlib.suppress(ProcessLookupError):
            inner = os.pidfd_open(child)
            if _parent_of(child) == self._process.pid:
                self._inner = inner
                self._launch.attach(child)
            else:
                os.close(inner)
        self._unblock()

    def _unblock(self) -> None:
        if self._block is not None:
            os.close(self._block)
            self._block = None

    def _on_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._outer)
        self._process.poll()
        os.close(self._outer)
        self._outer = -1
        self._exited.set_result(None)

    def _lost(self, what: str) -> BoxLost:
        return BoxLost(what, diagnostics=self.diagnostics)


def _start(launch: Launch) -> "subprocess.Popen[bytes]":
    try:
        return _popen(launch)
    except OSError as error:
        raise _refused(launch, error) from error
    finally:
        for fd in launch.fds:
            os.close(fd)


def _refused(launch: Launch, error: OSError) -> SandboxUnavailable:
    if launch.info is not None:
        launch.info.close()
    for end in launch.channel or ():
        end.close()
    if launch.block is not None:
        os.close(launch.block)
    launch.kill_rest()
    launch.release()
    return SandboxUnavailable(f"{launch.executable} cannot be started: {error.strerror}")


def _popen(launch: Launch) -> "subprocess.Popen[bytes]":
    own = subprocess.PIPE if launch.channel is None else subprocess.DEVNULL
    return subprocess.Popen(
        launch.argv,
        executable=launch.executable,
        env=dict(launch.environment),
        cwd=launch.directory,
        pass_fds=launch.fds,
        stdin=own,
        stdout=own,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - Popen was asked for all three
    return pipe


async def _read_child_pid(pipe: IO[bytes]) -> int | None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_INFO_BYTES)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        info: object = json.loads(await reader.readuntil(b"}"))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        return None
    finally:
        transport.close()
    child = cast("dict[str, object]", info).get("child-pid") if isinstance(info, dict) else None
    return child if isinstance(child, int) else None


def _parent_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)
