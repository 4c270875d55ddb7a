"""Attempts to use the machine up. Each has a box of its own, with limits that are quick to reach."""

from tests.escape.attempt import GROUP, LIMIT, SIZED, Attempt, Group

from turnkeeper.sandbox.boxes import BoxLimits

_SMALL = 64 << 20

EXHAUSTION = Group(
    "Using the machine up",
    (
        Attempt(
            "fork bomb",
            "made = []\n"
            "def work():\n"
            "    for _ in range(200):\n"
            "        made.append(os.posix_spawn('/bin/sleep', ['sleep', '20'], {}))\n"
            "result = attempt(work)\n"
            "for pid in made:\n"
            "    os.kill(pid, 9)",
            ("EAGAIN",),
            f"{GROUP} (pids), else {LIMIT} (RLIMIT_NPROC)",
            limits=BoxLimits(processes=40),
        ),
        Attempt(
            "use up memory in one process",
            "result = attempt(lambda: [bytearray(b'x' * (8 << 20)) for _ in range(64)])",
            ("signal 9",),
            f"{GROUP} (memory), else {LIMIT} (RLIMIT_AS)",
            limits=BoxLimits(box_memory_bytes=_SMALL, cpu_millis=None),
            needs="memory group",
        ),
        Attempt(
            "use up the address space",
            "result = attempt(lambda: mmap.mmap(-1, 8 << 30))",
            ("ENOMEM",),
            f"{LIMIT} (RLIMIT_AS)",
            limits=BoxLimits(),
        ),
        Attempt(
            "fill /tmp",
            "def work():\n"
            "    with open('/tmp/full', 'wb') as file:\n"
            "        for _ in range(64):\n"
            "            file.write(bytes(1 << 20))\n"
            "result = attempt(work)",
            ("ENOSPC",),
            SIZED,
            limits=BoxLimits(tmp_bytes=8 << 20),
        ),
        Attempt(
            "fill /dev/shm",
            "def work():\n"
            "    with open('/dev/shm/full', 'wb') as file:\n"
            "        for _ in range(64):\n"
            "            file.write(bytes(1 << 20))\n"
            "result = attempt(work)",
            ("ENOSPC",),
            SIZED,
            limits=BoxLimits(),
        ),
        Attempt(
            "fill /tmp with empty files",
            "def work():\n"
            "    for number in range(1_000_000):\n"
            "        open(f'/tmp/{number}', 'w').close()\n"
            "result = attempt(work)",
            ("signal 9", "ENOSPC", "ENOMEM", "ended"),
            f"{GROUP} (memory)",
            limits=BoxLimits(box_memory_bytes=_SMALL, cpu_millis=None),
            needs="memory group",
        ),
        Attempt(
            "open files without end",
            "kept = []\nresult = attempt(lambda: [kept.append(open('/dev/null')) for _ in range(5000)])",
            ("EMFILE",),
            f"{LIMIT} (RLIMIT_NOFILE)",
            limits=BoxLimits(open_files=100),
        ),
        Attempt(
            "write one endless file",
            "def work():\n"
            "    with open('/tmp/long', 'wb') as file:\n"
            "        while True:\n"
            "            file.write(bytes(1 << 20))\n"
            "result = attempt(work)",
            ("EFBIG", "signal 25"),
            f"{LIMIT} (RLIMIT_FSIZE)",
            limits=BoxLimits(file_bytes=4 << 20),
        ),
        Attempt(
            "burn processor time without end",
            "while True: pass",
            ("signal 24", "signal 9"),
            f"{LIMIT} (RLIMIT_CPU), {GROUP} (cpu)",
            limits=BoxLimits(cpu_seconds=1),
        ),
        Attempt(
            "leave a core dump",
            "resource.getrlimit(resource.RLIMIT_CORE)\nresult = '%d %d' % resource.getrlimit(resource.RLIMIT_CORE)",
            ("0 0",),
            f"{LIMIT} (RLIMIT_CORE)",
            limits=BoxLimits(),
        ),
    ),
)
