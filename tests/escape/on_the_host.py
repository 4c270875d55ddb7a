"""Attempts at what lies on the host: files, processes, the network."""

from tests.escape.attempt import (
    NO_CAPABILITIES,
    NO_NETWORK,
    NOT_MOUNTED,
    OTHER_USER,
    PID_NAMESPACE,
    READ_ONLY,
    Attempt,
    Group,
)

_GONE = ("ENOENT",)
_FIXED = ("EROFS", "EACCES", "EPERM")
_NO_ROUTE = ("ENETUNREACH",)

FILES = Group(
    "Files",
    (
        Attempt(
            "read the host's password hashes", "result = read('/etc/shadow')", _GONE, NOT_MOUNTED, works_outside=True
        ),
        Attempt(
            "read a file in a home folder", "result = read(host['home_file'])", _GONE, NOT_MOUNTED, works_outside=True
        ),
        Attempt(
            "read another session's workspace",
            "result = read(host['other_workspace'])",
            _GONE,
            NOT_MOUNTED,
            works_outside=True,
        ),
        Attempt(
            "read the data folder: databases, keys",
            "result = read(host['data_file'])",
            _GONE,
            NOT_MOUNTED,
            works_outside=True,
        ),
        Attempt(
            "reach a host file by a symbolic link",
            "os.symlink(host['data_file'], '/tmp/link')\nresult = read('/tmp/link')",
            _GONE,
            NOT_MOUNTED,
        ),
        Attempt(
            "give a system file a second name where writing is allowed",
            "result = attempt(lambda: os.link(os.__file__, '/tmp/second'))",
            ("EXDEV", "EPERM"),
            READ_ONLY,
        ),
        Attempt(
            "write to /, /usr, /etc, /run and /dev",
            "tried = {attempt(lambda: open(at + '/x', 'w')) for at in ('', '/usr', '/usr/bin', '/etc', '/run', '/dev')}"
            "\nresult = 'worked' if 'worked' in tried else sorted(tried)[0]",
            _FIXED,
            READ_ONLY,
        ),
        Attempt(
            "change the interpreter or its packages",
            "result = attempt(lambda: open(os.__file__, 'a'))",
            _FIXED,
            READ_ONLY,
        ),
        Attempt(
            "open the host's memory, disks, /dev/kvm, /dev/fuse, /dev/kmsg",
            "tried = {read('/dev/' + name) for name in ('mem', 'kmem', 'port', 'kvm', 'fuse', 'kmsg', 'vda', 'sda',"
            " 'loop-control', 'userfaultfd', 'vsock')}\nresult = ' '.join(sorted(tried))",
            _GONE,
            NOT_MOUNTED,
        ),
        Attempt(
            "make a device node of a disk",
            "result = attempt(lambda: os.mknod('/tmp/disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0)))",
            ("EPERM",),
            NO_CAPABILITIES,
        ),
        Attempt(
            "write to /sys or to the control groups", "result = attempt(lambda: os.listdir('/sys'))", _GONE, NOT_MOUNTED
        ),
        Attempt(
            "use a descriptor of ours that was left open",
            "fds = [int(fd) for fd in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd)]\n"
            "found = [os.readlink(f'/proc/self/fd/{fd}') for fd in fds if fd > 2]\n"
            "result = 'none' if not [one for one in found if one.startswith('/') and 'proc' not in one] else found",
            ("none",),
            "closed before the box starts",
        ),
        Attempt(
            "look for the other box's door: the model's socket, the workspace",
            "result = attempt(lambda: os.stat(host['other_door']))",
            _GONE,
            NOT_MOUNTED,
        ),
    ),
)

PROCESSES = Group(
    "Other processes",
    (
        Attempt(
            "find a provider's key in any environment that /proc shows",
            "seen = [path for path in glob.glob('/proc/[0-9]*/environ')"
            " if read(path) == 'worked' and host['secret'].encode() in open(path, 'rb').read()]\n"
            "result = 'worked' if seen else 'none'",
            ("none",),
            f"{PID_NAMESPACE}, empty environment",
            works_outside=True,
        ),
        Attempt(
            "read the environment of the box's first process",
            "seen = read('/proc/1/environ') == 'worked' and open('/proc/1/environ').read()\n"
            "result = 'worked' if seen else 'none'",
            ("none",),
            "started with an empty environment",
        ),
        Attempt(
            "reach host files through /proc/1/root",
            "result = read('/proc/1/root' + host['data_file'])",
            ("EACCES", "ENOENT"),
            f"{NOT_MOUNTED}, {OTHER_USER}",
        ),
        Attempt(
            "see a process of the host",
            "result = attempt(lambda: os.stat('/proc/%d' % host['pid']))",
            ("ENOENT",),
            PID_NAMESPACE,
            works_outside=True,
        ),
        Attempt(
            "signal a process of the host",
            "result = attempt(lambda: os.kill(host['pid'], 0))",
            ("ESRCH",),
            PID_NAMESPACE,
            works_outside=True,
        ),
        Attempt(
            "end the box's first process",
            "told = attempt(lambda: os.kill(1, signal.SIGKILL))\n"
            "result = 'ignored' if told == 'worked' and os.path.exists('/proc/1/stat') else told",
            ("EPERM", "ignored"),
            f"{PID_NAMESPACE}, {OTHER_USER}",
        ),
        Attempt(
            "become root",
            "result = attempt(lambda: os.setuid(0)) if os.getuid() else 'worked'",
            ("EPERM", "EINVAL"),
            NO_CAPABILITIES,
        ),
        Attempt(
            "run a set-user-id program of the system",
            "with subprocess.Popen(['/usr/bin/su'], stdin=-1, stdout=-1, stderr=-1) as su:\n"
            "    status = open(f'/proc/{su.pid}/status').read() if os.path.exists(f'/proc/{su.pid}/status') else ''\n"
            "    su.kill()\n"
            "result = 'worked' if 'Uid:\\t%d\\t0' % os.getuid() in status else 'not raised'",
            ("not raised",),
            "no new privileges, nosuid mounts",
        ),
        Attempt(
            "raise a limit that was set",
            "result = attempt(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2))",
            ("EPERM", "broken: ValueError('not allowed to raise maximum limit')"),
            NO_CAPABILITIES,
        ),
        Attempt(
            "claim real-time scheduling",
            "result = attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))",
            ("EPERM",),
            NO_CAPABILITIES,
        ),
        Attempt(
            "look into the memory of the program that runs the tools",
            "result = attempt(lambda: open('/proc/%d/mem' % agent(), 'r+b').close())",
            ("EACCES", "EPERM"),
            "not dumpable",
            places=("tool",),
        ),
        Attempt(
            "use what the box's first process has open",
            "seen = {os.readlink(f'/proc/1/fd/{fd}') for fd in (0, 1) if read(f'/proc/1/fd/{fd}') != 'EACCES'}\n"
            "result = 'worked' if seen - {'/dev/null'} else 'nothing'",
            ("nothing",),
            f"{OTHER_USER}, else it has nothing open",
        ),
        Attempt(
            "write an answer in the name of the program that runs the tools",
            "result = attempt(lambda: open('/proc/%d/fd/1' % agent(), 'wb').close())",
            ("EACCES", "EPERM"),
            "not dumpable",
            places=("tool",),
        ),
    ),
)

NETWORK = Group(
    "Network",
    (
        Attempt(
            "connect to a port of the host's 127.0.0.1",
            "result = connect(socket.AF_INET, tuple(host['tcp']))",
            ("ECONNREFUSED",),
            NO_NETWORK,
            works_outside=True,
        ),
        Attempt(
            "connect to an abstract unix socket of the host",
            "result = connect(socket.AF_UNIX, '\\0' + host['abstract'])",
            ("ECONNREFUSED",),
            NO_NETWORK,
            works_outside=True,
        ),
        Attempt(
            "connect to a unix socket of the host by its path",
            "result = connect(socket.AF_UNIX, host['unix'])",
            _GONE,
            NOT_MOUNTED,
            works_outside=True,
        ),
        Attempt(
            "connect to an address in the internet",
            "result = connect(socket.AF_INET, ('192.0.2.1', 80))",
            _NO_ROUTE,
            NO_NETWORK,
        ),
        Attempt(
            "connect to the cloud's metadata address",
            "result = connect(socket.AF_INET, ('169.254.169.254', 80))",
            _NO_ROUTE,
            NO_NETWORK,
        ),
        Attempt(
            "resolve a name",
            "result = attempt(lambda: socket.getaddrinfo('example.org', 80))",
            ("-2", "-3", "-5", "-11"),
            NO_NETWORK,
        ),
        Attempt(
            "see another interface than its own loopback",
            "result = ' '.join(sorted(name for _, name in socket.if_nameindex()))",
            ("lo",),
            NO_NETWORK,
        ),
        Attempt(
            "add or change an interface",
            "import fcntl\n"
            "with socket.socket() as any_socket:\n"
            "    result = attempt(lambda: fcntl.ioctl(any_socket, 0x8914, struct.pack('16sh22x', b'lo', 0)))",
            ("EPERM",),
            NO_CAPABILITIES,
        ),
        Attempt(
            "send raw IP packets",
            "result = call(libc.socket, socket.AF_INET, socket.SOCK_RAW, 1)",
            ("EPERM",),
            NO_CAPABILITIES,
        ),
    ),
)
