"""An agent whose clock is wrong asks for the time and goes on (CORE-HON-06); a time nobody proved moves nothing."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.guardian.kit import IN_PROCESS, KEYRING, House, running

from turnkeeper.client import (
    ClientSettings,
    GuardianClient,
    Identity,
    InProcessTransport,
    PostureRules,
    SessionNotStarted,
)
from turnkeeper.testing.fake_clock import START, FakeClock

REFUSES = ClientSettings(posture=PostureRules(startup="refuse"))


def client(here: House, shift: timedelta, *, strip_pings: bool = False) -> GuardianClient:
    """An agent whose clock differs from the Guardian's."""

    async def answer(body: bytes) -> bytes:
        raw = await here.guardian.answer(body, IN_PROCESS)
        return b"{}" if strip_pings and b'"method":"system/ping"' in body else raw

    # Slow enough that a thread of the Guardian's may take its time.
    clock = FakeClock(START + shift)
    return GuardianClient(InProcessTransport(answer), Identity("agent", KEYRING), settings=REFUSES, time=clock)


@pytest.mark.parametrize("hours", [-3, 3])
def test_an_agent_with_a_wrong_clock_learns_the_guardians_time(tmp_path: Path, hours: int) -> None:
    async def work(here: House) -> None:
        agent = client(here, timedelta(hours=hours))
        async with agent as guardian, guardian.session() as session, session.turn() as turn:
            assert await turn.user_message("hello") == "hello"

    running(tmp_path, work, clock=FakeClock())


def test_an_unproven_time_is_not_believed(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        with pytest.raises(SessionNotStarted, match="-32006"):
            async with client(here, timedelta(hours=3), strip_pings=True) as guardian:
                await guardian.session().__aenter__()

    running(tmp_path, work, clock=FakeClock())
