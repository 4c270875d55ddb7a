"""The data dir: where each thing of an installation lies, who holds it, and the keys made on first start.

Everything in it is readable by its owner alone. One process at a time runs turns on it; readers (`verify`, `export`)
and `keys` need no hold. It must never make a key that exists, nor hand out one that was cut short.
"""

import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import orjson

from turnkeeper.clock import Clock, render_time
from turnkeeper.errors import TurnkeeperError

PRIVATE_DIR: Final = 0o700
PRIVATE_FILE: Final = 0o600
KEY_BYTES: Final = 32
MAX_HOLDER_BYTES: Final = 4096


class DataDirInUse(TurnkeeperError):
    """Another process runs turns on this data dir; the message names it."""

    code = "data_dir_in_use"


class DataDirUnusable(TurnkeeperError):
    """The data dir cannot be used as one; the message says what is in the way."""

    code = "data_dir_unusable"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a data dir."""

    pid: int
    command: str
    since: str


@dataclass(frozen=True, slots=True)
class DataDir:
    """The layout below one folder."""

    root: Path

    @property
    def turn_database(self) -> Path:
        """Turns, events, agents, API keys."""
        return self.root / "turnkeeper.db"

    @property
    def guardian_database(self) -> Path:
        """ACS sessions, chain, replay memory, signed answers."""
        return self.root / "guardian" / "guardian.db"

    @property
    def archives(self) -> Path:
        """Archives of sessions that left guardian.db, unless a setting names another folder."""
        return self.root / "guardian" / "archives"

    @property
    def outside_key(self) -> Path:
        """The key of label `default`, for clients at `/acs`."""
        return self.root / "guardian" / "default.key"

    @property
    def platform_key(self) -> Path:
        """The key of label `platform`, for our own sessions, accepted in process only."""
        return self.root / "guardian" / "platform.key"

    @property
    def label_keys(self) -> Path:
        """Further labels for clients at `/acs`, one `LABEL.key` each; `revoked` in it has those that only verify."""
        return self.root / "guardian" / "keys"

    @property
    def cursor_key(self) -> Path:
        """Signs the cursors of lists."""
        return self.root / "cursor.key"

    @property
    def runners_key(self) -> Path:
        """What the tokens of runners' leases are made with."""
        return self.root / "runners.key"

    @property
    def secrets_key(self) -> Path:
        """Seals the secrets of projects."""
        return self.root / "secrets.key"

    @property
    def workspaces(self) -> Path:
        """One folder per session."""
        return self.root / "workspaces"

    @property
    def skills(self) -> Path:
        """What boxes see of the skills of turns that run, one folder per session."""
        return self.root / "skills"

    @property
    def contents(self) -> Path:
        """The bytes of files and artifacts, by their SHA-256; unused where the store is on PostgreSQL."""
        return self.root / "contents"

    @property
    def boxes(self) -> Path:
        """The sandbox driver's own: sockets and marks of running boxes."""
        return self.root / "run"

    @property
    def lock(self) -> Path:
        """Held by the process that runs turns."""
        return self.root / "lock"

    def prepare(self) -> None:
        """Makes what is missing. Raises `DataDirUnusable`."""
        try:
            for folder in (self.root, self.root / "guardian", self.workspaces):
                folder.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
        except OSError as error:
            raise DataDirUnusable(f"{self.root} cannot be a data dir: {error.strerror}") from error

    def require(self) -> None:
        """Raises `DataDirUnusable` when nothing was ever started here."""
        if not self.guardian_database.is_file() and not self.turn_database.is_file():
            raise DataDirUnusable(
                f"{self.root} holds no Turnkeeper data",
                hint="Name the folder that `serve` or `run` used: --data-dir D.",
            )


@contextmanager
def hold(data_dir: DataDir, *, command: str, clock: Clock) -> Generator[None, None, None]:
    """The data dir is ours until the end of the block or of the process. Raises `DataDirInUse` naming the holder."""
    descriptor = os.open(data_dir.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(data_dir) from None
        holder = Holder(pid=os.getpid(), command=command, since=render_time(clock.now()))
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, orjson.dumps(asdict(holder)), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def load_holder(data_dir: DataDir) -> Holder | None:
    """Who wrote the lock file last, if it can be read; whether that process still holds it only `hold` can tell."""
    try:
        document = orjson.loads(data_dir.lock.read_bytes()[:MAX_HOLDER_BYTES])
        return Holder(pid=int(document["pid"]), command=str(document["command"]), since=str(document["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _in_use(data_dir: DataDir) -> DataDirInUse:
    holder = load_holder(data_dir)
    who = f"`{holder.command}` (pid {holder.pid}, since {holder.since})" if holder else "another process"
    return DataDirInUse(
        f"{data_dir.root} is in use by {who}",
        hint="Stop it, or give this command a folder of its own: --data-dir D.",
        detail=dict(asdict(holder)) if holder else None,
    )


def load_or_make_key(path: Path) -> bytes:
    """The key file's bytes, made from the system's random source when there is none.

    A key appears whole or not at all: two processes that start at once agree on one, and a crash leaves none behind.
    Raises `DataDirUnusable`.
    """
    try:
        if not path.exists():
            _make_key(path)
        return path.read_bytes()
    except OSError as error:
        raise DataDirUnusable(f"the key {path} cannot be used: {error.strerror}") from error


def _make_key(path: Path) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(secrets.token_hex(KEY_BYTES).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)


def is_private(path: Path) -> bool:
    """Whether nobody but the owner can read the file or folder."""
    return stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
