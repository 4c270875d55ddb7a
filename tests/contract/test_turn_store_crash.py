"""kill -9 in the middle of writing: what is there is whole (house rule 1)."""

import asyncio
import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.contract.store_rig import ANSWER, LOST, open_store
from tests.contract.wholeness import broken

from turnkeeper.store.engine import open_engines

ROOT = Path(__file__).parents[2]
KILLS = 4


def kill_a_writer(url: str, after_endings: int) -> None:
    """Starts a writer and kills it somewhere behind its `after_endings`th turn."""
    command = [sys.executable, "-m", "tests.contract.store_writer", url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(after_endings + 1):
            assert writer.stdout.readline()
        # Between two commits or inside one: the pipe says nothing about that, which is the point.
        for _ in range(random.randrange(200_000)):
            pass
        os.kill(writer.pid, signal.SIGKILL)


def test_what_a_killed_writer_leaves_behind_is_whole_and_goes_on(store_url: str) -> None:
    for kill in range(KILLS):
        kill_a_writer(store_url, kill)
        assert broken(store_url) == {}

    async def go_on() -> str | None:
        rig = await open_store(store_url)
        for claim in await rig.store.take_over("after", await rig.store.held_by_others("after")):
            if claim.turn.status == "running":
                await rig.store.end(claim.fence, LOST)
        claimed = await rig.store.claim("after", slot=True)
        await rig.store.close()
        return None if claimed is None else claimed.turn.status.value

    assert asyncio.run(go_on()) == "queued"
    assert broken(store_url) == {}


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.db"

    async def scenario() -> set[int]:
        rig = await open_store(f"sqlite:///{path}")
        await rig.running()
        modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        await rig.store.close()
        return modes

    assert asyncio.run(scenario()) == {0o600}


def test_a_store_that_was_closed_is_opened_as_it_was(store_url: str) -> None:
    async def write() -> str:
        rig = await open_store(store_url)
        fence = await rig.running()
        await rig.store.end(fence, ANSWER)
        await rig.store.close()
        return fence.turn_id

    async def read(turn_id: str) -> str | None:
        rig = await open_store(store_url)
        turn = await rig.store.turn(turn_id)
        await rig.store.close()
        return turn.terminal_data

    assert '"status":"completed"' in (asyncio.run(read(asyncio.run(write()))) or "")


@pytest.mark.parametrize("pragma", [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)])
def test_sqlite_keeps_what_it_says_it_has_written(sqlite_url: str, pragma: tuple[str, object]) -> None:
    engines = open_engines(sqlite_url)
    try:
        with engines.writer.begin() as connection:
            assert connection.execute(text(f"PRAGMA {pragma[0]}")).scalar_one() == pragma[1]
    finally:
        engines.dispose()
