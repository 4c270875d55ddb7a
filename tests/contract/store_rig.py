"""A store with a clock that stands still, and the few things every test of it does first."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from turnkeeper.clock import SystemClock
from turnkeeper.events import catalogue
from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.ids import RandomIds
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.store.tx import StoreLimits
from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.turns.model import (
    AgentLimits,
    Budget,
    CallRecord,
    CanceledBy,
    Claim,
    Ending,
    Fence,
    ModelChoice,
    NewStep,
    Session,
    StopReason,
    Turn,
    TurnError,
    TurnStatus,
)
from turnkeeper.turns.ports import Accepted, NewAgent, NewSession, NewTurn

LEASE_MS: Final = 30_000
ACTIVITY: Final = frozenset({"session.busy", "session.idle", "session.paused"})
SANDBOX: Final = "sbx_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
BY_APP: Final = CanceledBy("api_key", "key_1", "no longer needed")
AGENT: Final = NewAgent("agent", ModelChoice("stub", "large"), "Do it.", ("shell",), AgentLimits(), "{}")
ANSWER: Final = Ending(
    happening="report_completed",
    status=TurnStatus.COMPLETED,
    stop_reason=StopReason.END_TURN,
    source="sandbox",
    text="done",
    result_json=None,
    result_error=None,
    duration_ms=10,
    turn_outcome="completed",
)
LOST: Final = replace(
    ANSWER,
    happening="sandbox_lost",
    status=TurnStatus.FAILED,
    stop_reason=StopReason.SANDBOX_LOST,
    source="platform",
    text="",
    turn_outcome="error",
    error=TurnError("sandbox_lost", "lease_expired", "The sandbox is gone.", True),
)
UNPAID: Final = replace(
    ANSWER,
    happening="budget_gone_at_front",
    source="platform",
    stop_reason=StopReason.BUDGET_REACHED,
    text="",
    duration_ms=0,
)
DENIED: Final = replace(
    LOST,
    happening="denied_before_start",
    stop_reason=StopReason.DENIED_BEFORE_START,
    duration_ms=0,
    turn_outcome=None,
    error=TurnError("denied_before_start", "session_start_denied", "The Guardian said no.", False),
)
CALL: Final = CallRecord(
    call=1,
    provider="stub",
    model="large",
    accepted=True,
    input_tokens=100,
    cached_input_tokens=0,
    cache_write_tokens=0,
    output_tokens=50,
    reasoning_tokens=0,
    estimated=False,
    latency_ms=5,
    first_token_ms=None,
    finish_reason="stop",
    retries=0,
)


@dataclass
class Heard:
    """`Wakeups` that remembers what it was told."""

    topics: list[str] = field(default_factory=list[str])

    def notify(self, topic: str) -> None:
        self.topics.append(topic)

    async def wait(self, topic: str, *, timeout_ms: int) -> None:
        raise AssertionError(f"nobody waits for {topic}")


@dataclass
class Rig:
    """An open store."""

    url: str
    store: SqlTurnStore
    clock: FakeClock
    heard: Heard
    ids: RandomIds

    async def session(self, **changes: Any) -> Session:
        agent = await self.store.create_agent(AGENT)
        new = NewSession(agent.id, None, "{}", None)
        return await self.store.create_session(replace(new, **changes))

    async def post(self, session_id: str, **changes: Any) -> Turn:
        return (await self.accept(session_id, **changes)).turn

    async def accept(self, session_id: str, **changes: Any) -> Accepted:
        new = NewTurn(session_id, "hi", '"hi"', None, "{}", None, 3, None, None)
        return await self.store.accept_turn(replace(new, **changes))

    async def claim(self, owner: str = "worker") -> Claim:
        claim = await self.store.claim(owner, slot=True)
        assert claim is not None
        return claim

    async def starting(self, owner: str = "worker") -> Fence:
        fence = (await self.claim(owner)).fence
        await self.store.starting(fence, [is_starting(fence.turn_id)])
        return fence

    async def start(self, fence: Fence) -> Turn:
        """A claimed turn's agent code runs."""
        await self.store.starting(fence, [is_starting(fence.turn_id)])
        return await self.store.started(fence, [has_started(fence.turn_id)])

    async def retry(self, fence: Fence, *, delay_ms: int = 5_000) -> Turn:
        """The turn's attempt is lost and will be tried again."""
        told = catalogue.turn_retrying(turn_id=fence.turn_id, failed_attempt=1, delay_ms=delay_ms)
        return await self.store.retry(fence, delay_ms=delay_ms, active_ms=70, events=[told])

    async def running(self, owner: str = "worker", **changes: Any) -> Fence:
        """A turn of a new session whose agent code runs."""
        budget: Budget | None = changes.pop("session_budget", None)
        session = await self.session(budget=budget)
        await self.post(session.id, **changes)
        fence = await self.starting(owner)
        await self.store.started(fence, [has_started(fence.turn_id)])
        return fence

    async def delete_expired(self, limit: int, *, after: str | None = None) -> str | None:
        """Deletes those among the next sessions whose time is over; the last one looked at."""
        retention = self.store.retention()
        over, last = await retention.expired(limit, after=after)
        for session_id in over:
            await retention.delete_if_expired(session_id)
        return last

    async def events(self, session_id: str) -> tuple[Event, ...]:
        return await self.store.events(session_id, after=0, limit=10_000)

    async def types(self, session_id: str) -> list[str]:
        """The types of its events, without those that say what the session does meanwhile."""
        return [event.type for event in await self.events(session_id) if event.type not in ACTIVITY]


def is_starting(turn_id: str) -> NewEvent:
    return catalogue.turn_starting(turn_id=turn_id, queue_ms=1, try_number=1, sandbox_kind="none")


def has_started(turn_id: str) -> NewEvent:
    return catalogue.turn_started(turn_id=turn_id, attempt=1, sandbox_id=SANDBOX, start_ms=5, warm=True)


def a_note(turn_id: str) -> NewEvent:
    """Some event of a running turn."""
    return catalogue.sandbox_released(turn_id=turn_id, sandbox_id=SANDBOX, lifetime_ms=1)


def a_step(ids: RandomIds, turn_id: str | None, method: str = "steps/toolCallRequest", **changes: Any) -> NewStep:
    new = NewStep(request_id=ids.uuid(), method=method, payload_json="{}", in_window=True, turn_id=turn_id)
    return replace(new, **changes)


async def open_store(
    url: str,
    clock: FakeClock | None = None,
    limits: StoreLimits | None = None,
    *,
    schedule_by_database: bool = False,
) -> Rig:
    used, heard = clock or FakeClock(), Heard()
    # Ids are of the real time, or two stores with clocks that stand still would count through the same ones.
    store = await SqlTurnStore.open(
        url,
        clock=used,
        ids=RandomIds(SystemClock()),
        wakeups=heard,
        limits=limits,
        schedule=None if schedule_by_database else used,
    )
    return Rig(url, store, used, heard, RandomIds(SystemClock()))


def with_store(test: Callable[[Rig], Awaitable[None]]) -> Callable[[str], None]:
    """An asynchronous test of a store as one that pytest can run on each database."""

    async def scenario(url: str) -> None:
        rig = await open_store(url)
        try:
            await test(rig)
        finally:
            await rig.store.close()

    def run(store_url: str) -> None:
        asyncio.run(scenario(store_url))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
