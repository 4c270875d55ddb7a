"""The bubblewrap arguments of a box: a pure function from a plan to a list of texts.

The order matters, because bubblewrap makes mounts in the order it is told: what lies inside another mount comes
after it, and the root and `/dev` are made read-only last.
INVARIANT: nothing of the host is bound that the plan does not name, and the workspace alone is bound writable.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from turnkeeper.sandbox.boxes import BoxLimits
from turnkeeper.sandbox.runtime_paths import Runtime, parents_of

HOSTNAME: Final = "sandbox"
# With a user namespace the box's user is this one inside, whoever started it.
INNER_UID: Final = 1000
SYSTEM_LINKS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Without these an ordinary program does not link or start; never /etc as a whole.
ETC_FILES: Final = ("/etc/ld.so.cache", "/etc/alternatives")
_MOUNTED: Final = frozenset({"usr", "dev", "proc", *SYSTEM_LINKS})
SHM_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path and where it is inside."""

    source: Path
    target: Path
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Confinement:
    """How the box is cut off here, found out once: as root or not, and with which programs.

    As root there is no user namespace (the box's uid could not enter a 0700 home through one); `setpriv` gives up
    root inside instead, and the seccomp filter does what `--disable-userns` does elsewhere.
    """

    privileged: bool
    system: tuple[tuple[str, ...], ...]
    setpriv: str
    prlimit: str


@dataclass(frozen=True, slots=True)
class BoxPlan:
    """One box. `files` are contents by path inside, given as file descriptors.

    `channel_fds` become the command's standard input and output. In a user namespace bubblewrap's own first process
    has the box's user, so that everything in the box can open what *it* has open: that must not be our channel.
    """

    uid: int
    runtime: Runtime
    command: tuple[str, ...]
    limits: BoxLimits
    seccomp_fd: int
    info_fd: int
    binds: tuple[Bind, ...] = ()
    files: Mapping[Path, int] = field(default_factory=dict[Path, int])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    directory: Path = Path("/tmp")  # noqa: S108 - the box's own
    channel_fds: tuple[int, int] | None = None
    block_fd: int | None = None
    has_memory_group: bool = False


def system_mounts(root: Path = Path("/")) -> tuple[tuple[str, ...], ...]:
    """The read-only system as argument groups: `/usr`, and `/bin` and its like as links or folders as the host has."""
    groups: list[tuple[str, ...]] = [("--ro-bind", str(root / "usr"), "/usr")]
    for name in SYSTEM_LINKS:
        path = root / name
        if path.is_symlink():
            groups.append(("--symlink", str(path.readlink()), f"/{name}"))
        elif path.is_dir():
            groups.append(("--ro-bind", str(path), f"/{name}"))
    groups += [("--ro-bind-try", name, name) for name in ETC_FILES]
    return tuple(groups)


def render_options(plan: BoxPlan, confinement: Confinement) -> list[str]:
    """Everything for `--args`, which keeps it out of `/proc/1/cmdline`."""
    return [
        *_namespaces(confinement),
        *_environment(plan.environment),
        *_folders((Path("/etc"), Path("/run"))),
        *(text for group in confinement.system for text in group),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--perms", "1777", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108 - the box's own
        *("--perms", "1777", "--size", str(plan.limits.tmp_bytes), "--tmpfs", "/tmp"),  # noqa: S108 - the box's own
        *_mounts(plan),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", str(plan.directory)),
        *("--seccomp", str(plan.seccomp_fd), "--info-fd", str(plan.info_fd)),
        *(() if plan.block_fd is None else ("--block-fd", str(plan.block_fd))),
    ]


def render_command(plan: BoxPlan, confinement: Confinement) -> list[str]:
    """What bubblewrap starts: give up root if we are root, set the limits, run the command.

    The limits are set inside: a process limit set before the user namespace is made would count every process
    the same user has on the host.
    """
    drop = (
        confinement.setpriv,
        *("--reuid", str(plan.uid), "--regid", str(plan.uid), "--clear-groups"),
        *("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs"),
    )
    return [
        *(drop if confinement.privileged else ()),
        *_channel(plan.channel_fds),
        *_limited(plan, confinement),
        *plan.command,
    ]


def _channel(fds: tuple[int, int] | None) -> tuple[str, ...]:
    if fds is None:
        return ()
    return ("/bin/sh", "-c", f'exec "$@" </proc/self/fd/{fds[0]} >/proc/self/fd/{fds[1]}', "sh")


def _limited(plan: BoxPlan, confinement: Confinement) -> list[str]:
    limits = plan.limits
    if not plan.has_memory_group:
        # The address space of each process is then all that keeps it from the host's memory.
        limits = replace(limits, memory_bytes=min(limits.memory_bytes, limits.box_memory_bytes))
    return limit_command(confinement.prlimit, limits)


def limit_command(prlimit: str, limits: BoxLimits) -> list[str]:
    """The words before a command that hold it to the limits."""
    return [
        prlimit,
        f"--as={limits.memory_bytes}",
        f"--cpu={limits.cpu_seconds}",
        f"--nproc={limits.processes}",
        f"--nofile={limits.open_files}",
        f"--fsize={limits.file_bytes}",
        "--core=0",
        "--",
    ]


def _namespaces(confinement: Confinement) -> list[str]:
    shared = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    shared += ["--hostname", HOSTNAME, "--new-session", "--die-with-parent", "--cap-drop", "ALL"]
    if confinement.privileged:
        kept = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
        return [*shared, *(text for name in kept for text in ("--cap-add", name))]
    return ["--unshare-user", "--disable-userns", "--uid", str(INNER_UID), "--gid", str(INNER_UID), *shared]


def _environment(variables: Mapping[str, str]) -> list[str]:
    return ["--clearenv", *(text for name, value in variables.items() for text in ("--setenv", name, value))]


def _mounts(plan: BoxPlan) -> list[str]:
    runtime = plan.runtime
    binds = [*(Bind(path, path) for path in runtime.binds), *plan.binds]
    targets = [*(bind.target for bind in binds), *(link for link, _ in runtime.links), *plan.files]
    return [
        *_folders(parents_of(targets)),
        *(text for bind in binds for text in _bind(bind)),
        *(text for link, target in runtime.links for text in ("--symlink", target, str(link))),
        *(
            text
            for path, fd in plan.files.items()
            for text in ("--perms", "0444", "--ro-bind-data", str(fd), str(path))
        ),
    ]


def _folders(folders: Iterable[Path]) -> list[str]:
    # A missing parent would be made with mode 0700, which keeps out the uid that root gives the box.
    made = (folder for folder in folders if folder.parts[1] not in _MOUNTED and folder != Path("/tmp"))  # noqa: S108
    return [text for folder in made for text in ("--perms", "0755", "--dir", str(folder))]


def _bind(bind: Bind) -> tuple[str, str, str]:
    return ("--bind" if bind.writable else "--ro-bind", str(bind.source), str(bind.target))
