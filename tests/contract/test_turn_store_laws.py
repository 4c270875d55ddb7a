"""Whatever is asked of a store, in whatever order: it stays whole."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.pause_samples import a_pause
from tests.contract.store_rig import (
    ANSWER,
    BY_APP,
    CALL,
    DENIED,
    LEASE_MS,
    LOST,
    UNPAID,
    Rig,
    a_note,
    a_step,
    has_started,
    is_starting,
    open_store,
)
from tests.contract.wholeness import broken

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.approvals import ApprovalAnswer, DecidedBy
from turnkeeper.turns.model import Budget, Fence, StepAnswer, TurnStatus
from turnkeeper.turns.ports import PageRequest

EXAMPLES: Final = 25
BY: Final = DecidedBy("api_key", "key_1")
ENDINGS: Final = (ANSWER, LOST, UNPAID, DENIED)


@dataclass
class World:
    """A store and everybody who has something to do with it, with the fences they were once given."""

    rig: Rig
    sessions: list[str] = field(default_factory=list[str])
    turns: list[str] = field(default_factory=list[str])
    fences: list[Fence] = field(default_factory=list[Fence])
    endings: dict[str, str] = field(default_factory=dict[str, str])

    async def post(self, number: int) -> None:
        session_id = self.sessions[number % len(self.sessions)]
        turn = await self.rig.post(
            session_id,
            budget=Budget(max_model_calls=1) if number % 3 else None,
            max_attempts=1 + number % 2,
            api_key_id=f"key_{number % 3}",
            start_by=self.rig.clock.now() + timedelta(seconds=number) if number % 5 == 0 else None,
        )
        self.turns.append(turn.id)

    async def interrupt(self, number: int) -> None:
        session_id = self.sessions[number % len(self.sessions)]
        self.turns.append((await self.rig.post(session_id, on_busy="interrupt")).id)

    async def expire(self, number: int) -> None:
        self.rig.clock.advance(number * 1_000)
        await self.rig.store.expire_starts(number)

    async def lose_attempt(self, number: int) -> None:
        await self.rig.retry(self._fence(number), delay_ms=number * 100)

    async def start_again(self, number: int) -> None:
        fence = self._fence(number)
        await self.rig.store.started(fence, [has_started(fence.turn_id)])

    async def claim(self, number: int) -> None:
        claim = await self.rig.store.claim(f"worker {number}", slot=number % 4 > 0)
        if claim is not None:
            self.fences.append(claim.fence)

    async def take_over(self, number: int) -> None:
        heir = f"heir {number}"
        seen = await self.rig.store.held_by_others(heir)
        if number % 2:
            await self.renew(number)
        claims = await self.rig.store.take_over(heir, seen)
        self.fences += [claim.fence for claim in claims]

    async def renew(self, number: int) -> None:
        self.rig.clock.jump(-LEASE_MS if number % 3 else LEASE_MS)
        await self.rig.store.renew(self._fence(number))

    async def go_on(self, number: int) -> None:
        fence = self._fence(number)
        await self.rig.store.starting(fence, [is_starting(fence.turn_id)])
        await self.rig.store.started(fence, [has_started(fence.turn_id)])

    async def try_again(self, number: int) -> None:
        fence = self._fence(number)
        if number % 2:
            await self.rig.store.starting(fence, [is_starting(fence.turn_id)])
        turn = await self.rig.store.retry_start(fence)
        self.fences.append(replace(fence, number=turn.fence))

    async def call(self, number: int) -> None:
        fence = self._fence(number)
        await self.rig.store.reserve(fence, input_tokens=10, max_output_tokens=300)
        if number % 2:
            await self.rig.store.settle(fence, CALL)

    async def settle(self, number: int) -> None:
        await self.rig.store.settle(self._fence(number), replace(CALL, output_tokens=number))

    async def step(self, number: int) -> None:
        fence = self._fence(number)
        method = ("steps/turnStart", "steps/toolCallRequest")[number % 2]
        new = a_step(self.rig.ids, fence.turn_id, method)
        step = await self.rig.store.ask_step(fence.session_id, new, fence, [a_note(fence.turn_id)])
        if number % 3:
            answer = StepAnswer("answered", "allow", f"hash {number}")
            await self.rig.store.answer_step(fence.session_id, step.request_id, answer, fence, [])

    async def release(self, number: int) -> None:
        await self.rig.store.release(self._fence(number))

    async def end(self, number: int) -> None:
        await self.rig.store.end(self._fence(number), ENDINGS[number % len(ENDINGS)])

    async def cancel(self, number: int) -> None:
        turn_id = self.turns[number % len(self.turns)]
        await self.rig.store.cancel_turn(turn_id, mode="immediate" if number % 2 else "graceful", by=BY_APP)

    async def pause(self, number: int) -> None:
        fence = self._fence(number)
        kind = ("ask", "deferral", "client")[number % 3]
        await self.rig.store.pause(fence, a_pause(self.rig.clock, self.rig.ids, fence, kind=kind), [])

    async def park(self, number: int) -> None:
        await self.rig.store.park(self._fence(number), [])

    async def answer(self, number: int) -> None:
        pending = (await self.rig.store.approvals(PageRequest(), status="pending")).items
        word = "approve" if number % 2 else "deny"
        await self.rig.store.decide_approval(pending[number % len(pending)].id, ApprovalAnswer(word, BY))

    async def resume(self, number: int) -> None:
        await self.rig.store.resume(self._fence(number))

    async def close(self, number: int) -> None:
        session_id = self.sessions[number % len(self.sessions)]
        await self.rig.store.close_session(session_id, mode="cancel" if number % 2 else "drain", by=BY_APP)

    async def remember(self) -> None:
        """No ending ever changes once it was seen."""
        for turn_id in self.turns:
            turn = await self.rig.store.turn(turn_id)
            if turn.terminal_data is not None:
                assert self.endings.setdefault(turn_id, turn.terminal_data) == turn.terminal_data
            assert turn.status.terminal == (turn.terminal_data is not None)

    def _fence(self, number: int) -> Fence:
        return self.fences[-1 - number % len(self.fences)]


DEEDS: Final[tuple[Callable[[World, int], Awaitable[None]], ...]] = (
    World.post,
    World.claim,
    World.go_on,
    World.end,
    World.call,
    World.step,
    World.cancel,
    World.settle,
    World.take_over,
    World.interrupt,
    World.expire,
    World.lose_attempt,
    World.start_again,
    World.renew,
    World.try_again,
    World.release,
    World.pause,
    World.park,
    World.answer,
    World.resume,
    World.close,
)
Deed = tuple[Callable[[World, int], Awaitable[None]], int]


async def live(url: str, deeds: list[Deed]) -> None:
    rig = await open_store(url)
    world = World(rig, [(await rig.session(budget=budget)).id for budget in (None, Budget(max_total_tokens=700))])
    for deed, number in deeds:
        try:
            await deed(world, number)
        except (TurnkeeperError, ZeroDivisionError):
            # Refused, or nobody there yet to do it; either way nothing may have changed by halves.
            continue
        await world.remember()
    await rig.store.close()


def test_no_sequence_of_deeds_breaks_a_store(store_url: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 12)), min_size=8, max_size=30))
    def law(deeds: list[Deed]) -> None:
        asyncio.run(live(store_url, deeds))
        assert broken(store_url) == {}

    law()


def test_the_way_from_a_post_to_an_answer_is_one_of_them(store_url: str) -> None:
    way: list[Deed] = [(World.post, 0), (World.claim, 1), (World.go_on, 0), (World.call, 1), (World.end, 0)]

    async def statuses() -> set[TurnStatus]:
        rig = await open_store(store_url)
        turns = await rig.store.turns(PageRequest())
        await rig.store.close()
        return {turn.status for turn in turns.items}

    asyncio.run(live(store_url, way))
    assert asyncio.run(statuses()) == {TurnStatus.COMPLETED}
