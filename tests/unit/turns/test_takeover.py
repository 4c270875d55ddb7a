"""Whose turns may be taken over: by word of who knows, or by a lease that stands still."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.turns.rig import SETTINGS, Rig, answer, rig, script

from turnkeeper.clock import SystemClock
from turnkeeper.events.envelope import Event
from turnkeeper.ids import RandomIds
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.turns.lease import Lease
from turnkeeper.turns.model import Fence, Hold, Turn
from turnkeeper.turns.ports import NewTurn, StaleFence, StoreUnavailable, TurnStore
from turnkeeper.turns.takeover import LeaseWatch
from turnkeeper.turns.wakeups import LocalWakeups
from turnkeeper.turns.worker import Worker

TTL_MS = 30_000
HOLD = Hold(Fence("trn_1", "ses_1", "other", 3), beats=7)


def looks(watch: LeaseWatch, *seen: tuple[int, Hold]) -> list[bool]:
    """Whether the turn may be taken at each look."""
    return [bool(watch.lapsed([hold], (), now_ms)) for now_ms, hold in seen]


def test_a_lease_that_stands_still_for_its_time_is_over() -> None:
    assert looks(LeaseWatch(TTL_MS), (5, HOLD), (TTL_MS + 4, HOLD), (TTL_MS + 5, HOLD)) == [False, False, True]


def test_a_beat_begins_the_time_anew() -> None:
    beaten = replace(HOLD, beats=8)

    seen = looks(LeaseWatch(TTL_MS), (0, HOLD), (TTL_MS - 1, beaten), (TTL_MS, beaten), (2 * TTL_MS - 1, beaten))

    assert seen == [False, False, False, True]


def test_a_new_owner_begins_the_time_anew_though_it_beats_alike() -> None:
    """Also one of the same name: its fence has another number."""
    again = replace(HOLD, fence=replace(HOLD.fence, number=4))

    assert looks(LeaseWatch(TTL_MS), (0, HOLD), (TTL_MS, again)) == [False, False]


def test_who_is_known_to_be_gone_is_not_waited_for() -> None:
    other = Hold(Fence("trn_2", "ses_2", "alive", 1), beats=1)

    assert LeaseWatch(TTL_MS).lapsed([HOLD, other], {"other"}, 0) == (HOLD,)


def test_a_turn_that_nobody_holds_any_more_is_forgotten() -> None:
    watch = LeaseWatch(TTL_MS)
    watch.lapsed([HOLD], (), 0)
    watch.lapsed([], (), 10)

    assert watch.lapsed([HOLD], (), TTL_MS) == ()


@given(st.lists(st.integers(1, TTL_MS - 1), max_size=30))
def test_whoever_beats_within_the_time_is_never_taken(pauses: Sequence[int]) -> None:
    watch, now_ms = LeaseWatch(TTL_MS), 0
    for beats, pause_ms in enumerate(pauses):
        assert watch.lapsed([replace(HOLD, beats=beats)], (), now_ms) == ()
        now_ms += pause_ms


async def hangs(harness: ScriptedHarness) -> None:
    await asyncio.Event().wait()


async def another_store(tmp_path: Path) -> SqlTurnStore:
    """As another process has it, without a word to this one."""
    clock = SystemClock()
    url = f"sqlite:///{tmp_path}/turnkeeper.db"
    return await SqlTurnStore.open(url, clock=clock, ids=RandomIds(clock), wakeups=LocalWakeups())


async def until_beaten(made: Rig, turn_id: str, beats: int) -> None:
    session_id = (await made.store.turn(turn_id)).session_id
    async with asyncio.timeout(20):
        while [hold.beats for hold in await made.store.held_by_others("other")] == [beats]:
            await made.wakeups.wait(session_id, timeout_ms=50)


def test_a_worker_that_hangs_is_taken_over_once_its_lease_stood_still(tmp_path: Path) -> None:
    """Nobody tells: only the lease counts."""

    async def main() -> None:
        short = replace(SETTINGS, lease_ttl_ms=3_000, poll_ms=100, reap_ms=50)
        async with rig(tmp_path, settings=short, start=False) as made:
            turn_id = await made.post(await made.session())
            assert await made.store.claim("hangs", slot=True) is not None
            made.work()
            turn = await made.ended(turn_id)
            assert (turn.status, turn.fence) == ("completed", 2)

    asyncio.run(main())


def test_a_worker_that_beats_keeps_its_turn_however_long_others_look(tmp_path: Path) -> None:
    async def main() -> None:
        short = replace(SETTINGS, lease_ttl_ms=3_000, poll_ms=100, reap_ms=50)
        async with rig(tmp_path, script(hangs), settings=short) as made:
            turn_id = await made.post(await made.session())
            turn = await made.until(turn_id, lambda turn: turn.status == "running")
            other, watch = "other", LeaseWatch(short.lease_ttl_ms)
            for now_ms in range(0, 4 * short.lease_ttl_ms, short.lease_ttl_ms // 2):
                (hold,) = await made.store.held_by_others(other)
                assert watch.lapsed([hold], (), now_ms) == ()
                await until_beaten(made, turn.id, hold.beats)

    asyncio.run(main())


class Suspended(SystemClock):
    """The clock of a machine that slept for `away_ms`."""

    away_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.away_ms


def test_a_lone_worker_that_slept_through_its_lease_ends_the_turn_that_it_dropped(tmp_path: Path) -> None:
    async def main() -> None:
        short = replace(SETTINGS, lease_ttl_ms=3_000, poll_ms=100, reap_ms=50)
        async with rig(tmp_path, script(hangs), settings=short, start=False) as made:
            clock = Suspended()
            made.worker = Worker(replace(made.bench, clock=clock))
            made.work()
            turn_id = await made.post(await made.session())
            await made.until(turn_id, lambda turn: turn.status == "running")
            clock.away_ms = 10 * short.lease_ttl_ms
            turn = await made.ended(turn_id)
            assert (turn.status, turn.stop_reason) == ("failed", "sandbox_lost")

    asyncio.run(main())


@pytest.mark.parametrize(("attempts", "ends"), [(1, ("failed", "sandbox_lost")), (2, ("completed", "end_turn"))])
def test_a_database_that_is_away_for_a_moment_costs_an_attempt_and_is_no_fault_of_the_turns(
    tmp_path: Path, attempts: int, ends: tuple[str, str]
) -> None:
    async def main() -> None:
        async with rig(tmp_path, answer, answer) as made:
            end, away = made.store.end, iter([True])

            async def once_away(*given: Any, **named: Any) -> Event:
                if next(away, False):
                    raise StoreUnavailable("the turn store cannot answer")
                return await end(*given, **named)

            made.store.end = once_away  # type: ignore[method-assign]
            turn = await made.ended(await made.post(await made.session(), attempts=attempts))
            assert (turn.status, turn.stop_reason) == ends
            assert made.sandbox.left_behind == []

    asyncio.run(main())


class CutOff:
    """A store at the other end of a cable that is cut: it answers nothing, not even no."""

    async def turn(self, turn_id: str) -> Turn:
        return await asyncio.Future[Turn]()


def test_a_lease_ends_on_time_although_the_database_answers_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, start=False) as made:
            await made.post(await made.session())
            claim = await made.store.claim("cut off", slot=True)
            assert claim is not None
            clock, store = FakeClock(), cast(TurnStore, CutOff())
            lease = Lease(store, made.wakeups, claim, clock=clock, waiter=clock, ttl_ms=TTL_MS, poll_ms=100)
            keeping = asyncio.create_task(lease.keep())
            while not clock.sleepers:
                await asyncio.sleep(0)
            clock.advance(TTL_MS)
            with pytest.raises(StaleFence):
                await keeping

    asyncio.run(main())


def test_news_that_is_lost_costs_the_poll_interval_and_never_a_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            session = await made.session()
            elsewhere = await another_store(tmp_path)
            new = NewTurn(session.id, "hi", '"hi"', None, "{}", None, 3, None, None)
            turn_id = (await elsewhere.accept_turn(new)).turn.id
            await elsewhere.close()
            assert (await made.ended(turn_id)).status == "completed"

    asyncio.run(main())


def test_a_worker_that_drains_takes_nothing_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, start=False) as made:
            turn_id = await made.post(await made.session())
            assert await made.store.claim("gone", slot=True) is not None
            worker = made.again()
            worker.drain()
            await worker.run()
            assert (await made.store.turn(turn_id)).status == "queued"
            assert [hold.fence.owner for hold in await made.store.held_by_others("nobody")] == ["gone"]

    asyncio.run(main())
