"""How files and artifacts look to an app, and how their bytes are handed out (contract 2.6).

Answers for bytes that no browser shows or runs: an attachment, never sniffed, without rights. A name goes into a header
only as RFC 6266 and 8187 say.
"""

import re
import unicodedata
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote

import orjson
from starlette.responses import Response, StreamingResponse

from turnkeeper.clock import render_time
from turnkeeper.turns.files import Artifact, File

CONTENT_POLICY: Final = "sandbox; default-src 'none'"

_NOT_QUOTABLE: Final = re.compile(r"[^A-Za-z0-9._ +-]")


def render_file(file: File) -> bytes:
    """A file as JSON."""
    return orjson.dumps(
        {
            "id": file.id,
            "object": "file",
            "name": file.name,
            "purpose": file.purpose,
            "media_type": file.media_type,
            "bytes": file.size_bytes,
            "sha256": file.sha256,
            "status": "ready",
            "created_at": render_time(file.created_at),
        }
    )


def render_artifact(artifact: Artifact) -> bytes:
    """An artifact as JSON."""
    return orjson.dumps(
        {
            "id": artifact.id,
            "object": "artifact",
            "turn_id": artifact.turn_id,
            "session_id": artifact.session_id,
            "name": artifact.name,
            "path": artifact.path,
            "media_type": artifact.media_type,
            "bytes": artifact.size_bytes,
            "sha256": artifact.sha256,
            "kind": artifact.kind,
            "created_at": render_time(artifact.created_at),
            "expires_at": None if artifact.expires_at is None else render_time(artifact.expires_at),
        }
    )


def render_deleted(thing_id: str, kind: str) -> bytes:
    """What is said of something that is gone."""
    return orjson.dumps({"id": thing_id, "object": kind, "deleted": True})


async def stream_content(pieces: AsyncIterator[bytes], name: str, media_type: str, size_bytes: int) -> Response:
    """The bytes. Raises what the first piece raises, while there is still another answer to give."""
    first = await anext(pieces, b"")
    headers = _headers(name) | {"Content-Length": str(size_bytes)}
    return StreamingResponse(_joined(first, pieces), headers=headers, media_type=media_type)


def text_content(text: str, name: str, media_type: str) -> Response:
    """The bytes of a text."""
    return Response(text.encode(), headers=_headers(name), media_type=media_type)


def attachment(name: str) -> str:
    """The `Content-Disposition` of a name: a form that everybody reads, and the exact one."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = _NOT_QUOTABLE.sub("_", plain).strip() or "file"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def _headers(name: str) -> dict[str, str]:
    return {
        "Content-Disposition": attachment(name),
        "Content-Security-Policy": CONTENT_POLICY,
        "Cross-Origin-Resource-Policy": "same-origin",
    }


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece
