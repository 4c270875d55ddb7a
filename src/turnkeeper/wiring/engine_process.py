"""An engine's helper process: started when it is first asked, killed when it is late, started again after that.

Answers for a deadline on every question and for no question of a dead process being left waiting. One JSON document a
line over the process's own pipes: no socket, no environment, no file. Must never be asked from two event loops.
"""

import asyncio
import itertools
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from typing import Final, cast

import orjson
import structlog

from turnkeeper.policy.document import PolicyRejected
from turnkeeper.policy.hosted import EngineUnavailable

START_DEADLINE_MS: Final = 10_000
PAUSE_MS: Final = 200
"""Between two starts, so that a process that dies at once is not started without end."""

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
MAX_WAITING: Final = 1_024

_log = structlog.get_logger(__name__)


class EngineProcess:
    """A link to `python -m MODULE`. Use it on one event loop; `stop` it at the end."""

    def __init__(self, module: str, opening: Mapping[str, object], *, deadline_ms: int) -> None:
        """`opening` is the first line in; `deadline_ms` is for each question after that."""
        self._module = module
        self._opening = orjson.dumps(dict(opening)) + b"\n"
        self._deadline_ms = deadline_ms
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Mapping[str, object]]] = {}
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()
        self._not_before = 0.0

    @property
    def pid(self) -> int | None:
        """The process that answers now; None where none does."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Starts the process and waits until it is ready.

        Raises `PolicyRejected` for policies that it refuses, `EngineUnavailable` where it cannot be had.
        """
        async with self._starting:
            if self._process is None:
                await self._launch()

    async def ask(self, question: Mapping[str, object]) -> Mapping[str, object]:
        """The answer to a question. Raises `EngineUnavailable` at the deadline, and kills what did not answer."""
        try:
            async with asyncio.timeout(self._deadline_ms / 1000):
                return await self._exchange(question)
        except TimeoutError as error:
            _log.error("policy_engine_late", module=self._module, deadline_ms=self._deadline_ms)
            self._drop("it was late")
            raise EngineUnavailable(f"the engine gave no answer in {self._deadline_ms} ms") from error

    async def stop(self) -> None:
        """Ends the process; idempotent."""
        # Whoever is starting one finishes first, so that none is left behind.
        async with self._starting:
            process, reader = self._process, self._reader
            self._drop("it was stopped")
        if process is not None:
            await process.wait()
        if reader is not None:
            await asyncio.gather(reader, return_exceptions=True)

    async def _exchange(self, question: Mapping[str, object]) -> Mapping[str, object]:
        if self._process is None:
            await self._restart()
        process = self._process
        if process is None or process.stdin is None or len(self._waiting) >= MAX_WAITING:
            raise EngineUnavailable("the engine takes no more questions")
        number = next(self._numbers)
        answer: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            process.stdin.write(orjson.dumps({**question, "number": number}) + b"\n")
            return await answer
        except (OSError, TypeError) as error:
            raise EngineUnavailable("the engine cannot be asked") from error
        finally:
            self._waiting.pop(number, None)

    async def _restart(self) -> None:
        """Starts again beside the deadline of whoever asks: they are denied meanwhile, the next ones are not."""
        if asyncio.get_running_loop().time() < self._not_before:
            raise EngineUnavailable("the engine has just ended")
        await asyncio.shield(asyncio.ensure_future(self._start_quietly()))

    async def _start_quietly(self) -> None:
        try:
            await self.start()
        except (PolicyRejected, EngineUnavailable) as error:
            _log.error("policy_engine_not_started", module=self._module, problem=error.message)

    async def _launch(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + PAUSE_MS / 1000
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-m",
            self._module,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env={},
            limit=MAX_LINE_BYTES,
        )
        try:
            async with asyncio.timeout(START_DEADLINE_MS / 1000):
                await self._open(process)
        except BaseException as error:
            _kill(process)
            await process.wait()
            if isinstance(error, (TimeoutError, OSError, ValueError)):
                raise EngineUnavailable("the engine's process did not become ready") from error
            raise
        self._process = process
        self._reader = asyncio.ensure_future(self._read(process))

    async def _open(self, process: Process) -> None:
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise EngineUnavailable("the engine's process has no pipes")
        stdin.write(self._opening)
        await stdin.drain()
        said = cast("Mapping[str, object]", orjson.loads(await stdout.readline()))
        if "refused" in said:
            raise PolicyRejected(f"the engine refuses its policies: {said['refused']}", detail={"path": ""})
        if "ready" not in said:
            raise EngineUnavailable("the engine's process said something else than ready")

    async def _read(self, process: Process) -> None:
        stdout = process.stdout
        try:
            while stdout is not None and (line := await stdout.readline()):
                self._deliver(cast("dict[str, object]", orjson.loads(line)))
        except (OSError, ValueError) as error:
            _log.error("policy_engine_unreadable", module=self._module, problem=str(error))
        if self._process is process:
            self._drop("it ended")

    def _deliver(self, answer: dict[str, object]) -> None:
        number = answer.pop("number", None)
        waiting = self._waiting.get(number) if isinstance(number, int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _drop(self, why: str) -> None:
        """Gives the process up: whoever waits for it is told, and the next question starts another."""
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(EngineUnavailable(f"the engine gave no answer: {why}"))


def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
