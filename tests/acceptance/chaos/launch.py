"""`turnkeeper` as it is, except that its wall clock is off by what a file says, and that its worker has a given name.

Run by its path. The program has no switch for either, so they are put in from outside, before it begins. Files and
names come in variables; without them nothing is changed.
"""

import os
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from turnkeeper.cli import main
from turnkeeper.clock import SystemClock
from turnkeeper.turns.takeover import Liveness
from turnkeeper.turns.workbench import Workbench
from turnkeeper.wiring import workers
from turnkeeper.wiring.base import Base


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

    def working_as(_: str, url: str, base: Base) -> AbstractAsyncContextManager[Liveness]:
        return given(owner, url, base)

    module.Workbench, module.working_as = bench, working_as


if __name__ == "__main__":
    if found := os.environ.pop("TURNKEEPER_CHAOS_CLOCK", None):
        shift_clock(Path(found))
    if named := os.environ.pop("TURNKEEPER_CHAOS_OWNER", None):
        work_as(named)
    main()
