"""Ends what a crash left of a box: bubblewrap's inner process, alone because its outer one is gone.

bubblewrap's child asks to die with its parent only after the two have met; a parent that is killed before leaves the
child asleep for ever. Must never touch a living box: there the inner process's parent is bubblewrap itself.
"""

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_BUBBLEWRAP: Final = "bwrap"
_PROC: Final = Path("/proc")


def end_stranded(marks: Iterable[str]) -> int:
    """Kills stranded inner processes of this user whose command has one of `marks` as a word; how many there were."""
    wanted = frozenset(marks)
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return sum(_end(pid, wanted) for pid in pids)


def count_stranded() -> int:
    """How many stranded inner processes of this user there are, of whatever command."""
    return sum(_looks_stranded(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdigit())


def _looks_stranded(pid: int) -> bool:
    try:
        return _is_inner(_status(pid))
    except (OSError, KeyError):
        # It ended while we looked.
        return False


def _end(pid: int, marks: frozenset[str]) -> bool:
    try:
        # Opened before the look, so that what is killed is what was looked at and not a later process of its number.
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _is_stranded(pid, marks):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        # It ended while we looked, or is not ours to end.
        return False
    finally:
        os.close(handle)
    return True


def _is_stranded(pid: int, marks: frozenset[str]) -> bool:
    if not _is_inner(_status(pid)):
        return False
    words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    return not marks.isdisjoint(os.fsdecode(word) for word in words)


def _is_inner(status: dict[str, list[str]]) -> bool:
    if status["Name"] != [_BUBBLEWRAP] or status["Uid"][0] != str(os.geteuid()):
        return False
    if len(status["NSpid"]) < 2 or status["NSpid"][-1] != "1":
        return False
    return not _is_bubblewrap(status["PPid"][0])


def _is_bubblewrap(pid: str) -> bool:
    try:
        return (_PROC / pid / "comm").read_text().strip() == _BUBBLEWRAP
    except FileNotFoundError:
        return False


def _status(pid: int) -> dict[str, list[str]]:
    lines = (_PROC / str(pid) / "status").read_text().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
