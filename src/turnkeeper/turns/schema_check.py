"""Output schemas and the values submitted for them, checked where they can do no harm (amendment 13).

Answers for a verdict within a deadline, whatever the schema: a few child processes with limits of memory and time
compile and evaluate; one that is silent until the deadline is killed and replaced. Must never evaluate a schema that
an app sent in this process. A value that cannot be checked in time is not valid.
"""

import asyncio
import hashlib
import sys
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol, Self, cast

import orjson

from turnkeeper.acs.schemas import render_pointer
from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.schema_rules import MAX_SCHEMA_BYTES, OutputSchemaInvalid, check_schema_rules

MAX_ANSWER_BYTES: Final = 262_144
MAX_REMEMBERED: Final = 256

_MODULE = "turnkeeper.turns.schema_process"


@dataclass(frozen=True, slots=True)
class SchemaError:
    """One way in which a value is not what the schema asks for. The paths are JSON Pointers."""

    instance_path: str
    schema_path: str
    keyword: str
    message: str


class SchemaChecker(Protocol):
    """Where output schemas are compiled and values are checked."""

    async def compile(self, schema_json: str) -> None:
        """Nothing if the schema can be used. Raises `OutputSchemaInvalid`, `SchemaCheckBusy`."""
        ...

    async def check(self, schema_json: str, value_json: str) -> tuple[SchemaError, ...]:
        """What is wrong with the value, at most 20 things; a deadline or a crash is one error `deadline`."""
        ...


class SchemaCheckBusy(TurnkeeperError):
    """All checking processes are taken and the queue before them is full or did not move."""

    code = "overloaded"


@dataclass(frozen=True, slots=True)
class SchemaLimits:
    """How much one schema may cost. `deadline_ms` is wall time, the backstop behind `cpu_ms`."""

    schema_bytes: int = MAX_SCHEMA_BYTES
    processes: int = 2
    waiting: int = 64
    wait_ms: int = 10_000
    cpu_ms: int = 1_000
    deadline_ms: int = 5_000
    memory_bytes: int = 512 << 20


class _Lost(Exception):
    """The child ended or was silent until the deadline."""


class ProcessSchemaChecker:
    """A `SchemaChecker` on child processes, started when first needed. Belongs to one event loop."""

    def __init__(self, limits: SchemaLimits | None = None) -> None:
        self._limits = limits or SchemaLimits()
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._free = asyncio.Semaphore(self._limits.processes)
        self._waiting = 0
        self._closed = False
        self._usable: OrderedDict[bytes, None] = OrderedDict()

    async def compile(self, schema_json: str) -> None:
        """Nothing if the schema can be used. Raises `OutputSchemaInvalid`, `SchemaCheckBusy`."""
        check_schema_rules(schema_json, max_bytes=self._limits.schema_bytes)
        digest = hashlib.sha256(schema_json.encode()).digest()
        if digest in self._usable:
            self._usable.move_to_end(digest)
            return
        try:
            answer = await self._ask({"op": "compile", "schema": schema_json})
        except _Lost as lost:
            raise OutputSchemaInvalid(
                "the schema takes too much time or memory to evaluate",
                detail={"pointer": ""},
                hint="Make the schema smaller; references that fan out are a common cause.",
            ) from lost
        _raise_if_invalid(answer)
        self._remember(digest)

    async def check(self, schema_json: str, value_json: str) -> tuple[SchemaError, ...]:
        """What is wrong with the value, at most 20 things; a deadline or a crash is one error `deadline`."""
        try:
            answer = await self._ask({"op": "check", "schema": schema_json, "value": value_json})
        except (_Lost, SchemaCheckBusy):
            return (SchemaError("", "", "deadline", "the value could not be checked within the limits"),)
        errors = cast("list[Mapping[str, str]]", answer["errors"])
        return tuple(SchemaError(**error) for error in errors)

    @property
    def pids(self) -> tuple[int, ...]:
        """The checking processes that live now."""
        return tuple(child.pid for child in (*self._idle, *self._busy) if child.alive)

    async def close(self) -> None:
        """Ends the idle processes at once and the busy ones when they have answered."""
        self._closed = True
        while self._idle:
            await self._idle.pop().kill()

    def _remember(self, digest: bytes) -> None:
        self._usable[digest] = None
        if len(self._usable) > MAX_REMEMBERED:
            self._usable.popitem(last=False)

    async def _ask(self, request: Mapping[str, str]) -> Mapping[str, object]:
        async with self._turn():
            child = await self._child()
            self._busy.add(child)
            answered = False
            try:
                answer = await child.ask(orjson.dumps(request), deadline_ms=self._limits.deadline_ms)
                answered = True
            finally:
                self._busy.discard(child)
                if answered and not self._closed:
                    self._idle.append(child)
                else:
                    await child.kill()
            return answer

    async def _child(self) -> "_Child":
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            await child.kill()
        return await _Child.start(self._limits)

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None]:
        if self._waiting >= self._limits.waiting:
            raise _busy()
        self._waiting += 1
        try:
            async with asyncio.timeout(self._limits.wait_ms / 1000):
                await self._free.acquire()
        except TimeoutError as error:
            raise _busy() from error
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()


class _Child:
    """One checking process and its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, limits: SchemaLimits) -> Self:
        arguments = ("-I", "-m", _MODULE, str(limits.memory_bytes), str(limits.cpu_ms))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
            cwd="/",
            limit=MAX_ANSWER_BYTES,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def ask(self, request: bytes, *, deadline_ms: int) -> Mapping[str, object]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise _Lost
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                stdin.write(request + b"\n")
                await stdin.drain()
                return cast("Mapping[str, object]", orjson.loads(await stdout.readline()))
        except (TimeoutError, OSError, ValueError) as error:
            raise _Lost from error

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


def _raise_if_invalid(answer: Mapping[str, object]) -> None:
    invalid = answer.get("invalid")
    if invalid is None:
        return
    found = cast("Mapping[str, object]", invalid)
    raise OutputSchemaInvalid(
        f"the schema does not compile: {found['message']}",
        detail={"pointer": render_pointer(cast("list[str | int]", found["path"]))},
        hint="The pointer names the place in the schema; patterns may not look around or refer back.",
    )


def _busy() -> SchemaCheckBusy:
    return SchemaCheckBusy("too many schemas are being checked", hint="Try again in a moment.")
