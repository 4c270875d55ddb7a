"""The system-call filter of every box, built on this machine because it is per architecture.

Allows by default and refuses what a guest of ours never needs and an attacker of the kernel or of a neighbour wants:
mounts, namespaces, tracing, keys, kernel modules, clocks, and every socket family but UNIX, INET, INET6 and NETLINK.
"""

import errno
import socket
import tempfile
from collections.abc import Iterable
from typing import Final, Protocol, cast

from turnkeeper.sandbox.boxes import SandboxUnavailable

try:
    import pyseccomp
except (ImportError, OSError, RuntimeError):
    # The wheel is pure Python and looks for the system's libseccomp when it is imported.
    pyseccomp = None

REFUSED: Final = (
    "mount",
    "umount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "setns",
    "unshare",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "kcmp",
    "pidfd_getfd",
    "process_madvise",
    "keyctl",
    "add_key",
    "request_key",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "init_module",
    "finit_module",
    "delete_module",
    "create_module",
    "kexec_load",
    "kexec_file_load",
    "reboot",
    "swapon",
    "swapoff",
    "quotactl",
    "quotactl_fd",
    "syslog",
    "acct",
    "open_by_handle_at",
    "iopl",
    "ioperm",
    "fanotify_init",
    "settimeofday",
    "clock_settime",
    "clock_settime64",
    "clock_adjtime",
    "clock_adjtime64",
    "adjtimex",
    "stime",
    "sethostname",
    "setdomainname",
    "vhangup",
    "nfsservctl",
    "lookup_dcookie",
    "move_pages",
    "migrate_pages",
    "uselib",
    "ustat",
    "sysfs",
    "_sysctl",
    "get_kernel_syms",
    "query_module",
    "vm86",
    "vm86old",
)
# Answered as if the kernel had none: callers then take the older way, which the filter can look into.
ABSENT: Final = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
# Newer than the libseccomp of a stable distribution, and numbered alike on every architecture.
REFUSED_NUMBERS: Final = (467,)  # open_tree_attr

CLONE_NEW_FLAGS: Final = (
    0x00000080,  # time
    0x00020000,  # mount
    0x02000000,  # cgroup
    0x04000000,  # uts
    0x08000000,  # ipc
    0x10000000,  # user
    0x20000000,  # pid
    0x40000000,  # net
)
TERMINAL_INPUT_IOCTLS: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
ALLOWED_FAMILIES: Final = (int(socket.AF_UNIX), int(socket.AF_INET), int(socket.AF_INET6), 16)  # 16: netlink
_LOW_32_BITS: Final = 0xFFFFFFFF


class _Filter(Protocol):
    def add_rule(self, action: int, syscall: int | str, *args: object) -> None: ...

    def export_bpf(self, file: object) -> None: ...


def build_filter() -> bytes:
    """The filter as a BPF program for `bwrap --seccomp`. Raises `SandboxUnavailable` without libseccomp."""
    if pyseccomp is None:
        raise SandboxUnavailable(
            "the system-call filter cannot be built: libseccomp was not found",
            hint="Install libseccomp (Debian and Ubuntu: libseccomp2; Fedora: libseccomp) and pyseccomp.",
        )
    rules = cast("_Filter", pyseccomp.SyscallFilter(pyseccomp.ALLOW))
    refuse = pyseccomp.ERRNO(errno.EPERM)
    _add_all(rules, refuse, (*REFUSED, *REFUSED_NUMBERS))
    _add_all(rules, pyseccomp.ERRNO(errno.ENOSYS), ABSENT)
    for flag in CLONE_NEW_FLAGS:
        rules.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    for request in TERMINAL_INPUT_IOCTLS:
        # The kernel looks at the low half only, so the high half must not make a difference here either.
        rules.add_rule(refuse, "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, _LOW_32_BITS, request))
    for family in range(max(ALLOWED_FAMILIES)):
        if family not in ALLOWED_FAMILIES:
            rules.add_rule(refuse, "socket", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _LOW_32_BITS, family))
    rules.add_rule(refuse, "socket", pyseccomp.Arg(0, pyseccomp.GT, max(ALLOWED_FAMILIES)))
    with tempfile.TemporaryFile() as program:
        rules.export_bpf(program)
        program.seek(0)
        return program.read()


def _add_all(rules: _Filter, action: int, names: Iterable[str | int]) -> None:
    for name in names:
        if isinstance(name, int) or _is_known(name):
            rules.add_rule(action, name)


def _is_known(name: str) -> bool:
    # A call this libseccomp cannot name for this architecture is one this architecture does not have, or one that
    # is newer than the library; the second kind stands in REFUSED_NUMBERS.
    assert pyseccomp is not None  # noqa: S101 - build_filter has looked
    try:
        return int(pyseccomp.resolve_syscall(pyseccomp.system_arch(), name)) >= 0
    except (ValueError, OSError):
        return False
