"""Where the bytes of files and artifacts are (contract 2.6): named by their SHA-256 and by nothing that a client said.

A port, and no more. Bytes come first and the row that speaks of them second, so that a crash between the two leaves
nothing that anybody can see: bytes that no row names are swept once they are older than `UNNAMED_AGE_MS`.
"""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from turnkeeper.errors import TurnkeeperError

UNNAMED_AGE_MS: Final = 3_600_000
"""How long bytes may wait for the row that names them; longer than any upload may take."""


class ContentTooLarge(TurnkeeperError):
    """More bytes came than there may be. Nothing of them was kept."""

    code = "body_too_large"


class ContentMissing(TurnkeeperError):
    """The bytes are not there: removed meanwhile, or the store was restored without them."""

    code = "content_missing"


@dataclass(frozen=True, slots=True)
class Content:
    """What was put: its name, which is its SHA-256 in hexadecimal, and its length."""

    sha256: str
    size_bytes: int


async def bounded(pieces: AsyncIterable[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    """The same pieces. Raises `ContentTooLarge` as soon as they are too many."""
    size_bytes = 0
    async for piece in pieces:
        size_bytes += len(piece)
        if size_bytes > max_bytes:
            raise ContentTooLarge(f"there are more than {max_bytes} bytes", detail={"limit": max_bytes})
        yield piece


class ContentStore(Protocol):
    """Bytes by their SHA-256."""

    async def put(self, pieces: AsyncIterable[bytes], *, max_bytes: int) -> Content:
        """Keeps all the pieces, durably, or nothing; putting the same again makes them young again.

        Raises `ContentTooLarge`, `StoreUnavailable`, and whatever the pieces raise.
        """
        ...

    def read(self, sha256: str) -> AsyncIterator[bytes]:
        """The bytes, piece by piece. Raises `ContentMissing`."""
        ...

    async def older_than(self, before: datetime, *, after: str, limit: int) -> Sequence[str]:
        """Names above `after`, in order, of what was last put before then; at most `limit`."""
        ...

    async def remove(self, sha256: str, *, before: datetime) -> bool:
        """Removes what was last put before then; whether it did. What was put again since stays."""
        ...

    async def tidy(self, before: datetime) -> None:
        """Removes what is left of puts that began before then and never ended."""
        ...
