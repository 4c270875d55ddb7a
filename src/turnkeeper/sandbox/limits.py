"""By which means each limit of a box holds on this machine: said by `doctor`, and in the log when a driver starts.

Answers for never saying that a limit holds by a means that is not there.
"""

from dataclasses import dataclass
from typing import Final

import structlog

from turnkeeper.sandbox.boxes import (
    MAX_OUTPUT_BYTES,
    BoxLimits,
    CgroupUse,
    DriverSettings,
    ProbeResult,
    SandboxUnavailable,
)
from turnkeeper.sandbox.bwrap_args import SHM_BYTES
from turnkeeper.sandbox.cgroups import CONTROLLERS, Cgroups, Controller, open_cgroups

GROUPS_HINT: Final = (
    "As root, or in a service with `Delegate=yes`, control groups are there; `sandbox.cgroups = auto` does without."
)
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What holds one limit. `weak`: a control group would hold more, and there is none."""

    limit: str
    means: str
    value: str
    weak: bool = False


def find_cgroups(use: CgroupUse, *, settle: bool) -> Cgroups:
    """The control groups that boxes get. Raises `SandboxUnavailable` where they are required and not to be had."""
    if use == "off":
        return Cgroups((), dict.fromkeys(CONTROLLERS, "`sandbox.cgroups` is `off`"))
    found = open_cgroups(settle=settle)
    if use == "require" and found.missing:
        name, why = next(iter(found.missing.items()))
        raise SandboxUnavailable(f"there is no control group for {name}: {why}", hint=GROUPS_HINT)
    return found


def limit_mechanisms(cgroups: Cgroups, limits: BoxLimits) -> list[Mechanism]:
    """Every limit of a box, and what holds it."""
    memory, cpu, processes = limits.box_memory_bytes, limits.cpu_millis, limits.processes
    address = min(limits.memory_bytes, memory)
    share = "no limit" if cpu is None else f"{cpu / 1000:g} processors per box"
    return [
        _grouped(cgroups, "memory", "memory", f"{_mib(memory)} per box", f"RLIMIT_AS, {_mib(address)} per process"),
        _grouped(cgroups, "cpu", "processor share", share, "none, RLIMIT_CPU alone"),
        Mechanism("processor time", "RLIMIT_CPU", f"{limits.cpu_seconds} s per process"),
        _grouped(cgroups, "pids", "processes", f"{processes} per box", f"RLIMIT_NPROC, {processes} per user id"),
        Mechanism("open files", "RLIMIT_NOFILE", f"{limits.open_files} per process"),
        Mechanism("file size", "RLIMIT_FSIZE", _mib(limits.file_bytes)),
        Mechanism("files in /tmp", "tmpfs of a size", _mib(limits.tmp_bytes)),
        Mechanism("files in /dev/shm", "tmpfs of a size", _mib(SHM_BYTES)),
        Mechanism("workspace", "measured", f"{_mib(limits.disk_bytes)}, {limits.disk_files} files"),
        Mechanism("output of a tool", "cut", f"{MAX_OUTPUT_BYTES} bytes"),
        Mechanism("time of a tool", "killed by the worker", "`worker` settings"),
    ]


def limit_probes(cgroups: Cgroups, limits: BoxLimits) -> list[ProbeResult]:
    """The same as lines of `doctor`."""
    found = limit_mechanisms(cgroups, limits)
    return [ProbeResult(f"limit {one.limit}", True, f"{one.means}: {one.value}", weak=one.weak) for one in found]


def say_how_limits_hold(settings: DriverSettings, cgroups: Cgroups) -> None:
    """One line in the log, and a warning when a limit holds less than it could."""
    found = limit_mechanisms(cgroups, settings.tool_limits)
    log = structlog.get_logger(__name__)
    log.info("sandbox_limits", limits={one.limit: f"{one.means}: {one.value}" for one in found})
    if cgroups.missing:
        log.warning("sandbox_without_control_groups", missing=cgroups.missing, hint=GROUPS_HINT)


def _grouped(cgroups: Cgroups, controller: Controller, limit: str, value: str, instead: str) -> Mechanism:
    version = cgroups.version_of(controller)
    if version is None:
        return Mechanism(limit, f"no control group ({cgroups.missing[controller]})", instead, weak=True)
    return Mechanism(limit, f"{controller} control group, version {version}", value)


def _mib(size: int) -> str:
    return f"{size / _MIB:g} MiB"
