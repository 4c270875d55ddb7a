"""The program inside the tool box: shell and files, one call at a time, over stdio as JSON lines.

It is bound into the box as a single file and run by an isolated interpreter, so it imports the standard library
only. It enforces nothing about the wall: what it can reach is what the box lets it reach. It owes its caller bounded
text, validated arguments and an answer to every line.

Request: `{"id", "tool", "arguments", "timeout_ms", "max_output_bytes"}`.
Answer: `{"id", "status": "ok" | "error" | "timeout", "text", "exit_status": int | null, "truncated"}`.
The first line out is the answer to id 0: the agent is there.

It also keeps programs that speak MCP over their stdio (`server_start`, `server_exchange`, `server_stop`): it carries
their bytes and reads none of them. No model is told about these three.
"""

import base64
import ctypes
import errno
import json
import os
import selectors
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import cast

# A file of the longest frame, each character of it escaped in the longest way.
MAX_REQUEST_BYTES = 16 * 1024 * 1024
MAX_LIST_ENTRIES = 1000
MAX_SAFE_INTEGER = 2**53 - 1
CHUNK_BYTES = 64 * 1024
# How long after the shell's end its own last words may still be on their way through the pipe.
DRAIN_MS = 200
PR_SET_DUMPABLE = 4
OOM_SCORE = "500"
# There only where the box may reach the network; what is behind it, and who decides, is outside.
EGRESS_SOCKET = "/run/egress/egress.sock"
EGRESS_PORT = 3128
EGRESS_BACKLOG = 64
MAX_SERVERS = 16
MAX_LAST_WORDS_BYTES = 2000

Answer = dict[str, object]
Arguments = Mapping[str, object]

# By tool: each argument's type, and whether it must be there.
ARGUMENTS: Mapping[str, Mapping[str, tuple[type, bool]]] = {
    "shell": {"command": (str, True), "timeout_ms": (int, False)},
    "read_file": {"path": (str, True), "offset": (int, False), "max_bytes": (int, False)},
    "write_file": {"path": (str, True), "content": (str, True)},
    "list_files": {"path": (str, False)},
    "server_start": {"server": (str, True), "command": (list, True), "environment": (dict, True)},
    "server_exchange": {"server": (str, True), "content": (str, True), "wait_ms": (int, True)},
    "server_stop": {"server": (str, True)},
}


class BadArguments(Exception):
    """The text says which argument is wrong, for the agent to read."""


def checked(arguments: object, wanted: Mapping[str, tuple[type, bool]]) -> Arguments:
    """The arguments, if they are what `wanted` says: name to type and whether it must be there."""
    if not isinstance(arguments, dict):
        raise BadArguments("the arguments must be a JSON object")
    given = cast("dict[str, object]", arguments)
    for name, value in given.items():
        if name not in wanted:
            raise BadArguments(f"there is no argument {name[:80]!r}; known: {', '.join(wanted)}")
        check_value(name, value, wanted[name][0])
    missing = [name for name, (_, required) in wanted.items() if required and name not in given]
    if missing:
        raise BadArguments(f"the argument {missing[0]!r} is missing")
    return given


def check_value(name: str, value: object, kind: type) -> None:
    """Raises `BadArguments` unless `value` is a text without NUL, or a count, as `kind` wants."""
    if kind in (list, dict):
        if not is_texts(value, kind):
            raise BadArguments(f"{name!r} must hold texts without NUL characters")
    elif kind is str:
        if not isinstance(value, str):
            raise BadArguments(f"{name!r} must be a string")
        if name != "content" and "\0" in value:
            raise BadArguments(f"{name!r} must not hold a NUL character")
    elif not is_count(value):
        raise BadArguments(f"{name!r} must be a whole number from 0")


def is_texts(value: object, kind: type) -> bool:
    """Whether it is a list of texts that is not empty, or an object of texts, as `kind` wants."""
    if not isinstance(value, kind):
        return False
    given = cast("list[object] | dict[object, object]", value)
    texts = [*given, *given.values()] if isinstance(given, dict) else given
    return (bool(texts) or kind is dict) and all(isinstance(text, str) and "\0" not in text for text in texts)


def is_count(value: object) -> bool:
    """Whether JSON Schema calls it an integer and it is one we can count with; 2.0 is an integer to both."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= MAX_SAFE_INTEGER and value == int(value)


def cut(raw: bytes, limit: int) -> tuple[str, bool]:
    """The bytes as text of at most `limit` bytes in UTF-8, and whether something had to go.

    What is not UTF-8 becomes U+FFFD, which is three bytes where there was one.
    """
    text = raw[:limit].decode("utf-8", "replace").encode("utf-8")
    return text[:limit].decode("utf-8", "ignore"), len(raw) > limit or len(text) > limit


def answer(status: str, text: str, *, exit_status: int | None = None, truncated: bool = False) -> Answer:
    """An answer without its id."""
    return {"status": status, "text": text, "exit_status": exit_status, "truncated": truncated}


class Output:
    """What a command wrote: the first half of the limit and the last half, never more."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Take a chunk in."""
        self.total += len(chunk)
        room = self.limit // 2 - len(self.head)
        self.head += chunk[:room]
        self.tail += chunk[room:]
        spare = len(self.tail) - (self.limit - self.limit // 2)
        if spare > 0:
            del self.tail[:spare]

    def text(self) -> tuple[str, bool]:
        """The text, and whether something is left out of its middle."""
        left_out = self.total - len(self.head) - len(self.tail)
        if not left_out:
            return cut(bytes(self.head + self.tail), self.limit)
        marker = f"\n[{left_out} bytes left out]\n"[: self.limit]
        half = (self.limit - len(marker)) // 2
        head, _ = cut(bytes(self.head), half)
        tail, _ = cut(bytes(self.tail[len(self.tail) - half :]), half)
        return head + marker + tail, True


class Server:
    """A program that is kept running, and spoken to over its standard input and output."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.pipes = [pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe is not None]
        self.into, self.out, self.err = (pipe.fileno() for pipe in self.pipes)
        self.last_words = bytearray()
        for pipe in self.pipes:
            os.set_blocking(pipe.fileno(), False)

    def exchange(self, data: bytes, limit: int, *, write_by: float, read_by: float) -> tuple[bytes, bool]:
        """Write all of `data`; then what it says up to the next line's end, and whether it has ended.

        Reads no more than `limit`; what it says beyond waits in its pipe, and so does the program.
        """
        said, left, ended = bytearray(), memoryview(data), False
        with selectors.DefaultSelector() as watched:
            watched.register(self.out, selectors.EVENT_READ)
            watched.register(self.err, selectors.EVENT_READ)
            watched.register(self.into, selectors.EVENT_WRITE)
            while not ended and (left or not (b"\n" in said or len(said) >= limit)):
                wait = (write_by if left else read_by) - time.monotonic()
                ready = {key.fd for key, _ in watched.select(max(wait, 0))}
                if self.into in ready:
                    left = left[self.write(left) :]
                    if not left:
                        watched.unregister(self.into)
                if self.err in ready and not self.listen():
                    watched.unregister(self.err)
                if self.out in ready and len(said) < limit:
                    said += (chunk := os.read(self.out, limit - len(said)))
                    ended = not chunk
                if wait <= 0:
                    break
        if left and not ended:
            raise OSError(errno.ETIMEDOUT, "the server does not read what it is sent")
        return bytes(said), ended

    def write(self, data: memoryview) -> int:
        """How much of it the program's pipe took; all of it where nobody reads any more, which its output shows."""
        try:
            return os.write(self.into, data)
        except BrokenPipeError:
            return len(data)

    def listen(self) -> bool:
        """Keep the end of what it says on the side; False when nothing more comes."""
        chunk = os.read(self.err, CHUNK_BYTES)
        self.last_words += chunk
        del self.last_words[:-MAX_LAST_WORDS_BYTES]
        return bool(chunk)

    def listen_out(self) -> None:
        """Keep its last words, which are in the pipe by now."""
        try:
            while self.listen():
                continue
        except BlockingIOError:
            # A program that it started holds the other end.
            return

    def stop(self) -> int | None:
        """End it and what it started in its session; its exit status."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        for pipe in self.pipes:
            pipe.close()
        return self.process.wait()


class Agent:
    """Serves calls from one pair of file descriptors; `root` is the workspace."""

    def __init__(self, root: Path, source: int, sink: int) -> None:
        self.root = root
        self.source = source
        self.sink = sink
        self.buffer = bytearray()
        self.selector = selectors.DefaultSelector()
        self.tools: dict[str, Callable[[Arguments, int, int], Answer]] = {
            "shell": self.shell,
            "read_file": self.read_file,
            "write_file": self.write_file,
            "list_files": self.list_files,
            "server_start": self.server_start,
            "server_exchange": self.server_exchange,
            "server_stop": self.server_stop,
        }
        self.servers: dict[str, Server] = {}

    def serve(self) -> None:
        """Answer every line until the input ends."""
        self.selector.register(self.source, selectors.EVENT_READ)
        self.send(0, answer("ok", "ready"))
        while (line := self.next_line()) is not None:
            self.serve_line(line)

    def serve_line(self, line: bytes) -> None:
        """Answer one request; a fault of a tool is an answer as well."""
        request = json.loads(line)
        tool = self.tools.get(request["tool"], self.unknown_tool)
        try:
            result = tool(request["arguments"], request["timeout_ms"], request["max_output_bytes"])
        except BadArguments as error:
            result = answer("error", str(error))
        except OSError as error:
            result = answer("error", f"{error.strerror or 'failed'}: {error.filename or ''}".rstrip(": "))
        except (ValueError, RecursionError) as error:
            result = answer("error", str(error)[:400])
        self.send(request["id"], result)

    def send(self, call_id: int, result: Answer) -> None:
        """Write one line."""
        line = json.dumps({"id": call_id, **result}, ensure_ascii=False, separators=(",", ":"))
        view = memoryview(line.encode("utf-8", "replace") + b"\n")
        while view:
            view = view[os.write(self.sink, view) :]

    def next_line(self) -> bytes | None:
        """The next request, or None at the end of the input. Output of earlier background commands is thrown away."""
        while b"\n" not in self.buffer:
            for key, _ in self.selector.select():
                if key.fd != self.source:
                    self.discard(key.fd)
                elif not self.fill():
                    return None
        line, _, rest = self.buffer.partition(b"\n")
        self.buffer = rest
        return bytes(line)

    def fill(self) -> bool:
        """Read some input; False at its end, or when a line is longer than any caller writes."""
        chunk = os.read(self.source, CHUNK_BYTES)
        self.buffer += chunk
        return bool(chunk) and len(self.buffer) <= MAX_REQUEST_BYTES

    def discard(self, pipe: int) -> None:
        """Read and forget, so that a background command never blocks on a full pipe."""
        if not os.read(pipe, CHUNK_BYTES):
            self.selector.unregister(pipe)
            os.close(pipe)

    def shell(self, arguments: Arguments, timeout_ms: int, limit: int) -> Answer:
        """Run a command in a session of its own. Background processes outlive the call, not a timeout."""
        arguments = checked(arguments, ARGUMENTS["shell"])
        timeout_ms = min(timeout_ms, whole(arguments.get("timeout_ms"), timeout_ms))
        process, pipe = start_shell(text_of(arguments["command"]), self.root)
        output = Output(limit)
        ended = self.watch(process, pipe, output, time.monotonic() + timeout_ms / 1000)
        text, truncated = output.text()
        if not ended:
            return answer("timeout", text, truncated=truncated)
        status = process.wait()
        return answer("ok" if status == 0 else "error", text, exit_status=status, truncated=truncated)

    def watch(self, process: "subprocess.Popen[bytes]", pipe: int, output: Output, deadline: float) -> bool:
        """Collect output until the command ends; False when it had to be killed."""
        watched = selectors.DefaultSelector()
        exit_fd = os.pidfd_open(process.pid)
        watched.register(pipe, selectors.EVENT_READ)
        watched.register(exit_fd, selectors.EVENT_READ)
        ended, open_pipe = False, True
        try:
            while (left := deadline - time.monotonic()) > 0 and not (ended and not open_pipe):
                ready = {key.fd for key, _ in watched.select(left)}
                if pipe in ready and not take(pipe, output):
                    watched.unregister(pipe)
                    open_pipe = False
                if exit_fd in ready:
                    watched.unregister(exit_fd)
                    ended, deadline = True, min(deadline, time.monotonic() + DRAIN_MS / 1000)
        finally:
            watched.close()
            os.close(exit_fd)
        if not ended:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if open_pipe:
            self.selector.register(pipe, selectors.EVENT_READ)
        else:
            os.close(pipe)
        return ended

    def unknown_tool(self, arguments: Arguments, timeout_ms: int, limit: int) -> Answer:
        """The answer to a call of a tool that is not here."""
        return answer("error", f"there is no such tool; known: {', '.join(self.tools)}")

    def read_file(self, arguments: Arguments, timeout_ms: int, limit: int) -> Answer:
        """Part of a regular file as text; `truncated` says that the file goes on."""
        arguments = checked(arguments, ARGUMENTS["read_file"])
        wanted = min(whole(arguments.get("max_bytes"), limit), limit)
        with self.open_regular(text_of(arguments["path"]), os.O_RDONLY) as descriptor:
            raw = read_at(descriptor.fd, whole(arguments.get("offset"), 0), wanted + 1)
        text, inflated = cut(raw[:wanted], limit)
        return answer("ok", text, truncated=inflated or len(raw) > wanted)

    def write_file(self, arguments: Arguments, timeout_ms: int, limit: int) -> Answer:
        """Replace or make a file; missing folders on its way are made."""
        arguments = checked(arguments, ARGUMENTS["write_file"])
        raw = text_of(arguments["content"]).encode("utf-8", "replace")
        (self.root / text_of(arguments["path"])).parent.mkdir(parents=True, exist_ok=True)
        with self.open_regular(text_of(arguments["path"]), os.O_WRONLY | os.O_CREAT) as descriptor:
            os.ftruncate(descriptor.fd, 0)
            written = 0
            while written < len(raw):
                written += os.write(descriptor.fd, raw[written:])
        return answer("ok", f"wrote {len(raw)} bytes to {text_of(arguments['path'])}")

    def list_files(self, arguments: Arguments, timeout_ms: int, limit: int) -> Answer:
        """One line per entry of a folder: folders with a slash, files with their size."""
        arguments = checked(arguments, ARGUMENTS["list_files"])
        with os.scandir(self.root / text_of(arguments.get("path", "."))) as entries:
            found = list(islice(entries, MAX_LIST_ENTRIES + 1))
        lines = sorted(describe(entry) for entry in found[:MAX_LIST_ENTRIES])
        text, shortened = cut("\n".join(lines).encode("utf-8", "replace"), limit)
        return answer("ok", text, truncated=shortened or len(found) > MAX_LIST_ENTRIES)

    def server_start(self, arguments: Arguments, timeout_ms: int, limit: int) -> Answer:
        """Start a program; one of the same name is ended first."""
        given = checked(arguments, ARGUMENTS["server_start"])
        name, command = text_of(given["server"]), cast("list[str]", given["command"])
        environment = os.environ | cast("dict[str, str]", given["environment"])
        self.forget_server(name)
        if len(self.servers) >= MAX_SERVERS:
            raise BadArguments(f"there are {MAX_SERVERS} servers already")
        self.servers[name] = Server(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=self.root,
                env=environment,
                start_new_session=True,
            )
        )
        offer_to_oom(self.servers[name].process.pid)
        return answer("ok", "started")

    def server_exchange(self, arguments: Arguments, timeout_ms: int, limit: int) -> Answer:
        """Send text to a program and wait for a line of its; the bytes it said, in base64. Its end is an error."""
        given = checked(arguments, ARGUMENTS["server_exchange"])
        server = self.servers.get(text_of(given["server"]))
        if server is None:
            raise BadArguments("no such server runs")
        data = text_of(given["content"]).encode("utf-8", "replace")
        now = time.monotonic()
        said, ended = server.exchange(
            data, limit // 4 * 3, write_by=now + timeout_ms / 1000, read_by=now + whole(given["wait_ms"], 0) / 1000
        )
        if said or not ended:
            return answer("ok", base64.b64encode(said).decode("ascii"))
        server.listen_out()
        text, _ = cut(bytes(server.last_words), limit)
        return answer("error", text, exit_status=self.forget_server(text_of(given["server"])))

    def server_stop(self, arguments: Arguments, timeout_ms: int, limit: int) -> Answer:
        """End a program."""
        given = checked(arguments, ARGUMENTS["server_stop"])
        return answer("ok", "", exit_status=self.forget_server(text_of(given["server"])))

    def forget_server(self, name: str) -> int | None:
        """End a program and what it started; its exit status, where there was one."""
        server = self.servers.pop(name, None)
        return None if server is None else server.stop()

    def open_regular(self, path: str, flags: int) -> "Descriptor":
        """Open a regular file and nothing else: a pipe would block and a device never ends."""
        full = self.root / path
        fd = os.open(full, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", str(full))
        return Descriptor(fd)


class Descriptor:
    """A file descriptor that is closed at the end of its block."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __enter__(self) -> "Descriptor":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def start_shell(command: str, root: Path) -> tuple["subprocess.Popen[bytes]", int]:
    """The running command, leader of a session of its own, and the end of the pipe that its output comes from."""
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    pipe, child_end = os.pipe()
    try:
        process = subprocess.Popen(
            [shell, "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=child_end,
            stderr=child_end,
            cwd=root,
            start_new_session=True,
        )
    except BaseException:
        os.close(pipe)
        raise
    finally:
        os.close(child_end)
    offer_to_oom(process.pid)
    return process, pipe


def offer_to_oom(pid: int) -> None:
    """When the box's memory is used up, the kernel is to end the command and not this agent."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as score:
            score.write(OOM_SCORE)
    except OSError:
        # It has ended already, or this is no box of ours to say so in.
        return


def take(pipe: int, output: Output) -> bool:
    """Move what is in the pipe to the output; False at its end."""
    chunk = os.read(pipe, CHUNK_BYTES)
    output.add(chunk)
    return bool(chunk)


def read_at(fd: int, offset: int, count: int) -> bytes:
    """Up to `count` bytes from `offset`."""
    raw = bytearray()
    while len(raw) < count and (chunk := os.pread(fd, count - len(raw), offset + len(raw))):
        raw += chunk
    return bytes(raw)


def describe(entry: "os.DirEntry[str]") -> str:
    """One line about a directory entry."""
    if entry.is_symlink():
        return f"{entry.name} (link)"
    if entry.is_dir():
        return f"{entry.name}/"
    return f"{entry.name} ({entry.stat(follow_symlinks=False).st_size} bytes)"


def text_of(value: object) -> str:
    """A checked argument as the text it is."""
    return value if isinstance(value, str) else ""


def whole(value: object, default: int) -> int:
    """A checked argument as the number it is, or the default."""
    return int(value) if isinstance(value, int | float) else default


def hand_out_proxy_port(door: str) -> None:
    """Listen where the box's programs look for a proxy, and give the socket away: it is answered outside.

    Our own end is closed before any program runs, so that none can get hold of it.
    """
    import socket  # noqa: PLC0415  two milliseconds that boxes without a network need not wait for

    with (
        socket.create_server(("127.0.0.1", EGRESS_PORT), backlog=EGRESS_BACKLOG) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wall,
    ):
        wall.connect(door)
        socket.send_fds(wall, [b"\0"], [listener.fileno()])


def main(root: str) -> None:
    """Serve stdin and stdout."""
    # A command of the same uid could otherwise write our memory, or answers of its own to our stdout.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.path.exists(EGRESS_SOCKET):
        hand_out_proxy_port(EGRESS_SOCKET)
    Agent(Path(root), 0, 1).serve()


if __name__ == "__main__":
    main(sys.argv[1])
