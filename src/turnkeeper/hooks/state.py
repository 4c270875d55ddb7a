"""What the hooks of one client session share, though each is a process of its own: a file under a lock.

Answers for one hook of a session at a time, for a state that is whole whenever a process dies, and for files that only
their owner can read. Must never trust the client's session id with a file name.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from turnkeeper.errors import TurnkeeperError

MAX_CALLS: Final = 1_000
MAX_WAITING: Final = 100

_LOCK_POLL_S: Final = 0.02


class HookStateUnusable(TurnkeeperError):
    """The state of a session cannot be read or written."""

    code = "hook_state_unusable"


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call that was allowed and has not reported yet."""

    request_id: str | None
    asked_at_ms: int


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A tool call that somebody is asked about, for the time when the agent tries it again."""

    kind: str
    turn_id: str | None
    payload: Mapping[str, object]
    request_id: str
    question: str
    details: Mapping[str, object]
    expires_at_ms: int
    on_expiry: str
    polled: bool


@dataclass(slots=True)
class SessionState:
    """One client session at the Guardian. `guardian_session` None: not begun. `counts` None: not known."""

    guardian_session: str | None = None
    refusal: str | None = None
    turn: str | None = None
    counts: tuple[int, int] | None = None
    calls: dict[str, OpenCall] = field(default_factory=dict[str, OpenCall])
    waiting: dict[str, WaitingCall] = field(default_factory=dict[str, WaitingCall])

    def opened(self, call_id: str, call: OpenCall) -> None:
        """Keeps a call until it reports; past `MAX_CALLS` the oldest is forgotten."""
        self.calls[call_id] = call
        while len(self.calls) > MAX_CALLS:
            del self.calls[next(iter(self.calls))]

    def waits(self, digest: str, call: WaitingCall) -> None:
        """Keeps a call that waits; past `MAX_WAITING` the oldest is forgotten, to be asked anew."""
        self.waiting[digest] = call
        while len(self.waiting) > MAX_WAITING:
            del self.waiting[next(iter(self.waiting))]


class SessionStates:
    """The states of one client's sessions, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def held(self, session: str) -> AsyncGenerator[SessionState]:
        """The state of a session, alone; what was changed is kept, also when the body fails.

        Raises `HookStateUnusable`.
        """
        name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        path = self._folder / f"{name}.json"
        async with _locked(self._folder / f"{name}.lock"):
            state = _load(path)
            try:
                yield state
            finally:
                _save(path, state)

    def forget(self, session: str) -> None:
        """Drops a session that is over. Its lock stays: another process may be waiting for it."""
        name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        (self._folder / f"{name}.json").unlink(missing_ok=True)


@asynccontextmanager
async def _locked(path: Path) -> AsyncGenerator[None]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise HookStateUnusable(f"{path} cannot be opened: {error.strerror}") from error
    try:
        while not _try_lock(descriptor):  # noqa: ASYNC110  another process's lock has no event to wait for
            await asyncio.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _load(path: Path) -> SessionState:
    try:
        document = cast("dict[str, Any]", json.loads(path.read_bytes()))
    except FileNotFoundError:
        return SessionState()
    except (OSError, ValueError) as error:
        raise HookStateUnusable(f"{path} cannot be read: {error}") from error
    try:
        counts = document["counts"]
        return SessionState(
            guardian_session=document["guardian_session"],
            refusal=document["refusal"],
            turn=document["turn"],
            counts=None if counts is None else (counts[0], counts[1]),
            calls={call_id: OpenCall(**call) for call_id, call in document["calls"].items()},
            waiting={digest: WaitingCall(**call) for digest, call in document["waiting"].items()},
        )
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise HookStateUnusable(f"{path} is not a state of this version: {error!r}") from error


def _save(path: Path, state: SessionState) -> None:
    content = json.dumps(asdict(state)).encode()
    name = ""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".state-")
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        Path(name).replace(path)
    except OSError as error:
        if name:
            Path(name).unlink(missing_ok=True)
        raise HookStateUnusable(f"{path} cannot be written: {error.strerror}") from error
