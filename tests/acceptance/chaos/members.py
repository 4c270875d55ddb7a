"""The processes of a platform under chaos: begun, killed, stopped in their tracks, and begun again when they end.

A supervisor stands behind each, as systemd would: it starts again what has ended, however that came.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import psutil
from tests.acceptance.chaos.namespaces import Host

LAUNCHER: Final = Path(__file__).with_name("launch.py")
READY_TIMEOUT_S: Final = 400
GONE_TIMEOUT_S: Final = 90
MAX_FAILED_STARTS: Final = 25
RESTART_S: Final = 0.3
LOG_TAIL: Final = 3_000


@dataclass
class Member:
    """One process. `words` are a turnkeeper command; `ready_word` is what it prints once it works."""

    name: str
    host: Host
    words: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    ready_word: str
    starts: int = 0
    killed: int = 0
    unexpected: list[int] = field(default_factory=list[int])
    _process: subprocess.Popen[bytes] | None = None
    _supervisor: asyncio.Task[None] | None = None
    _expected: bool = False
    _log_from: int = 0

    @property
    def log_file(self) -> Path:
        """What it printed in all its lives."""
        return self.folder / f"{self.name}.log"

    @property
    def clock_file(self) -> Path:
        """How many seconds its wall clock is off."""
        return self.folder / f"{self.name}.clock"

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def begin(self) -> None:
        """Starts it, and again whenever it ends."""
        self.clock_file.write_text("0")
        self._spawn()
        self._supervisor = asyncio.create_task(self._supervise())

    async def ready(self) -> None:
        """Until it has said that it works, in its present life."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._has_said(self.ready_word):
            assert len(self.unexpected) < MAX_FAILED_STARTS, f"{self.name} does not start:\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"{self.name} is not ready:\n{self.log_tail()}"
            await asyncio.sleep(0.05)

    def set_clock(self, offset_s: float) -> None:
        """Its wall clock jumps to so many seconds from ours."""
        aside = self.clock_file.with_suffix(".new")
        aside.write_text(str(offset_s))
        aside.replace(self.clock_file)

    def kill(self) -> None:
        """SIGKILL, as a crash would be; the supervisor starts it again."""
        if self.pid is not None:
            self._expected = True
            self.killed += 1
            os.kill(self.pid, signal.SIGKILL)

    def pause(self) -> None:
        """Stops it in its tracks, its locks and connections in hand."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGCONT)

    async def end(self) -> int:
        """Ends it as an operator does; its exit code."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervisor
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            return await asyncio.to_thread(process.wait, GONE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=GONE_TIMEOUT_S)
            return -signal.SIGKILL

    def descendants(self) -> list[psutil.Process]:
        """Every process below it now, boxes included."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True) if self.pid is not None else []
        return []

    def log_tail(self) -> str:
        """The end of what it printed."""
        return self.log_file.read_text(errors="replace")[-LOG_TAIL:]

    @property
    def twin_data_dir(self) -> Path:
        """Where its twin keeps what it has."""
        return self.folder / f"{self.name}-twin-data"

    def twin(self) -> tuple[subprocess.Popen[bytes], Path]:
        """The same command once more beside it, under the same name; what it prints goes into a file."""
        log_file = self.folder / f"{self.name}-twin.log"
        with log_file.open("wb") as log:
            return self._popen(self.twin_data_dir, log), log_file

    def _popen(self, data_dir: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-P", str(LAUNCHER), *self.words, "--data-dir", str(data_dir)]
        return subprocess.Popen(
            self.host.command(words),
            env={**self.environment, "TURNKEEPER_CHAOS_CLOCK": str(self.clock_file)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.folder / "home",
        )

    def _spawn(self) -> None:
        self._log_from = self.log_file.stat().st_size if self.log_file.exists() else 0
        self._expected = False
        self.starts += 1
        with self.log_file.open("ab") as log:
            self._process = self._popen(self.folder / f"{self.name}-data", log)

    async def _supervise(self) -> None:
        while True:
            if self._process is not None and (code := self._process.poll()) is not None:
                if not self._expected:
                    self.unexpected.append(code)
                await asyncio.sleep(RESTART_S)
                self._spawn()
            await asyncio.sleep(0.05)

    def _has_said(self, word: str) -> bool:
        if self.pid is None or not self.log_file.exists():
            return False
        with self.log_file.open("rb") as log:
            log.seek(self._log_from)
            return word.encode() in log.read()
