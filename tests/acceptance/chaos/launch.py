"""`turnkeeper` as it is, except for four things that are put in from outside, because it has no switch for them.

Its wall clock is off by what a file says, its worker may have a given name, its loop boxes run a harness that begins at
once, and a webhook that failed again and again is tried after seconds. Run by its path.
"""

import os
import sys
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from turnkeeper.cli import main
from turnkeeper.clock import SystemClock
from turnkeeper.events.webhooks import schedule
from turnkeeper.sandbox.boxes import DriverSettings
from turnkeeper.turns.takeover import Liveness
from turnkeeper.turns.workbench import Workbench
from turnkeeper.wiring import boxes, workers
from turnkeeper.wiring.base import Base

MAX_DELAY_MS: Final = 5_000


def shift_clock(offset_file: Path) -> None:
    """Wall time is off by the seconds in the file, read at each look."""

    def now(_: SystemClock) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(offset_file.read_text()))

    setattr(SystemClock, "now", now)  # noqa: B010  a method that is put in the place of another


def work_as(owner: str) -> None:
    """The worker is called `owner`, whoever else is."""
    module: Any = workers
    given = workers.working_as

    def bench(**parts: Any) -> Workbench:
        parts["owner"] = owner
        return Workbench(**parts)

    def working_as(_: str, url: str, base: Base, **more: Any) -> AbstractAsyncContextManager[Liveness]:
        return given(owner, url, base, **more)

    module.Workbench, module.working_as = bench, working_as


def run_in_boxes(program: str) -> None:
    """The loop boxes run this text instead of the built-in harness."""
    module: Any = boxes
    module.DriverSettings = partial(DriverSettings, loop_command=(sys.executable, "-I", "-c", program))


def deliver_soon() -> None:
    """As often as usual, and never more than five seconds apart."""
    module: Any = schedule
    module.DELAYS_MS = tuple(min(delay_ms, MAX_DELAY_MS) for delay_ms in schedule.DELAYS_MS)


if __name__ == "__main__":
    deliver_soon()
    run_in_boxes(Path(__file__).with_name("harness.py").read_text())
    if found := os.environ.pop("TURNKEEPER_CHAOS_CLOCK", None):
        shift_clock(Path(found))
    if named := os.environ.pop("TURNKEEPER_CHAOS_OWNER", None):
        work_as(named)
    main()
