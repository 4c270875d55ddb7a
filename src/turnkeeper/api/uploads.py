"""Uploads (contract 2.6 and 9): from a form on the wire to a file that is ready.

Answers for bytes that are kept before anybody can see the file. A form that does not arrive in time, is too long, or
says another hash than its bytes have leaves nothing but bytes without a name, which are swept.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from turnkeeper.api.bodies import MAX_DISCARDED_BYTES
from turnkeeper.api.deps import ApiDeps
from turnkeeper.api.multipart import MAX_OVERHEAD_BYTES, UploadForm
from turnkeeper.api.posting import idempotency_key
from turnkeeper.api.problems import RequestRefused
from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.contents import Content
from turnkeeper.turns.files import PURPOSES, File, NewFile
from turnkeeper.turns.idempotency import fingerprint

FIELDS: Final = frozenset({"purpose", "sha256"})

_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}\Z")


async def take_upload(request: Request, deps: ApiDeps, project_id: str) -> tuple[File, bool]:
    """The file, and whether the request's Idempotency-Key stood for it already.

    Raises `RequestRefused`, `IdempotencyKeyInvalid`, `IdempotencyKeyReused`, `ContentTooLarge`, `StorageFull`.
    """
    key, stream = idempotency_key(request), request.stream()
    try:
        async with asyncio.timeout(deps.settings.upload_timeout_ms / 1000):
            try:
                form, content = await _kept(request, stream, deps)
            except TurnkeeperError:
                await _let_in(stream)
                raise
    except TimeoutError as error:
        raise RequestRefused("request_timeout", "The body did not arrive in time.") from error
    except ClientDisconnect as error:
        raise RequestRefused("request_timeout", "The connection was closed before the body was complete.") from error
    purpose = _checked(form, content)
    sent = {"name": form.file_name, "purpose": purpose, "media_type": form.media_type, "sha256": content.sha256}
    return await deps.files.add_file(
        NewFile(
            project_id=project_id,
            name=form.file_name,
            purpose=purpose,
            media_type=form.media_type,
            size_bytes=content.size_bytes,
            sha256=content.sha256,
            idempotency_key=key,
            fingerprint=None if key is None else fingerprint(request.method, request.url.path, dict(sent)),
        )
    )


async def _kept(request: Request, stream: AsyncIterator[bytes], deps: ApiDeps) -> tuple[UploadForm, Content]:
    limit = deps.settings.file_bytes
    form = UploadForm(
        _counted(stream, limit + MAX_OVERHEAD_BYTES), request.headers.get("Content-Type", ""), known=FIELDS
    )
    return form, await deps.contents.put(form, max_bytes=limit)


async def _counted(chunks: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    left = max_bytes
    async for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            raise RequestRefused("body_too_large", f"The body is longer than the limit of {max_bytes} bytes.")
        yield chunk


async def _let_in(stream: AsyncIterator[bytes]) -> None:
    # A client that is still sending reads no answer: what is left of a somewhat too long body is let in.
    discarded = 0
    async for chunk in stream:
        discarded += len(chunk)
        if discarded > MAX_DISCARDED_BYTES:
            return


def _checked(form: UploadForm, content: Content) -> str:
    purpose = form.fields.get("purpose", PURPOSES[0])
    if purpose not in PURPOSES:
        raise RequestRefused("invalid_field", f"purpose is not one of {', '.join(PURPOSES)}", param="purpose")
    claimed = form.fields.get("sha256")
    if claimed is None:
        return purpose
    if _SHA256.match(claimed) is None:
        raise RequestRefused("invalid_field", "sha256 is not 64 hexadecimal digits.", param="sha256")
    if claimed.lower() != content.sha256:
        raise RequestRefused(
            "sha256_mismatch", f"The file's SHA-256 is {content.sha256}, not the one that was said.", param="sha256"
        )
    return purpose
