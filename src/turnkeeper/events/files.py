"""Events about files and artifacts (contract 10.3 and 10.4).

Pure. `artifact.created` belongs to its turn and comes from the sandbox; the others are outside of every session, for a
file belongs to a project and an artifact may be deleted long after its session has closed.
"""

from typing import Final

import orjson

from turnkeeper.events.envelope import NewEvent

ARTIFACT_CREATED: Final = "artifact.created"
FILE_TYPES: Final = ("file.uploaded", "file.deleted", "artifact.deleted")


def artifact_created(
    *,
    turn_id: str,
    attempt: int,
    artifact_id: str,
    name: str,
    path: str | None,
    media_type: str,
    size_bytes: int,
    sha256: str,
    kind: str,
    content: str | None = None,
) -> NewEvent:
    """A turn left something; `content` is its text, where it is one that is kept beside the event."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "artifact_id": artifact_id,
        "name": name,
        "path": path,
        "media_type": media_type,
        "bytes": size_bytes,
        "sha256": sha256,
        "kind": kind,
    }
    return NewEvent(ARTIFACT_CREATED, "sandbox", orjson.dumps(data).decode(), turn_id, attempt, content)


def file_changed(event_type: str, *, file_id: str, size_bytes: int, sha256: str) -> NewEvent:
    """A file was uploaded or deleted."""
    return _event(event_type, {"file_id": file_id, "bytes": size_bytes, "sha256": sha256})


def artifact_deleted(*, artifact_id: str, size_bytes: int, sha256: str) -> NewEvent:
    """Somebody deleted an artifact before its session's time was over."""
    return _event("artifact.deleted", {"artifact_id": artifact_id, "bytes": size_bytes, "sha256": sha256})


def _event(event_type: str, data: dict[str, object]) -> NewEvent:
    return NewEvent(event_type, "platform", orjson.dumps(data).decode())
