"""`ContentStore` in the database: for installations whose processes share PostgreSQL and no folder.

Answers for contents that are whole before they have a name: the pieces are rows of a put that nobody sees until its
last transaction names it. A put that is cut short leaves pieces that `tidy` removes.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from turnkeeper.store.file_tables import content_chunks, contents
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhook_store import Reads, Writes
from turnkeeper.turns.contents import Content, ContentMissing, ContentStore, bounded

CHUNK_BYTES: Final = 256 * 1024
CUT_AT_ONCE: Final = 100
"""How many puts that were cut short one transaction removes."""


class DatabaseContents(ContentStore):
    """Contents in the turn store's database."""

    def __init__(self, read: Reads, write: Writes) -> None:
        self._read = read
        self._write = write

    async def put(self, pieces: AsyncIterable[bytes], *, max_bytes: int) -> Content:
        put_id = await self._write(_begin)
        try:
            made = await self._gathered(put_id, bounded(pieces, max_bytes))
        except BaseException:
            # Also when the caller was canceled; what cannot be removed now is tidied away later.
            await asyncio.shield(self._write(lambda tx: _drop(tx, put_id)))
            raise
        return await self._named(put_id, made)

    async def read(self, sha256: str) -> AsyncIterator[bytes]:
        content_id, number = await self._read(lambda conn: _id_of(conn, sha256)), 0
        while (piece := await self._read(_piece(content_id, number))) is not None:
            yield piece
            number += 1
        if await self._read(lambda conn: _id_of(conn, sha256)) != content_id:
            raise ContentMissing("the content was put anew while it was read")

    async def older_than(self, before: datetime, *, after: str, limit: int) -> Sequence[str]:
        old = (contents.c.sha256 > after, contents.c.stored_at < before)
        query = select(contents.c.sha256).where(*old).order_by(contents.c.sha256).limit(limit)
        return await self._read(lambda conn: [str(found) for found in conn.execute(query).scalars()])

    async def remove(self, sha256: str, *, before: datetime) -> bool:
        return await self._write(lambda tx: _remove(tx, sha256, before))

    async def tidy(self, before: datetime) -> None:
        while await self._write(lambda tx: _tidy(tx, before)):
            pass

    async def _gathered(self, put_id: str, pieces: AsyncIterable[bytes]) -> Content:
        digest, size_bytes, number, buffer = hashlib.sha256(), 0, 0, bytearray()
        async for piece in pieces:
            digest.update(piece)
            size_bytes += len(piece)
            buffer += piece
            while len(buffer) >= CHUNK_BYTES:
                await self._write(_chunk(put_id, number, bytes(buffer[:CHUNK_BYTES])))
                del buffer[:CHUNK_BYTES]
                number += 1
        if buffer:
            await self._write(_chunk(put_id, number, bytes(buffer)))
        return Content(digest.hexdigest(), size_bytes)

    async def _named(self, put_id: str, made: Content) -> Content:
        try:
            await self._write(lambda tx: _name(tx, put_id, made))
        except IntegrityError:
            # The same was put by somebody else at the same moment, and is there now.
            await self._write(lambda tx: _name(tx, put_id, made))
        return made


def _begin(tx: Tx) -> str:
    put_id = tx.ids.uuid()
    tx.conn.execute(insert(contents), {"id": put_id, "bytes": 0, "stored_at": tx.now})
    return put_id


def _chunk(put_id: str, number: int, data: bytes) -> Callable[[Tx], None]:
    def body(tx: Tx) -> None:
        tx.conn.execute(insert(content_chunks), {"content_id": put_id, "number": number, "data": data})

    return body


def _name(tx: Tx, put_id: str, made: Content) -> None:
    again = update(contents).where(contents.c.sha256 == made.sha256).values(stored_at=tx.now)
    if tx.conn.execute(again).rowcount:
        _drop(tx, put_id)
        return
    named = {"sha256": made.sha256, "bytes": made.size_bytes, "stored_at": tx.now}
    tx.conn.execute(update(contents).where(contents.c.id == put_id).values(named))


def _drop(tx: Tx, content_id: str) -> None:
    tx.conn.execute(delete(content_chunks).where(content_chunks.c.content_id == content_id))
    tx.conn.execute(delete(contents).where(contents.c.id == content_id))


def _id_of(conn: Connection, sha256: str) -> str:
    content_id = conn.execute(select(contents.c.id).where(contents.c.sha256 == sha256)).scalar_one_or_none()
    if content_id is None:
        raise ContentMissing("the content is not there any more")
    return content_id


def _piece(content_id: str, number: int) -> Callable[[Connection], bytes | None]:
    of_content = (content_chunks.c.content_id == content_id, content_chunks.c.number == number)
    query = select(content_chunks.c.data).where(*of_content)
    return lambda conn: conn.execute(query).scalar_one_or_none()


def _remove(tx: Tx, sha256: str, before: datetime) -> bool:
    old = (contents.c.sha256 == sha256, contents.c.stored_at < before)
    content_id = tx.conn.execute(select(contents.c.id).where(*old).with_for_update()).scalar_one_or_none()
    if content_id is not None:
        _drop(tx, content_id)
    return content_id is not None


def _tidy(tx: Tx, before: datetime) -> bool:
    cut_short = select(contents.c.id).where(contents.c.sha256.is_(None), contents.c.stored_at < before)
    found = tx.conn.execute(cut_short.limit(CUT_AT_ONCE)).scalars().all()
    for content_id in found:
        _drop(tx, content_id)
    return len(found) == CUT_AT_ONCE
