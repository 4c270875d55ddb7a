"""What nobody foresaw ends one piece of the background work, and never its loop (each loop of a worker)."""

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from tests.unit.turns.rig import rig

from turnkeeper.turns.containment import all_of, contained
from turnkeeper.turns.model import CanceledBy, Session
from turnkeeper.turns.outbox import Outbox
from turnkeeper.turns.ports import StaleFence
from turnkeeper.turns.retention import Retention, RetentionStore, SessionChange
from turnkeeper.turns.wakeups import LocalWakeups


class Unforeseen(Exception):
    """Nothing that any code here knows."""


async def fails() -> int:
    raise Unforeseen


async def works(done: list[int]) -> int:
    await asyncio.sleep(0)
    done.append(1)
    return 1


class BrokenStore(RetentionStore):
    """A store in which everything goes wrong, a few times each."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.deleted = asyncio.Event()

    async def change_session(self, session_id: str, change: SessionChange) -> Session:
        raise Unforeseen

    async def delete_session(self, session_id: str, *, by: CanceledBy) -> Session:
        raise Unforeseen

    async def expired(self, limit: int, *, after: str | None = None) -> tuple[Sequence[str], str | None]:
        self.asked.append("expired")
        if len(self.asked) < 3:
            raise Unforeseen
        return ("ses_1", "ses_2"), None

    async def delete_if_expired(self, session_id: str) -> None:
        if session_id == "ses_1":
            raise Unforeseen
        self.deleted.set()

    async def erase(self, limit: int) -> int:
        self.asked.append("erase")
        raise Unforeseen

    async def without_workspace(self, session_ids: Collection[str]) -> frozenset[str]:
        raise Unforeseen


def test_the_sweep_goes_on_after_whatever_one_round_raised(tmp_path: Path) -> None:
    async def main() -> None:
        store = BrokenStore()
        with LocalWakeups().watch("retention") as bell:
            sweeping = asyncio.create_task(Retention(store, tmp_path, bell, sweep_ms=1).run())
            async with asyncio.timeout(20):
                await store.deleted.wait()
            sweeping.cancel()
            await asyncio.wait({sweeping})
        assert store.asked[:3] == ["expired", "erase", "expired"]
        assert sweeping.cancelled()

    asyncio.run(main())


def test_one_that_fails_keeps_no_other_from_its_end_and_is_told_then() -> None:
    async def main() -> list[int]:
        done: list[int] = []
        with pytest.raises(Unforeseen):
            await all_of([fails(), works(done), fails(), works(done)])
        assert await all_of([works(done), works(done)]) == [1, 1]
        return done

    assert asyncio.run(main()) == [1, 1, 1, 1]


def test_a_piece_of_work_is_contained_and_a_lost_turn_is_not() -> None:
    async def lost() -> None:
        raise StaleFence("trn_1 is no longer this owner's")

    assert asyncio.run(contained("work", fails())) is None
    assert asyncio.run(contained("work", works([]))) == 1
    with pytest.raises(StaleFence):
        asyncio.run(contained("work", lost()))


def test_a_session_that_cannot_be_ended_keeps_no_other_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, start=False) as made:
            sessions = [await made.session() for _ in range(3)]
            for session in sessions:
                await made.store.close_session(session.id, mode="drain", by=CanceledBy("user", None))
            close_ended = made.store.close_ended

            async def broken(session_id: str, reason: object, end_step: object) -> None:
                if session_id == sessions[0].id:
                    raise Unforeseen
                await close_ended(session_id, "completed", None)

            made.store.close_ended = broken  # type: ignore[method-assign]
            with pytest.raises(Unforeseen):
                await Outbox(made.bench).end_sessions()
            states = [(await made.store.session(session.id)).status for session in sessions]
            assert states == ["closing", "closed", "closed"]

    asyncio.run(main())
