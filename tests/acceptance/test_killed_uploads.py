"""A server that is killed in the middle of an upload, on both stores: nobody sees half a file, its space comes back.

What a user can see is asked of the API. That the space comes back is seen an hour later, on a clock that says so: until
then bytes without a name may belong to an upload that still runs.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import create_engine, func, select
from tests.acceptance.apart import postgres
from tests.acceptance.server import NO_WARM_BOXES, Server
from tests.acceptance.stub import StubModel

from turnkeeper.ids import RandomIds
from turnkeeper.store.content_folder import FolderContents
from turnkeeper.store.file_tables import content_chunks
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.turns.content_sweep import ContentSweep
from turnkeeper.turns.contents import UNNAMED_AGE_MS
from turnkeeper.turns.wakeups import LocalWakeups

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.postgres, pytest.mark.timeout(240)]

DEADLINE_S: Final = 60
CONTENT: Final = bytes(range(256)) * 16_384
"""Four MiB; a quarter of it is held back."""


@dataclass(frozen=True)
class Place:
    """A server, and what its store holds of contents, whole or half."""

    server: Server
    store_url: str
    stored_bytes: Callable[[], int]
    in_folder: bool


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        model = stack.enter_context(StubModel())
        url = stack.enter_context(postgres()) if request.param == "postgres" else ""
        chosen = f'[store]\nurl = "{url}"\n' if url else ""
        server = Server(tmp_path, model.config(f"{NO_WARM_BOXES}{chosen}"), environment={"STUB_KEY": "k"})
        stack.enter_context(server)
        folder = server.data_dir / "contents"
        held = (lambda: in_rows(url)) if url else (lambda: in_files(folder))
        yield Place(server, url or f"sqlite:///{server.data_dir}/turnkeeper.db", held, in_folder=not url)


def in_files(folder: Path) -> int:
    """How many bytes the files below the folder have."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def in_rows(url: str) -> int:
    """How many bytes the pieces in the database have."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return connection.execute(
                select(func.coalesce(func.sum(func.length(content_chunks.c.data)), 0))
            ).scalar_one()
    finally:
        engine.dispose()


def begun_upload(server: Server) -> socket.socket:
    """An upload of which three quarters are sent."""
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n'
    whole = head + CONTENT + b"\r\n--b--\r\n"
    lines = (
        "POST /v1/files HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {server.secret}",
        "Content-Type: multipart/form-data; boundary=b",
        f"Content-Length: {len(whole)}",
    )
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S)
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + whole[: len(whole) * 3 // 4])
    return connection


def until_some_are_stored(place: Place) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while place.stored_bytes() == 0:
        assert time.monotonic() < deadline, place.server.log_tail()
        time.sleep(0.02)


def swept_an_hour_later(place: Place) -> None:
    """One round of the sweep, when nothing that was cut short can still be on its way."""
    clock = FakeClock(datetime.now(UTC) + timedelta(milliseconds=2 * UNNAMED_AGE_MS))

    async def main() -> None:
        store = await SqlTurnStore.open(place.store_url, clock=clock, ids=RandomIds(clock), wakeups=LocalWakeups())
        folder = FolderContents(place.server.data_dir / "contents", clock)
        try:
            await ContentSweep(store.files(), folder if place.in_folder else store.contents(), clock).sweep()
        finally:
            await store.close()

    asyncio.run(main())


def test_a_server_that_is_killed_during_an_upload_publishes_nothing_of_it_and_its_space_is_swept(place: Place) -> None:
    with begun_upload(place.server):
        until_some_are_stored(place)
        place.server.kill()
    place.server.start()
    assert place.server.get("/v1/files")["data"] == []
    with place.server.client() as client:
        posted = client.post("/v1/files", files={"file": ("a.bin", CONTENT)})
        assert posted.status_code == 201, posted.text
        content = client.get(f"/v1/files/{posted.json()['id']}/content").content
    assert content == CONTENT
    assert place.stored_bytes() > len(CONTENT)
    place.server.stop()
    swept_an_hour_later(place)
    assert place.stored_bytes() == len(CONTENT)
