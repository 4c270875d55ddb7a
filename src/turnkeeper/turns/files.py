"""Files that apps upload and artifacts that turns leave (contract 2.6).

Pure. Answers for what is kept of them and by whom it may be read; their bytes are `contents`' business.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.creations import Created
from turnkeeper.turns.idempotency import KeyedRequest
from turnkeeper.turns.ports import Page, PageRequest
from turnkeeper.turns.turn_files import INPUT_FOLDER, TurnFile, free_name

DEFAULT_MEDIA_TYPE: Final = "application/octet-stream"
TEXT_MEDIA_TYPE: Final = "text/plain; charset=utf-8"
PURPOSES: Final = ("turn_input",)
MAX_PROJECT_BYTES: Final = 10 * 1024**3
"""What the files and artifacts of one project may take, unless a setting says otherwise."""

ArtifactKind: TypeAlias = Literal["output", "tool_output", "final_text", "log"]


class FileNotReady(TurnkeeperError):
    """A turn names a file that is not there, is another project's, or was deleted; `detail` has the pointer."""

    code = "file_not_ready"


class StorageFull(TurnkeeperError):
    """The project's files and artifacts would take more than they may; `detail` names the limit."""

    code = "storage_full"


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file whose bytes are in the content store already."""

    project_id: str
    name: str
    purpose: str
    media_type: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class File:
    """A file of an app, ready to be used."""

    id: str
    project_id: str
    name: str
    purpose: str
    media_type: str
    size_bytes: int
    sha256: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something that a turn left. `path` is where the agent had it; None for what never was a file."""

    id: str
    turn_id: str
    session_id: str
    name: str
    path: str | None
    media_type: str
    size_bytes: int
    sha256: str
    kind: ArtifactKind
    created_at: datetime
    expires_at: datetime | None


class FileStore(Protocol):
    """What the API, the worker and the sweep need. Every method is one transaction."""

    async def add_file(self, new: NewFile, request: KeyedRequest | None = None) -> Created[File]:
        """The file with its `file.uploaded`, or the one that the request's key stands for.

        Raises `StorageFull`, `IdempotencyKeyReused`, `IdempotencyInProgress`, and `IdempotencyResourceDeleted` where
        the file of the key was deleted.
        """
        ...

    async def file(self, file_id: str) -> File:
        """Raises `NotFound`."""
        ...

    async def files(self, project_id: str, page: PageRequest) -> Page[File]: ...

    async def delete_file(self, file_id: str) -> File:
        """The file that was; it is gone for everybody but turns that have begun with it. Raises `NotFound`."""
        ...

    async def artifact(self, artifact_id: str) -> Artifact:
        """Raises `NotFound`."""
        ...

    async def artifacts(self, turn_id: str, page: PageRequest) -> Page[Artifact]: ...

    async def artifact_text(self, artifact_id: str) -> str | None:
        """The text of an artifact that is one; None where its bytes are in the content store. Raises `NotFound`."""
        ...

    async def delete_artifact(self, artifact_id: str) -> Artifact:
        """The artifact that was. Raises `NotFound`."""
        ...

    async def room(self, project_id: str) -> int:
        """How many bytes a project may still keep."""
        ...

    async def known_outputs(self, session_id: str) -> frozenset[tuple[str | None, str]]:
        """Path and SHA-256 of every output that the session's turns have left; the path is None once deleted."""
        ...

    async def unnamed(self, sha256s: Collection[str]) -> frozenset[str]:
        """Those that no file, no artifact, no skill and no open turn names."""
        ...


def turn_files(files: Iterable[File]) -> tuple[TurnFile, ...]:
    """The files as a turn has them, each at a path of its own."""
    taken: set[str] = set()
    return tuple(_turn_file(file, taken) for file in files)


def _turn_file(file: File, taken: set[str]) -> TurnFile:
    path = f"{INPUT_FOLDER}/{free_name(file.name, taken)}"
    return TurnFile(file.id, file.name, path, file.media_type, file.size_bytes, file.sha256)
