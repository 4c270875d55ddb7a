"""Artifacts as rows: each is its `artifact.created`, in the transaction of that event (house rule 1)."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, cast

import orjson
from sqlalchemy import Connection, bindparam, insert, text, update

from turnkeeper.events.envelope import NewEvent
from turnkeeper.events.files import ARTIFACT_CREATED
from turnkeeper.store.file_tables import artifacts, project_storage

_MORE: Final = (
    update(project_storage)
    .where(project_storage.c.project_id == bindparam("of_project"))
    .values(bytes=project_storage.c.bytes + bindparam("more"))
)
_FIRST: Final = text("INSERT INTO project_storage (project_id, bytes) VALUES (:of_project, 0) ON CONFLICT DO NOTHING")


def keep_artifacts(
    conn: Connection, now: datetime, new: Iterable[NewEvent], *, project_id: str, session_id: str
) -> None:
    """A row for each event that tells of an artifact."""
    rows = [_row(event, now, project_id, session_id) for event in new if event.type == ARTIFACT_CREATED]
    if rows:
        conn.execute(insert(artifacts), rows)
        count_storage(conn, project_id, sum(row["bytes"] for row in rows))


def count_storage(conn: Connection, project_id: str, more: int) -> None:
    """Counts bytes that a project keeps from now on, or (below zero) keeps no more; locks the count."""
    wanted = {"of_project": project_id, "more": more}
    if not conn.execute(_MORE, wanted).rowcount:
        conn.execute(_FIRST, {"of_project": project_id})
        conn.execute(_MORE, wanted)


def _row(event: NewEvent, now: datetime, project_id: str, session_id: str) -> dict[str, Any]:
    data = cast("dict[str, Any]", orjson.loads(event.data))
    return {
        "id": data["artifact_id"],
        "project_id": project_id,
        "session_id": session_id,
        **{name: data[name] for name in ("turn_id", "name", "path", "media_type", "bytes", "sha256", "kind")},
        "text": event.content,
        "created_at": now,
    }
