"""Each kind of content store, opened for one test."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.contract.store_rig import open_store

from turnkeeper.store.content_folder import FolderContents
from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.turns.contents import ContentStore

Opened = Callable[[], AbstractAsyncContextManager["tuple[ContentStore, FakeClock]"]]
Test = Callable[[ContentStore, FakeClock], Awaitable[None]]

LATER = timedelta(hours=2)


@pytest.fixture(params=["folder", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """The same test on a folder and on both databases."""
    if request.param == "folder":
        return lambda: _folder(tmp_path)
    url = str(request.getfixturevalue(f"{request.param}_url"))
    return lambda: _database(url)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    """The parts, as they would come in."""
    for part in parts:
        yield part


async def held(contents: ContentStore, sha256: str) -> bytes:
    """All the bytes of a content."""
    return b"".join([piece async for piece in contents.read(sha256)])


@asynccontextmanager
async def _folder(folder: Path) -> AsyncGenerator[tuple[ContentStore, FakeClock]]:
    clock = FakeClock()
    yield FolderContents(folder / "contents", clock), clock


@asynccontextmanager
async def _database(url: str) -> AsyncGenerator[tuple[ContentStore, FakeClock]]:
    clock = FakeClock()
    rig = await open_store(url, clock)
    try:
        yield rig.store.contents(), clock
    finally:
        await rig.store.close()
