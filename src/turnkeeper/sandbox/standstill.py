"""A box whose programs stand still while nobody needs them: stopped from outside, set going again from outside.

Signals and no freezer of control groups, because they work the same on every machine and for every user. What runs in
the box cannot undo it: whoever could is stopped as well. Programs that the box had stopped itself stay stopped.
Blocking; called in a thread. Never signals a process whose place below the box it has not seen after it had a hold of
it, since a process id may be somebody else's by then.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_PASSES: Final = 200
"""Each pass stops what it finds; a program that starts others all the time runs into the box's limit on processes."""
PASS_PAUSE_S: Final = 0.002
_STANDING: Final = frozenset("TtZX")


@dataclass(frozen=True, slots=True)
class _Seen:
    parent: int
    state: str


def stop_below(root: int) -> frozenset[int] | None:
    """Stops every process below `root`; which those were. None, and nothing stopped, where they do not stand still."""
    stopped: set[int] = set()
    for _ in range(MAX_PASSES):
        moving = [pid for pid, seen in _below(root).items() if seen.state not in _STANDING]
        if not moving:
            return frozenset(stopped)
        stopped.update(pid for pid in moving if _signaled(pid, root, signal.SIGSTOP))
        time.sleep(PASS_PAUSE_S)
    go_on_below(root, frozenset(stopped))
    return None


def go_on_below(root: int, stopped: frozenset[int]) -> None:
    """Sets going what `stop_below` stopped and is still there."""
    for pid in stopped & _below(root).keys():
        _signaled(pid, root, signal.SIGCONT)


def _signaled(pid: int, root: int, number: signal.Signals) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Only now is it certain that this stays the same process.
        if pid not in _below(root):
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
            return True
        return False
    finally:
        os.close(handle)


def _below(root: int) -> Mapping[int, _Seen]:
    """The processes whose line of parents leads to `root`."""
    everybody = dict(_processes())
    found: dict[int, _Seen] = {}
    wave = {root}
    while wave:
        wave = {pid for pid, seen in everybody.items() if seen.parent in wave and pid not in found}
        found.update((pid, everybody[pid]) for pid in wave)
    return found


def _processes() -> Iterator[tuple[int, _Seen]]:
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            stat = Path("/proc", name, "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        # The name of the program, in brackets, may hold anything.
        state, parent = stat.rpartition(")")[2].split()[:2]
        yield int(name), _Seen(int(parent), state)
