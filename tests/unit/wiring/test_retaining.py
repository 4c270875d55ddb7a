"""Retention that runs with the server: by the settings, again and again, and until the server ends."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.guardian.kit import MESSAGE, House, greeted, house

from turnkeeper.acs import Refusal
from turnkeeper.config import load_configuration
from turnkeeper.datadir import DataDir
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.retention import HOUR_MS, retaining

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> DataDir:
    data_dir = DataDir(tmp_path / "data")
    data_dir.prepare()
    data_dir.outside_key.write_bytes(b"d" * 32)
    return data_dir


def base(folder: DataDir, clock: FakeClock, **settings: object) -> Base:
    flags = {"data_dir": folder.root} | {f"guardian.retention.{name}": value for name, value in settings.items()}
    return Base(load_configuration({}, flags=flags), folder, clock)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def a_closed_session(here: House) -> str:
    agent = await greeted(here)
    await agent.step("userMessage", MESSAGE)
    await agent.step("sessionEnd", {"reason": "completed"})
    return agent.session_id


def is_archived(folder: DataDir, session_id: str) -> bool:
    with SqliteChainReader(folder.guardian_database) as reader:
        return reader.archived_session(session_id) is not None


def test_a_server_archives_by_its_settings_and_forgets_what_it_remembered(folder: DataDir) -> None:
    async def main() -> None:
        clock = FakeClock(LONG_AGO)
        async with house(folder.guardian_database.parent, clock=clock) as here:
            session_id = await a_closed_session(here)
            clock.advance(2 * HOUR_MS)
            async with retaining(base(folder, clock, archive_after_hours=1), here.guardian):
                await until(lambda: is_archived(folder, session_id))
            assert here.guardian.cached_sessions == 0
            refused = await here.agent(session_id=session_id).hello()
            assert isinstance(refused, Refusal)
            assert refused.reason == "session_archived"

    asyncio.run(main())


def test_a_run_follows_a_run(folder: DataDir) -> None:
    async def main() -> None:
        clock = FakeClock(LONG_AGO)
        often = base(folder, clock, archive_after_hours=1, interval_ms=5)
        async with house(folder.guardian_database.parent, clock=clock) as here, retaining(often, here.guardian):
            session_id = await a_closed_session(here)
            clock.advance(2 * HOUR_MS)
            await until(lambda: is_archived(folder, session_id))

    asyncio.run(main())


def test_a_run_that_fails_is_followed_by_one_that_does_not(folder: DataDir) -> None:
    async def main() -> None:
        clock = FakeClock(LONG_AGO)
        blocked = folder.root / "guardian" / "archives"
        blocked.write_text("a file where a folder should be")
        async with house(folder.guardian_database.parent, clock=clock) as here:
            session_id = await a_closed_session(here)
            clock.advance(2 * HOUR_MS)
            async with retaining(base(folder, clock, archive_after_hours=1, interval_ms=5), here.guardian):
                blocked.unlink()
                await until(lambda: is_archived(folder, session_id))

    asyncio.run(main())


def test_nothing_runs_where_no_setting_asks_for_it(folder: DataDir) -> None:
    async def main() -> None:
        clock = FakeClock(LONG_AGO)
        async with house(folder.guardian_database.parent, clock=clock) as here:
            session_id = await a_closed_session(here)
            clock.advance(10_000 * HOUR_MS)
            before = len(asyncio.all_tasks())
            async with retaining(base(folder, clock), here.guardian):
                assert len(asyncio.all_tasks()) == before
            assert not is_archived(folder, session_id)

    asyncio.run(main())
