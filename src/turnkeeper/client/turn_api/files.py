"""Files of a project, and what turns left (contract 2.6)."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from turnkeeper.client.turn_api.bodies import making, path_of, upload_of
from turnkeeper.client.turn_api.connection import AsyncConnection
from turnkeeper.client.turn_api.documents import AnswerUnreadable
from turnkeeper.client.turn_api.file_views import Artifact, File
from turnkeeper.client.turn_api.pages import listed
from turnkeeper.client.turn_api.retries import Call


class AsyncFiles:
    """Files that turns can be posted with."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def upload(
        self,
        content: bytes | Path,
        *,
        name: str | None = None,
        media_type: str = "application/octet-stream",
        purpose: str | None = None,
        idempotency_key: str | None = None,
    ) -> File:
        """Uploads bytes, or a file of this machine, once; its hash is checked when it arrives. It is held in memory.

        Raises `RequestInvalid` (`body_too_large`, `storage_full`), `OSError`.
        """
        upload = upload_of(content, name=name, media_type=media_type, purpose=purpose)
        call = making(path_of("files"), None, idempotency_key, upload=upload)
        return File((await self._connection.ask(call)).members)

    async def get(self, file_id: str) -> File:
        """The file. Raises `NotFound`."""
        return File((await self._connection.ask(Call("GET", path_of("files", file_id), repeatable=True))).members)

    async def list(self, *, limit: int | None = None, order: Literal["asc", "desc"] = "desc") -> AsyncIterator[File]:
        """The project's files, newest first unless `order` says otherwise."""
        call = Call("GET", path_of("files"), query={"order": order}, repeatable=True)
        async for members in listed(self._connection, call, limit=limit):
            yield File(members)

    async def delete(self, file_id: str) -> None:
        """Deletes the file. Turns that were accepted with it keep it until they end."""
        await self._connection.ask(Call("DELETE", path_of("files", file_id)))

    async def artifact(self, artifact_id: str) -> Artifact:
        """Something that a turn left. Raises `NotFound`."""
        call = Call("GET", path_of("artifacts", artifact_id), repeatable=True)
        return Artifact((await self._connection.ask(call)).members)

    async def delete_artifact(self, artifact_id: str) -> None:
        """Deletes an artifact before its session's time is over."""
        await self._connection.ask(Call("DELETE", path_of("artifacts", artifact_id)))

    async def download(self, what: File | Artifact) -> bytes:
        """The bytes, held against their hash. Raises `NotFound`, `AnswerUnreadable` for other bytes."""
        kind = "artifacts" if isinstance(what, Artifact) else "files"
        call = Call("GET", path_of(kind, what.id, "content"), repeatable=True, raw=True)
        content = (await self._connection.ask(call)).content
        if hashlib.sha256(content).hexdigest() != what.sha256:
            raise AnswerUnreadable("the bytes are not the ones that the server speaks of")
        return content
