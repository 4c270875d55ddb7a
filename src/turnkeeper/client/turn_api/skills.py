"""Skills of a project (contract 2.13)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from turnkeeper.client.turn_api.bodies import making, path_of, upload_of
from turnkeeper.client.turn_api.connection import AsyncConnection
from turnkeeper.client.turn_api.pages import listed
from turnkeeper.client.turn_api.retries import Call
from turnkeeper.client.turn_api.views import Skill


class AsyncSkills:
    """Skills that agents name; a version never changes and is never deleted."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def upload(
        self, content: bytes | Path, *, name: str | None = None, idempotency_key: str | None = None
    ) -> Skill:
        """The next version of the skill in an archive (zip or tar), once; the newest one's archive is that version.

        `name` is the archive's, not the skill's. Raises `RequestInvalid` (`skill_refused`), `Conflict` (`skills_full`),
        `OSError`.
        """
        upload = upload_of(content, name=name, media_type="application/octet-stream", purpose=None, hashed=False)
        call = making(path_of("skills"), None, idempotency_key, upload=upload)
        return Skill((await self._connection.ask(call)).members)

    async def get(self, skill_id: str) -> Skill:
        """One version of a skill. Raises `NotFound`."""
        return Skill((await self._connection.ask(Call("GET", path_of("skills", skill_id), repeatable=True))).members)

    async def list(self, *, limit: int | None = None, order: Literal["asc", "desc"] = "desc") -> AsyncIterator[Skill]:
        """The versions of the project's skills, newest first unless `order` says otherwise."""
        call = Call("GET", path_of("skills"), query={"order": order}, repeatable=True)
        async for members in listed(self._connection, call, limit=limit):
            yield Skill(members)
