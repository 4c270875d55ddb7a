"""Attempts at the kernel: new namespaces, mounts, other processes' memory, and calls that few programs need."""

from tests.escape.attempt import FILTER, NO_CAPABILITIES, READ_ONLY, Attempt, Group

_NO = ("EPERM",)


def _calls(tries: str, *names: str, outcomes: tuple[str, ...] = _NO) -> Attempt:
    """These calls by their numbers, each of them refused."""
    code = (
        f"tried = {{system_call(name, 0, 0, 0, 0, 0) for name in {names!r} if name in NUMBERS}}\n"
        "result = ' '.join(sorted(tried))"
    )
    return Attempt(tries, code, outcomes, FILTER)


def _born(flag: int) -> str:
    return (
        "def work():\n"
        f"    child = libc.syscall(ctypes.c_long(NUMBERS['clone']), ctypes.c_long({flag} | 17), 0, 0, 0, 0)\n"
        "    if child == 0:\n"
        "        os._exit(0)\n"
        "    if child < 0:\n"
        "        raise OSError(ctypes.get_errno(), '')\n"
        "result = attempt(work)"
    )


NAMESPACES = Group(
    "Namespaces and mounts",
    (
        Attempt(
            "make a new namespace (unshare)",
            "tried = {call(libc.unshare, flag) for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x2000000)}\n"
            "result = ' '.join(sorted(tried))",
            ("EPERM",),
            FILTER,
        ),
        Attempt("be born into a new namespace (clone)", _born(0x10000000), _NO, FILTER),
        Attempt("the same by clone3", "result = system_call('clone3', 0, 0)", ("ENOSYS",), FILTER),
        Attempt(
            "enter another namespace (setns)",
            "result = call(libc.setns, os.open('/proc/self/ns/net', os.O_RDONLY), 0)",
            _NO,
            FILTER,
            works_outside=False,
        ),
        Attempt(
            "mount something",
            "result = call(libc.mount, b'none', b'/tmp', b'tmpfs', 0, None)",
            _NO,
            FILTER,
        ),
        Attempt(
            "make the system writable again (remount)",
            "result = call(libc.mount, b'none', b'/', None, 32 | 4096, None)",
            _NO,
            FILTER,
        ),
        Attempt("take a mount away", "result = call(libc.umount2, b'/tmp', 2)", _NO, FILTER),
        Attempt("change the root (chroot)", "result = call(libc.chroot, b'/tmp')", _NO, FILTER),
        _calls("the new mount calls", "open_tree", "move_mount", "fsopen", "mount_setattr", "open_tree_attr"),
        _calls("change the root (pivot_root)", "pivot_root"),
        _calls("open a file by its handle", "open_by_handle_at"),
    ),
)

MEMORY = Group(
    "Other programs' memory",
    (
        Attempt("trace a process", "result = call(libc.ptrace, 0, 0, 0, 0)", _NO, FILTER, works_outside=True),
        _calls("read or write another process's memory", "process_vm_readv", "process_vm_writev"),
        _calls("take another process's descriptor", "pidfd_getfd"),
        _calls("compare or advise other processes", "kcmp", "process_madvise"),
        _calls("move other processes' pages", "move_pages", "migrate_pages"),
        Attempt(
            "type into a terminal (TIOCSTI, TIOCLINUX)",
            "tried = {call(libc.ioctl, 0, ctypes.c_ulong(one), b'x') for one in (0x5412, 0x541C, (1 << 32) | 0x5412)}\n"
            "result = ' '.join(sorted(tried))",
            _NO,
            FILTER,
        ),
    ),
)

KERNEL = Group(
    "The kernel",
    (
        _calls("read or add keys of the kernel", "keyctl", "add_key", "request_key"),
        _calls("load a BPF program", "bpf"),
        _calls("watch performance events", "perf_event_open"),
        _calls("handle page faults (userfaultfd)", "userfaultfd"),
        _calls("io_uring", "io_uring_setup", outcomes=("ENOSYS",)),
        _calls("load a module", "init_module", "finit_module"),
        _calls("start another kernel", "kexec_load"),
        _calls("watch or answer for the file system", "fanotify_init"),
        _calls("change quotas", "quotactl"),
        _calls("read the kernel's log", "syslog"),
        _calls("speak to ports of the machine", "iopl", "ioperm", outcomes=("EPERM", "")),
        Attempt(
            "stop the machine",
            # 0 is no command that a kernel knows: without the filter this is EINVAL.
            "result = call(libc.reboot, 0)",
            _NO,
            FILTER,
        ),
        Attempt(
            "set the clock",
            "tried = {attempt(lambda: time.clock_settime(time.CLOCK_REALTIME, time.time())),"
            " call(libc.settimeofday, None, b'\\0' * 8)}\nresult = ' '.join(sorted(tried))",
            _NO,
            FILTER,
        ),
        Attempt("name the machine", "result = attempt(lambda: socket.sethostname('x'))", _NO, FILTER),
        Attempt("account for processes", "result = call(libc.acct, None)", _NO, FILTER),
        Attempt("swap", "result = call(libc.swapon, b'/tmp/x', 0)", _NO, FILTER),
        Attempt(
            "say what the kernel starts on a crash (core_pattern), or change memory settings",
            "tried = {write('/proc/sys/' + at) for at in ('kernel/core_pattern', 'vm/overcommit_memory',"
            " 'kernel/modprobe')} - {'ENOENT'}\nresult = 'worked' if 'worked' in tried else 'refused'",
            ("refused",),
            f"{READ_ONLY}, {NO_CAPABILITIES}",
        ),
        Attempt(
            "press the magic key (/proc/sysrq-trigger)",
            "result = write('/proc/sysrq-trigger')",
            ("EACCES", "EROFS", "EPERM", "ENOENT"),
            NO_CAPABILITIES,
        ),
        Attempt(
            "read the kernel's memory (/proc/kcore)",
            "result = read('/proc/kcore')",
            ("EACCES", "EPERM", "ENOENT"),
            NO_CAPABILITIES,
        ),
        Attempt(
            "be spared when memory is short",
            "score = os.open('/proc/self/oom_score_adj', os.O_WRONLY)\n"
            "result = attempt(lambda: os.write(score, b'-500'))",
            ("EACCES", "EPERM"),
            NO_CAPABILITIES,
        ),
        Attempt(
            "use socket families that leave a namespace: vsock, packet, Bluetooth, XDP, TIPC, kernel crypto",
            "tried = {call(libc.socket, family, 2, 0) for family in (40, 17, 31, 44, 30, 38)}\n"
            "result = ' '.join(sorted(tried))",
            _NO,
            FILTER,
        ),
        Attempt(
            "get past the filter by 32-bit calls (int 0x80)",
            "room = mmap.mmap(-1, 4096, prot=7)\n"
            "room.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n"
            "at = ctypes.addressof(ctypes.c_char.from_buffer(room))\n"
            "ctypes.CFUNCTYPE(ctypes.c_int)(at)()\nresult = 'worked'",
            ("signal 31", "signal 11"),
            FILTER,
            needs="x86_64",
        ),
        Attempt(
            "get past the filter by x32 numbers",
            "result = call(libc.syscall, ctypes.c_long(0x40000000 | 39))",
            ("signal 31", "ENOSYS"),
            FILTER,
            needs="x86_64",
        ),
    ),
)

ALLOWED = Group(
    "Let happen",
    (
        Attempt(
            "run a program that is only in memory",
            "fd = os.memfd_create('x')\nos.write(fd, open('/bin/true', 'rb').read())\n"
            "result = attempt(lambda: subprocess.run([f'/proc/self/fd/{fd}'], pass_fds=[fd], check=True))",
            ("worked",),
            "it can do what every other program in the box can",
            stopped=False,
        ),
        Attempt(
            "make unix, IP and netlink sockets",
            "tried = {call(libc.socket, family, 2, 0) for family in (1, 2, 16)}\nresult = ' '.join(tried)",
            ("worked",),
            "they reach the box's own loopback and nothing else",
            stopped=False,
        ),
        Attempt(
            "read what kind of machine it is (/proc/cpuinfo, /proc/meminfo, uname)",
            "result = read('/proc/meminfo')",
            ("worked",),
            "programs size themselves by it",
            stopped=False,
        ),
    ),
)
