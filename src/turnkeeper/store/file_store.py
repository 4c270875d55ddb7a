"""`FileStore` on SQL: every method is one transaction of `store/files.py`."""

from collections.abc import Collection

from turnkeeper.store import files
from turnkeeper.store.idempotency import once
from turnkeeper.store.tx import StoreLimits
from turnkeeper.store.webhook_store import Reads, Writes
from turnkeeper.turns.creations import Created
from turnkeeper.turns.files import Artifact, File, FileStore, NewFile
from turnkeeper.turns.idempotency import KeyedRequest
from turnkeeper.turns.ports import Page, PageRequest


class SqlFileStore(FileStore):
    """Files and artifacts, in the turn store's database."""

    def __init__(self, read: Reads, write: Writes, limits: StoreLimits) -> None:
        self._read = read
        self._write = write
        self._limits = limits

    async def add_file(self, new: NewFile, request: KeyedRequest | None = None) -> Created[File]:
        return await self._write(lambda tx: once(tx, request, lambda tx: files.add_file(tx, new), files.kept_file))

    async def file(self, file_id: str) -> File:
        return await self._read(lambda conn: files.file_by_id(conn, file_id))

    async def files(self, project_id: str, page: PageRequest) -> Page[File]:
        return await self._read(lambda conn: files.list_files(conn, project_id, page))

    async def delete_file(self, file_id: str) -> File:
        return await self._write(lambda tx: files.delete_file(tx, file_id))

    async def artifact(self, artifact_id: str) -> Artifact:
        return await self._read(lambda conn: files.artifact_by_id(conn, artifact_id))

    async def artifacts(self, turn_id: str, page: PageRequest) -> Page[Artifact]:
        return await self._read(lambda conn: files.list_artifacts(conn, turn_id, page))

    async def artifact_text(self, artifact_id: str) -> str | None:
        return await self._read(lambda conn: files.artifact_text(conn, artifact_id))

    async def delete_artifact(self, artifact_id: str) -> Artifact:
        return await self._write(lambda tx: files.delete_artifact(tx, artifact_id))

    async def room(self, project_id: str) -> int:
        used = await self._read(lambda conn: files.stored_bytes(conn, project_id))
        return max(self._limits.project_bytes - used, 0)

    async def known_outputs(self, session_id: str) -> frozenset[tuple[str | None, str]]:
        return await self._read(lambda conn: files.known_outputs(conn, session_id))

    async def unnamed(self, sha256s: Collection[str]) -> frozenset[str]:
        return await self._read(lambda conn: files.unnamed(conn, sha256s))
