"""Files and artifacts in the turn store: made, found, listed, deleted, counted (contract 2.6 and 14).

INVARIANT: what was deleted is a row with an id, a time, a length and a hash; no name and no text of it is left.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Select, Table, Update, bindparam, insert, select, union, update

from turnkeeper.events.files import artifact_deleted, file_changed
from turnkeeper.store.artifact_rows import count_storage
from turnkeeper.store.file_tables import artifacts, files, project_storage
from turnkeeper.store.pages import load_page
from turnkeeper.store.skill_tables import skills
from turnkeeper.store.statements import find
from turnkeeper.store.tables import IS_ACTIVE, IS_QUEUED, sessions, turns
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhooks import append_project_event
from turnkeeper.turns.files import Artifact, File, FileNotReady, NewFile, StorageFull, turn_files
from turnkeeper.turns.idempotency import IdempotencyResourceDeleted
from turnkeeper.turns.ports import NotFound, Page, PageRequest
from turnkeeper.turns.turn_files import TurnFile, parse_turn_files

NO_FILES: Final = "[]"
_GONE_FILE: Final = {"name": "", "media_type": ""}
_GONE_ARTIFACT: Final = {"name": "", "path": None, "text": None}
_COLUMNS: Final = tuple(column for column in artifacts.c if column is not artifacts.c.text)
_ARTIFACTS: Final[Select[Any]] = (
    select(*_COLUMNS, sessions.c.retention_days, sessions.c.last_active_at)
    .join(sessions, sessions.c.id == artifacts.c.session_id)
    .where(artifacts.c.deleted_at.is_(None))
)


def add_file(tx: Tx, new: NewFile) -> File:
    """The file with its `file.uploaded`. Raises `StorageFull`."""
    _require_room(tx, new)
    values: dict[str, object] = {
        "id": tx.ids.new("fil"),
        "project_id": new.project_id,
        "name": new.name,
        "purpose": new.purpose,
        "media_type": new.media_type,
        "bytes": new.size_bytes,
        "sha256": new.sha256,
        "created_at": tx.now,
    }
    file = _to_file(tx.conn.execute(insert(files).returning(files), values).mappings().one())
    _tell(tx, "file.uploaded", file)
    return file


def kept_file(conn: Connection, file_id: str) -> File:
    """The file that a key stands for. Raises `IdempotencyResourceDeleted`."""
    try:
        return file_by_id(conn, file_id)
    except NotFound as error:
        raise IdempotencyResourceDeleted(file_id) from error


def file_by_id(conn: Connection, file_id: str) -> File:
    """Raises `NotFound`; also for a file that was deleted."""
    row = find(conn, files, id=file_id)
    if row is None or row["deleted_at"] is not None:
        raise NotFound(f"there is no file {file_id}")
    return _to_file(row)


def list_files(conn: Connection, project_id: str, page: PageRequest) -> Page[File]:
    """A page of a project's files."""
    query = select(files).where(files.c.project_id == project_id, files.c.deleted_at.is_(None))
    return load_page(conn, query, files.c.id, page, lambda rows: [_to_file(row) for row in rows])


def delete_file(tx: Tx, file_id: str) -> File:
    """The file that was, with its `file.deleted`. Raises `NotFound`."""
    file = file_by_id(tx.conn, file_id)
    _require_deleted(tx.conn.execute(_deletion(files, file_id, tx, _GONE_FILE)).rowcount, f"file {file_id}")
    count_storage(tx.conn, file.project_id, -file.size_bytes)
    _tell(tx, "file.deleted", file)
    return file


def files_of_turn(conn: Connection, project_id: str, file_ids: Sequence[str]) -> tuple[TurnFile, ...]:
    """The files that a turn names, as it has them. Raises `FileNotReady` for the first that is not there."""
    if not file_ids:
        return ()
    query = select(files).where(files.c.id.in_(file_ids), files.c.project_id == project_id)
    rows = conn.execute(query.where(files.c.deleted_at.is_(None)).with_for_update(read=True)).mappings()
    found = {row["id"]: _to_file(row) for row in rows}
    for file_id in file_ids:
        if file_id not in found:
            raise FileNotReady(
                f"there is no file {file_id} in this project", detail={"file_id": file_id}, hint="Upload it first."
            )
    return turn_files(found[file_id] for file_id in dict.fromkeys(file_ids))


def artifact_by_id(conn: Connection, artifact_id: str) -> Artifact:
    """Raises `NotFound`; also for one that was deleted."""
    row = conn.execute(_ARTIFACTS.where(artifacts.c.id == artifact_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no artifact {artifact_id}")
    return _to_artifact(row)


def list_artifacts(conn: Connection, turn_id: str, page: PageRequest) -> Page[Artifact]:
    """A page of what a turn left."""
    query = _ARTIFACTS.where(artifacts.c.turn_id == turn_id)
    return load_page(conn, query, artifacts.c.id, page, lambda rows: [_to_artifact(row) for row in rows])


def artifact_text(conn: Connection, artifact_id: str) -> str | None:
    """The text; None for one whose bytes are elsewhere. Raises `NotFound`."""
    row = find(conn, artifacts, id=artifact_id)
    if row is None or row["deleted_at"] is not None:
        raise NotFound(f"there is no artifact {artifact_id}")
    return row["text"]


def delete_artifact(tx: Tx, artifact_id: str) -> Artifact:
    """The artifact that was, with its `artifact.deleted`. Raises `NotFound`."""
    artifact = artifact_by_id(tx.conn, artifact_id)
    project_id = tx.conn.execute(select(artifacts.c.project_id).where(artifacts.c.id == artifact_id)).scalar_one()
    deletion = _deletion(artifacts, artifact_id, tx, _GONE_ARTIFACT)
    _require_deleted(tx.conn.execute(deletion).rowcount, f"artifact {artifact_id}")
    count_storage(tx.conn, project_id, -artifact.size_bytes)
    told = artifact_deleted(artifact_id=artifact.id, size_bytes=artifact.size_bytes, sha256=artifact.sha256)
    append_project_event(tx, told, project_id=project_id)
    return artifact


def erase_artifacts(tx: Tx, session_id: str, project_id: str) -> None:
    """What a session's turns left is gone with the session; ids, times, lengths and hashes remain."""
    of_session = (artifacts.c.session_id == session_id, artifacts.c.deleted_at.is_(None))
    kept = tx.conn.execute(select(artifacts.c.bytes).where(*of_session)).scalars().all()
    if kept:
        tx.conn.execute(update(artifacts).where(*of_session).values(**_GONE_ARTIFACT, deleted_at=tx.now))
        count_storage(tx.conn, project_id, -sum(kept))


def stored_bytes(conn: Connection, project_id: str) -> int:
    """How many bytes the project keeps."""
    row = find(conn, project_storage, project_id=project_id)
    return 0 if row is None else row["bytes"]


def known_outputs(conn: Connection, session_id: str) -> frozenset[tuple[str | None, str]]:
    """Path and SHA-256 of what the session's turns have left so far; a deleted one has no path any more."""
    of_session = (artifacts.c.session_id == session_id, artifacts.c.kind == "output")
    query = select(artifacts.c.path, artifacts.c.sha256).where(*of_session)
    return frozenset((path, sha256) for path, sha256 in conn.execute(query))


def unnamed(conn: Connection, sha256s: Collection[str]) -> frozenset[str]:
    """Those that no file, no artifact, no skill and no turn that is still open names."""
    of_files = select(files.c.sha256).where(files.c.sha256.in_(sha256s), files.c.deleted_at.is_(None))
    of_artifacts = select(artifacts.c.sha256).where(artifacts.c.sha256.in_(sha256s), artifacts.c.deleted_at.is_(None))
    of_skills = select(skills.c.sha256).where(skills.c.sha256.in_(sha256s))
    named = set(conn.execute(union(of_files, of_artifacts, of_skills)).scalars())
    open_turns = select(turns.c.input_files_json).where(IS_QUEUED | IS_ACTIVE, turns.c.input_files_json != NO_FILES)
    for files_json in conn.execute(open_turns).scalars():
        named.update(file.sha256 for file in parse_turn_files(files_json))
    return frozenset(sha256s) - named


def _require_room(tx: Tx, new: NewFile) -> None:
    # Counted first, so that the row is locked until the end of the transaction and two uploads cannot both be the last.
    count_storage(tx.conn, new.project_id, new.size_bytes)
    limit = tx.limits.project_bytes
    if stored_bytes(tx.conn, new.project_id) > limit:
        raise StorageFull(
            f"the project's files and artifacts would take more than {limit} bytes",
            detail={"limit": limit, "limit_name": "files.project_bytes"},
            hint="Delete files that are not used.",
        )


def _deletion(table: Table, row_id: str, tx: Tx, gone: dict[str, Any]) -> Update:
    values = {**gone, "deleted_at": tx.now}
    return update(table).where(table.c.id == bindparam("of_id", row_id), table.c.deleted_at.is_(None)).values(values)


def _require_deleted(count: int, what: str) -> None:
    if not count:
        raise NotFound(f"there is no {what}")


def _tell(tx: Tx, event_type: str, file: File) -> None:
    told = file_changed(event_type, file_id=file.id, size_bytes=file.size_bytes, sha256=file.sha256)
    append_project_event(tx, told, project_id=file.project_id)


def _to_file(row: RowMapping) -> File:
    return File(
        id=row["id"],
        project_id=row["project_id"],
        name=row["name"],
        purpose=row["purpose"],
        media_type=row["media_type"],
        size_bytes=row["bytes"],
        sha256=row["sha256"],
        created_at=row["created_at"],
    )


def _to_artifact(row: RowMapping) -> Artifact:
    days = row["retention_days"]
    return Artifact(
        id=row["id"],
        turn_id=row["turn_id"],
        session_id=row["session_id"],
        name=row["name"],
        path=row["path"],
        media_type=row["media_type"],
        size_bytes=row["bytes"],
        sha256=row["sha256"],
        kind=row["kind"],
        created_at=row["created_at"],
        expires_at=None if days is None else row["last_active_at"] + timedelta(days=days),
    )
