"""Where a driver keeps the boxes' sockets on the host, and how it finds what a dead owner left there.

Each running driver owns one folder and holds a lock on a file beside it for as long as it lives; the kernel gives
the lock up when the process dies, however it dies. Paths are kept short: a unix socket's may have 107 bytes.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from turnkeeper.sandbox.boxes import GATEWAY_SOCKET_NAME, SandboxUnavailable
from turnkeeper.sandbox.cgroups import sweep_groups

MAX_SOCKET_PATH_BYTES: Final = 107
_OWNER_HEX: Final = 8
_LOCK_SUFFIX: Final = ".lock"
_GROUPS_SUFFIX: Final = ".groups"


class StateDir:
    """The folder of one running driver. `open` it before anything else, `close` it last."""

    def __init__(self, wanted: Path) -> None:
        self._base = short_base(wanted)
        self._lock: int | None = None
        self._own: Path | None = None
        self._made = 0

    def open(self) -> int:
        """Make our folder and remove those of dead owners; how many those were. Raises `SandboxUnavailable`."""
        try:
            _make_private(self._base)
            while self._lock is None:
                self._own = self._base / os.urandom(_OWNER_HEX // 2).hex()
                self._lock = _take_lock(_lock_of(self._own))
            self._own.mkdir(mode=0o700) if self._own is not None else None
            return self._sweep()
        except OSError as error:
            raise SandboxUnavailable(f"{self._base} cannot be used for sockets: {error.strerror}") from error

    @property
    def owner(self) -> str:
        """The name of our folder, which no other running driver has. Raises `SandboxUnavailable`."""
        if self._own is None:
            raise SandboxUnavailable("the driver is not started")
        return self._own.name

    def remember_groups(self, parents: Iterable[Path]) -> None:
        """Write down where our control groups are, for whoever sweeps after us. Raises `SandboxUnavailable`."""
        try:
            self._base.joinpath(self.owner + _GROUPS_SUFFIX).write_text("".join(f"{parent}\n" for parent in parents))
        except OSError as error:
            raise SandboxUnavailable(f"{self._base} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Remove our folder and give up the lock."""
        if self._lock is None or self._own is None:
            return
        _remove(self._own)
        os.close(self._lock)
        self._lock = None

    def socket_dir(self) -> Path:
        """A fresh folder for one box's sockets. Raises `SandboxUnavailable`."""
        if self._own is None:
            raise SandboxUnavailable("the driver is not started")
        self._made += 1
        made = self._own / format(self._made, "x")
        try:
            made.mkdir()
            # Whoever is in the box needs to pass; the folders above keep everybody else out.
            made.chmod(0o755)
        except OSError as error:
            raise SandboxUnavailable(f"{made} cannot be made: {error.strerror}") from error
        return made

    def _sweep(self) -> int:
        dead = 0
        for lock_file in self._base.glob("*" + _LOCK_SUFFIX):
            lock = _take_lock(lock_file)
            if lock is not None:
                own = lock_file.with_suffix("")
                sweep_groups(_groups_of(own), own.name)
                _remove(own)
                os.close(lock)
                dead += 1
        return dead


def short_base(wanted: Path) -> Path:
    """`wanted`, or a folder under `/tmp` named after it when a socket below it would have too long a path."""
    base = wanted.absolute()
    longest = base / ("f" * _OWNER_HEX) / "ffffffff" / GATEWAY_SOCKET_NAME
    if len(os.fsencode(longest)) <= MAX_SOCKET_PATH_BYTES:
        return base
    digest = hashlib.sha256(os.fsencode(base)).hexdigest()[:16]
    return Path(f"/tmp/turnkeeper-{os.geteuid()}-{digest}")  # noqa: S108 - made and checked by _make_private


def remove_tree(folder: Path) -> None:
    """Remove a folder that nobody uses any more."""
    shutil.rmtree(folder, ignore_errors=True)


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise SandboxUnavailable(f"{folder} is not a folder of ours", hint="Remove it, or choose another data folder.")
    folder.chmod(0o700)


def _lock_of(own: Path) -> Path:
    return own.with_name(own.name + _LOCK_SUFFIX)


def _groups_of(own: Path) -> list[Path]:
    try:
        return [Path(line) for line in own.with_name(own.name + _GROUPS_SUFFIX).read_text().splitlines()]
    except OSError:
        return []


def _take_lock(path: Path) -> int | None:
    """The locked descriptor, or None when a living owner has it or it was swept while we looked."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and os.fstat(lock).st_ino == path.stat().st_ino:
            return lock
    os.close(lock)
    return None


def _remove(own: Path) -> None:
    remove_tree(own)
    own.with_name(own.name + _GROUPS_SUFFIX).unlink(missing_ok=True)
    _lock_of(own).unlink(missing_ok=True)
