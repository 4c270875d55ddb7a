"""An engine's helper process: started with its policy, killed when it is late, started again by itself after that.

Answers for a deadline on every question, for one question being answered at a time, and for the next ones waiting in a
bounded queue, so that a late answer always means a late process. One JSON document a line over the process's own pipes:
no socket, no environment, no file, and no more memory than it was given. Must never be asked from two event loops, nor
take an answer to one question for the answer to another.
"""

import asyncio
import itertools
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

import orjson
import structlog

from turnkeeper.policy.document import PolicyRejected
from turnkeeper.policy.hosted import (
    ENGINE_ANSWER_INVALID,
    ENGINE_OVERLOADED,
    ENGINE_TIMEOUT,
    FACTS_NOT_EXPRESSIBLE,
    EngineUnavailable,
)

START_DEADLINE_MS: Final = 10_000
FIRST_PAUSE_MS: Final = 100
"""Before a process that ended is started again; doubled for each one that ends without having answered anything."""
LONGEST_PAUSE_MS: Final = 10_000
MAX_LINE_BYTES: Final = 8 * 1024 * 1024
MAX_ASKING: Final = 256
"""Questions that wait for the process at one time, the one it is answering included."""
MEMORY_BYTES: Final = 512 * 1024 * 1024
"""Address space of the process. Above it an allocation fails, and with it the process or the question."""

_MAX_DOUBLINGS = 10

_log = structlog.get_logger(__name__)


def python_host(module: str) -> tuple[str, ...]:
    """The command of a host that is a Python module, apart from the user's own site and path."""
    return (sys.executable, "-I", "-m", module)


class EngineProcess:
    """A link to a host process. Use it on one event loop; `stop` it at the end."""

    def __init__(
        self,
        command: Sequence[str],
        opening: Mapping[str, object],
        *,
        deadline_ms: int,
        memory_bytes: int = MEMORY_BYTES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`opening` is the first line in. A question waits at most `deadline_ms` for its turn, and then for its answer.

        The memory limit holds on Linux alone; `sleep` is given the seconds between two starts.
        """
        self._command = tuple(command)
        self._opening = orjson.dumps(dict(opening)) + b"\n"
        self._deadline_ms = deadline_ms
        self._memory_bytes = memory_bytes
        self._sleep = sleep
        self._process: Process | None = None
        self._ready = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._asking = 0
        self._numbers = itertools.count(1)
        self._failures = 0

    @property
    def pid(self) -> int | None:
        """The process that answers now; None where none does."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Starts the process, waits until it is ready, and keeps one running until `stop`. Once.

        Raises `PolicyRejected` for policies that it refuses, `EngineUnavailable` where it cannot be had.
        """
        process = await self._launch()
        self._keeper = asyncio.ensure_future(self._keep(process))

    async def ask(self, question: Mapping[str, object]) -> Mapping[str, object]:
        """The answer to a question. Raises `EngineUnavailable`; a process that was late or unclear is killed."""
        if self._asking >= MAX_ASKING:
            raise EngineUnavailable(f"{self._asking} questions wait for the engine", code=ENGINE_OVERLOADED)
        number = next(self._numbers)
        line = _line(question, number)
        self._asking += 1
        try:
            async with self._own_turn():
                return await self._exchange(await self._running(), line, number)
        finally:
            self._asking -= 1

    async def stop(self) -> None:
        """Ends the process and whatever waits for it; idempotent."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        process, self._process = self._process, None
        # Whoever waits for a process learns that there will be none.
        self._ready.set()
        if process is not None:
            _kill(process)
            await process.wait()

    @asynccontextmanager
    async def _own_turn(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._deadline_ms / 1000):
                await self._turn.acquire()
        except TimeoutError as error:
            problem = f"the engine was busy for {self._deadline_ms} ms"
            raise EngineUnavailable(problem, code=ENGINE_OVERLOADED) from error
        try:
            yield
        finally:
            self._turn.release()

    async def _running(self) -> Process:
        try:
            async with asyncio.timeout(self._deadline_ms / 1000):
                await self._ready.wait()
        except TimeoutError as error:
            raise EngineUnavailable("the engine's process has ended and is not ready again") from error
        if self._process is None:
            raise EngineUnavailable("the engine was stopped")
        return self._process

    async def _exchange(self, process: Process, line: bytes, number: int) -> Mapping[str, object]:
        try:
            async with asyncio.timeout(self._deadline_ms / 1000):
                answer = await _converse(process, line, number)
        except TimeoutError as error:
            self._give_up(process, "it was late")
            problem = f"the engine gave no answer in {self._deadline_ms} ms"
            raise EngineUnavailable(problem, code=ENGINE_TIMEOUT) from error
        except ValueError as error:
            self._give_up(process, "it said what is no answer")
            raise EngineUnavailable("the engine said what is no answer", code=ENGINE_ANSWER_INVALID) from error
        except (OSError, EngineUnavailable) as error:
            self._give_up(process, "it ended")
            raise EngineUnavailable("the engine's process ended") from error
        self._failures = 0
        return answer

    async def _keep(self, process: Process) -> None:
        """Starts another process whenever one ends."""
        while True:
            await process.wait()
            self._give_up(process, "it ended")
            process = await self._relaunch()

    async def _relaunch(self) -> Process:
        while True:
            pause_ms = min(FIRST_PAUSE_MS << min(self._failures, _MAX_DOUBLINGS), LONGEST_PAUSE_MS)
            self._failures += 1
            await self._sleep(pause_ms / 1000)
            try:
                return await self._launch()
            except (PolicyRejected, EngineUnavailable) as error:
                _log.error("policy_engine_not_started", command=self._command, problem=error.message)

    async def _launch(self) -> Process:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}, limit=MAX_LINE_BYTES
            )
        except OSError as error:
            raise EngineUnavailable(f"the engine's process cannot be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(START_DEADLINE_MS / 1000):
                _limit_memory(process, self._memory_bytes)
                await _open(process, self._opening)
        except BaseException as error:
            _kill(process)
            await process.wait()
            if isinstance(error, (TimeoutError, OSError, ValueError)):
                raise EngineUnavailable("the engine's process did not become ready") from error
            raise
        self._process = process
        self._ready.set()
        return process

    def _give_up(self, process: Process, why: str) -> None:
        """Kills a process; its keeper starts another."""
        _kill(process)
        if self._process is process:
            self._process = None
            self._ready.clear()
            _log.error("policy_engine_lost", command=self._command, why=why)


async def _converse(process: Process, line: bytes, number: int) -> Mapping[str, object]:
    """The answer with a number. Raises `ValueError` for what is no answer, `EngineUnavailable` at the end."""
    stdin, stdout = _pipes(process)
    stdin.write(line)
    await stdin.drain()
    while True:
        answer = _document(await stdout.readline())
        answered = answer.pop("number", None)
        if answered == number:
            return answer
        # Whoever asked that one has been canceled since.
        if type(answered) is not int or answered > number:
            raise ValueError(answered)


async def _open(process: Process, opening: bytes) -> None:
    stdin, stdout = _pipes(process)
    stdin.write(opening)
    await stdin.drain()
    said = _document(await stdout.readline())
    if "refused" in said:
        raise PolicyRejected(f"the engine refuses its policies: {said['refused']}", detail={"path": ""})
    if "ready" not in said:
        raise EngineUnavailable("the engine's process said something else than ready")


def _document(line: bytes) -> dict[str, object]:
    if not line:
        raise EngineUnavailable("the engine's process ended")
    document: object = orjson.loads(line)
    if not isinstance(document, dict):
        raise ValueError("no object")  # noqa: TRY004  what is not JSON is a ValueError too
    return cast("dict[str, object]", document)


def _line(question: Mapping[str, object], number: int) -> bytes:
    try:
        return orjson.dumps({**question, "number": number}) + b"\n"
    except TypeError as error:
        raise EngineUnavailable(f"the question is no JSON: {error}", code=FACTS_NOT_EXPRESSIBLE) from error


def _pipes(process: Process) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
    if process.stdin is None or process.stdout is None:
        raise EngineUnavailable("the engine's process has no pipes")
    return process.stdin, process.stdout


def _limit_memory(process: Process, memory_bytes: int) -> None:
    if sys.platform == "linux":
        resource.prlimit(process.pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
