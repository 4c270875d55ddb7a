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

from turnkeeper.api.bodies import MAX_DISCARDED_BYTES, JsonBody
from turnkeeper.api.deps import ApiDeps
from turnkeeper.api.keyed import created, idempotency_key
from turnkeeper.api.multipart import MAX_OVERHEAD_BYTES, UploadForm
from turnkeeper.api.problems import RequestRefused
from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.contents import Content
from turnkeeper.turns.creations import Created
from turnkeeper.turns.files import PURPOSES, File, NewFile
from turnkeeper.turns.model import ApiKey

FIELDS: Final = frozenset({"purpose", "sha256"})

_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}\Z")


async def take_upload(request: Request, deps: ApiDeps, caller: ApiKey) -> Created[File]:
    """The file, or the one that the request's Idempotency-Key stands for already.

    Raises `RequestRefused`, `ContentTooLarge`, `StorageFull`, and what keys raise.
    """
    idempotency_key(request)
    try:
        async with asyncio.timeout(deps.settings.upload_timeout_ms / 1000):
            form, content = await kept_form(request, deps, known=FIELDS, max_bytes=deps.settings.file_bytes)
    except TimeoutError as error:
        raise RequestRefused("request_timeout", "The body did not arrive in time.") from error
    except ClientDisconnect as error:
        raise RequestRefused("request_timeout", "The connection was closed before the body was complete.") from error
    new = NewFile(
        project_id=caller.project_id,
        name=form.file_name,
        purpose=_checked(form, content),
        media_type=form.media_type,
        size_bytes=content.size_bytes,
        sha256=content.sha256,
    )
    sent = JsonBody({"name": new.name, "purpose": new.purpose, "type": new.media_type, "sha256": new.sha256}, {})
    return await created(deps, request, sent, caller, lambda keyed: deps.files.add_file(new, keyed))


async def kept_form(
    request: Request, deps: ApiDeps, *, known: frozenset[str], max_bytes: int
) -> tuple[UploadForm, Content]:
    """A form with one file, whose bytes are in the content store then. Raises `RequestRefused`, `ContentTooLarge`."""
    stream = request.stream()
    counted = _counted(stream, max_bytes + MAX_OVERHEAD_BYTES)
    try:
        form = UploadForm(counted, request.headers.get("Content-Type", ""), known=known)
        return form, await deps.contents.put(form, max_bytes=max_bytes)
    except TurnkeeperError:
        await _let_in(stream)
        raise


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
