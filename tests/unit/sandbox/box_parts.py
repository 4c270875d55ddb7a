"""Parts for tests that start real boxes: small harnesses, a running driver, a way to run a coroutine."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from turnkeeper.clock import SystemClock
from turnkeeper.ids import RandomIds
from turnkeeper.sandbox.boxes import DriverSettings
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.unsafe_none import UnsafeNoneDriver

T = TypeVar("T")
DriverClass: TypeAlias = type[BwrapDriver] | type[UnsafeNoneDriver]
Driver: TypeAlias = BwrapDriver | UnsafeNoneDriver

DEADLINE_S = 60

READY = '{"type":"ready","harness":"script","version":"1"}'

PRELUDE = f"""
import os, socket, subprocess, sys, json
def out(text):
    os.write(1, text.encode() + b"\\n")
def submit(value):
    out(json.dumps({{"type": "submit", "value": str(value)}}))
out('{READY}')
"""

# Answers each frame with a submission that repeats it.
ECHO = (
    PRELUDE
    + """
for line in sys.stdin:
    submit(json.loads(line)["type"])
"""
)


def harness(script: str) -> tuple[str, ...]:
    """The command of a loop box that runs this text."""
    return (sys.executable, "-I", "-S", "-c", script)


def settings(folder: Path, script: str = ECHO, **changes: Any) -> DriverSettings:
    """Settings for a driver without warm boxes, unless asked for."""
    made = DriverSettings(state_dir=folder / "state", loop_command=harness(script), warm_boxes=0)
    return replace(made, **changes)


@contextlib.asynccontextmanager
async def running(driver_class: DriverClass, given: DriverSettings) -> AsyncGenerator[Driver]:
    """A started driver that is stopped at the end."""
    clock = SystemClock()
    driver = driver_class(given, RandomIds(clock), clock)
    await driver.start()
    try:
        yield driver
    finally:
        await driver.stop()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, within the deadline."""

    async def within() -> T:
        return await asyncio.wait_for(work, DEADLINE_S)

    return asyncio.run(within())


def workspace(folder: Path) -> Path:
    """An empty workspace."""
    made = folder / "workspace"
    made.mkdir()
    return made
