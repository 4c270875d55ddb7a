"""Control groups: what holds a whole box to its memory, its processors and its processes, in version 1 and 2.

Groups are made below the group that this process is in, so that whatever holds us holds our boxes as well, and
nobody else's group is touched. What a machine does not lend is named in `missing`; nothing here falls back in silence.
INVARIANT: a group is removed only when it is empty, so a removed group is the proof that its box is gone.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from turnkeeper.sandbox.boxes import SandboxUnavailable

Controller: TypeAlias = Literal["memory", "pids", "cpu"]
CONTROLLERS: Final[tuple[Controller, ...]] = ("memory", "pids", "cpu")
GROUP_PREFIX: Final = "turnkeeper"
# Version 2 gives a group either processes or groups below it; ours has to sit beside those of the boxes.
OWN_GROUP: Final = "turnkeeper.self"
CPU_PERIOD_US: Final = 100_000
SWEEP_TRIES: Final = 200
SWEEP_PAUSE_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Place:
    """A folder in which groups of these controllers are made."""

    version: Literal[1, 2]
    controllers: frozenset[str]
    path: Path


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What one box may use as a whole. `cpu_millis` is in thousandths of a processor; `None` is no limit."""

    memory_bytes: int
    processes: int
    cpu_millis: int | None = None


class Cgroup:
    """The groups of one box, one in each place."""

    def __init__(self, folders: Mapping[Path, Place]) -> None:
        self._folders = dict(folders)
        self._oom_kills = 0

    def attach(self, pid: int) -> None:
        """Put a process in; what it starts follows. Raises `OSError`."""
        for folder in self._folders:
            _write(folder / "cgroup.procs", str(pid))

    @property
    def oom_kills(self) -> int:
        """How many processes the kernel has ended because the memory was used up; the last count once it is gone."""
        for folder, place in self._folders.items():
            if "memory" in place.controllers:
                name = "memory.events" if place.version == 2 else "memory.oom_control"
                self._oom_kills = max(self._oom_kills, _counted(folder / name, "oom_kill"))
        return self._oom_kills

    def end(self) -> bool:
        """SIGKILL whatever is inside and try to remove the groups; whether they are gone."""
        _ = self.oom_kills
        for folder, place in list(self._folders.items()):
            _kill_all(folder, place)
            if _removed(folder):
                del self._folders[folder]
        return not self._folders


class Cgroups:
    """What this machine lends. `missing` says, for each controller that cannot be used, why."""

    def __init__(self, places: Iterable[Place], missing: Mapping[str, str]) -> None:
        self.places = tuple(places)
        self.missing = dict(missing)

    def version_of(self, controller: Controller) -> int | None:
        """1 or 2, or None where the controller cannot be used."""
        return next((place.version for place in self.places if controller in place.controllers), None)

    def make(self, name: str, limits: GroupLimits) -> Cgroup:
        """Empty groups of this name with these limits. Raises `SandboxUnavailable`."""
        made: dict[Path, Place] = {}
        try:
            for place in self.places:
                folder = place.path / name
                folder.mkdir()
                made[folder] = place
                _set_limits(folder, place, limits)
        except OSError as error:
            Cgroup(made).end()
            raise SandboxUnavailable(f"a control group could not be made: {error}") from error
        return Cgroup(made)


def open_cgroups(places: Iterable[Place] | None = None, *, settle: bool = True) -> Cgroups:
    """The controllers that groups can really be made of here, each tried once.

    With `settle`, a group of version 2 that this process is alone in is made one that can hold others: we move into
    one below it. Without, nothing is moved, and such a place counts as usable if it could be.
    """
    usable: list[Place] = []
    missing: dict[str, str] = dict.fromkeys(CONTROLLERS, "no such controller is mounted")
    for place in load_places() if places is None else places:
        try:
            tried = _try_place(place, settle=settle)
        except (OSError, SandboxUnavailable) as error:
            missing.update(dict.fromkeys(place.controllers & missing.keys(), f"{place.path}: {_why(error)}"))
            continue
        fresh = tried.controllers & missing.keys()
        if fresh:
            usable.append(Place(tried.version, fresh, tried.path))
            missing = {name: why for name, why in missing.items() if name not in fresh}
    return Cgroups(usable, missing)


def load_places() -> list[Place]:
    """Where this process's groups are, by `/proc`."""
    try:
        mounts, membership = (Path("/proc/self", name).read_text() for name in ("mountinfo", "cgroup"))
    except OSError:
        return []
    return parse_places(mounts, membership)


def parse_places(mountinfo: str, membership: str) -> list[Place]:
    """The folders of the groups that `membership` (`/proc/self/cgroup`) names, version 1 first.

    Version 1 comes first because a controller that is mounted there is not to be had in version 2.
    """
    groups = dict(_membership(membership))
    places: list[Place] = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) < 5 or len(kinds) < 3 or kinds[0] not in {"cgroup", "cgroup2"}:
            continue
        options = frozenset(kinds[2].split(",")) & frozenset(CONTROLLERS)
        version: Literal[1, 2] = 2 if kinds[0] == "cgroup2" else 1
        own = groups.get("") if version == 2 else next((groups[name] for name in options if name in groups), None)
        inside = None if own is None else _below(fields[3], own)
        if inside is not None and (options or version == 2):
            controllers = options if version == 1 else frozenset(CONTROLLERS)
            places.append(Place(version, controllers, Path(_unescaped(fields[4]), inside)))
    return sorted(places, key=lambda place: place.version)


def sweep_groups(parents: Iterable[Path], owner: str) -> int:
    """End and remove the groups that a dead owner left in these folders; how many there were."""
    found = {
        folder: Place(2 if (folder / "cgroup.events").exists() else 1, frozenset(), parent)
        for parent in parents
        for folder in parent.glob(f"{GROUP_PREFIX}.{owner}.*")
    }
    group = Cgroup(found)
    for _ in range(SWEEP_TRIES):
        if group.end():
            break
        time.sleep(SWEEP_PAUSE_S)
    return len(found)


def sweep_forgotten(parents: Iterable[Path]) -> int:
    """Remove empty groups of processes that are gone, whoever's they were: their data folder may be gone as well.

    Nothing is ended: a group with a process in it cannot be removed.
    """
    found = [folder for parent in parents for folder in parent.glob(f"{GROUP_PREFIX}.*.*.*")]
    return sum(_removed(folder) for folder in found if not Path("/proc", folder.suffix[1:]).exists())


def group_name(owner: str, number: int) -> str:
    """The name of an owner's box number so and so, which ends with our pid."""
    return f"{GROUP_PREFIX}.{owner}.{number:x}.{os.getpid()}"


def _membership(text: str) -> Iterable[tuple[str, str]]:
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            yield name, path


def _below(root: str, own: str) -> str | None:
    """The group's path below its mount, which may show a part of the tree only."""
    root = root.rstrip("/")
    if ".." in own.split("/") or not (own == root or own.startswith(f"{root}/")):
        return None
    return own[len(root) :].strip("/")


def _unescaped(text: str) -> str:
    return text.replace(r"\040", " ").replace(r"\011", "\t").replace(r"\134", "\\")


def _try_place(place: Place, *, settle: bool) -> Place:
    ready = _settled(place, settle=settle) if place.version == 2 else place
    trial = ready.path / f"{GROUP_PREFIX}.trial.{os.getpid()}"
    trial.mkdir()
    try:
        if place.version == 1 or settle:
            _set_limits(trial, ready, GroupLimits(1 << 30, 64, 1000))
    finally:
        _removed(trial)
    return ready


def _settled(place: Place, *, settle: bool) -> Place:
    own = place.path.parent if place.path.name == OWN_GROUP else place.path
    lent = frozenset((own / "cgroup.controllers").read_text().split()) & place.controllers
    if not lent:
        raise SandboxUnavailable("none of the controllers is lent to this group")
    given = frozenset((own / "cgroup.subtree_control").read_text().split())
    if settle and not lent <= given:
        # The root alone may have both processes and groups below it, and the root alone has no type.
        if (own / "cgroup.type").exists():
            _move_out(own)
        _write(own / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(lent)))
    return Place(2, lent, own)


def _move_out(own: Path) -> None:
    """Us and our children into a group below `own`. Raises `SandboxUnavailable` where somebody else is in it."""
    pids = _pids(own)
    if not pids:
        return
    strangers = [pid for pid in pids if not _is_ours(pid)]
    if strangers:
        raise SandboxUnavailable(
            "other processes share this group, so no groups can be made below it; "
            "start Turnkeeper in one of its own (systemd: Delegate=yes)"
        )
    (own / OWN_GROUP).mkdir(exist_ok=True)
    for pid in pids:
        _write(own / OWN_GROUP / "cgroup.procs", str(pid))


def _is_ours(pid: int) -> bool:
    for _ in range(64):
        if pid == os.getpid():
            return True
        if pid <= 1:
            return False
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            # It has ended meanwhile: nothing of it is left to be somebody else's.
            return True
        pid = int(stat.rpartition(")")[2].split()[1])
    return False


def _set_limits(folder: Path, place: Place, limits: GroupLimits) -> None:
    if "memory" in place.controllers:
        _limit_memory(folder, place.version, limits.memory_bytes)
    if "pids" in place.controllers:
        _write(folder / "pids.max", str(limits.processes))
    if "cpu" in place.controllers and limits.cpu_millis is not None:
        quota_us = limits.cpu_millis * CPU_PERIOD_US // 1000
        if place.version == 2:
            _write(folder / "cpu.max", f"{quota_us} {CPU_PERIOD_US}")
        else:
            _write(folder / "cpu.cfs_period_us", str(CPU_PERIOD_US))
            _write(folder / "cpu.cfs_quota_us", str(quota_us))


def _limit_memory(folder: Path, version: int, memory_bytes: int) -> None:
    if version == 2:
        _write(folder / "memory.max", str(memory_bytes))
        with contextlib.suppress(OSError):
            _write(folder / "memory.swap.max", "0")
        return
    _write(folder / "memory.limit_in_bytes", str(memory_bytes))
    with contextlib.suppress(OSError):
        # Without swap accounting there is no such file, and nothing to limit.
        _write(folder / "memory.memsw.limit_in_bytes", str(memory_bytes))


def _kill_all(folder: Path, place: Place) -> None:
    if place.version == 2:
        with contextlib.suppress(OSError):
            _write(folder / "cgroup.kill", "1")
            return
    for pid in _pids(folder):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _pids(folder: Path) -> list[int]:
    try:
        # 0 stands for a process that this pid namespace cannot see, and to kill(2) for our own process group.
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split() if pid != "0"]
    except OSError:
        return []


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _counted(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), 0)


def _write(path: Path, text: str) -> None:
    # Never O_CREAT: a file that a kernel does not have is an error, and not a file of ours.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _why(error: OSError | SandboxUnavailable) -> str:
    return (error.strerror or "failed") if isinstance(error, OSError) else error.message
