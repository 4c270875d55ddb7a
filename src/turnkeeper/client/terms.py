"""Saved ServerHellos (CORE-HS-20): what was negotiated, kept as the Guardian signed it.

Answers for keeping the signed answer and the id it answers. Must never keep the terms without their signature: the
posture is in them, and whoever can edit a file must not be able to edit that.
"""

import json
import os
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID

from turnkeeper.acs import AnswerRejected, ObservedSession, ServerHello
from turnkeeper.acs.strictjson import JsonRejected, parse_object

MAX_REMEMBERED: Final = 10_000
MAX_FILE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SavedTerms:
    """A signed answer to a hello, and the request_id of that hello."""

    request_id: str
    answer: bytes


class TermsStore(Protocol):
    """Where signed ServerHellos are kept."""

    def load(self, session_id: str) -> SavedTerms | None:
        """What was saved for a session; None where nothing usable was."""
        ...

    def save(self, session_id: str, saved: SavedTerms) -> None:
        """Keeps it, in place of what was there."""
        ...

    def forget(self, session_id: str) -> None:
        """Drops it; nothing happens where nothing is."""
        ...


class MemoryTerms:
    """Terms for as long as the process lives; past `MAX_REMEMBERED` sessions the oldest is forgotten."""

    def __init__(self) -> None:
        self._saved: OrderedDict[str, SavedTerms] = OrderedDict()

    def load(self, session_id: str) -> SavedTerms | None:
        """What was saved."""
        return self._saved.get(session_id)

    def save(self, session_id: str, saved: SavedTerms) -> None:
        """Keeps it."""
        self._saved[session_id] = saved
        self._saved.move_to_end(session_id)
        if len(self._saved) > MAX_REMEMBERED:
            self._saved.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """Drops it."""
        self._saved.pop(session_id, None)


class FileTerms:
    """Terms in a folder, one file per session: for agents whose hooks are processes of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, session_id: str) -> SavedTerms | None:
        """What was saved; None for a file that cannot be read or says something else."""
        try:
            with self._path(session_id).open("rb") as stream:
                members = parse_object(stream.read(MAX_FILE_BYTES + 1))
        except (OSError, JsonRejected):
            return None
        request_id, answer = members.get("request_id"), members.get("answer")
        if not isinstance(request_id, str) or not isinstance(answer, str):
            return None
        return SavedTerms(request_id, answer.encode())

    def save(self, session_id: str, saved: SavedTerms) -> None:
        """Writes the file in one step, for its owner only. Raises `OSError`."""
        path = self._path(session_id)
        content = json.dumps({"request_id": saved.request_id, "answer": saved.answer.decode()}).encode()
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".terms-")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise

    def forget(self, session_id: str) -> None:
        """Removes the file."""
        self._path(session_id).unlink(missing_ok=True)

    def _path(self, session_id: str) -> Path:
        return self._folder / f"{UUID(session_id)}.json"


def verified_terms(observed: ObservedSession, saved: SavedTerms) -> ServerHello:
    """The terms in a saved answer, proven again with the session's key. Raises `AnswerRejected`."""
    answer = observed.answer(saved.answer, request_id=saved.request_id)
    if not isinstance(answer, ServerHello):
        raise AnswerRejected("the saved answer is no ServerHello")
    return answer
