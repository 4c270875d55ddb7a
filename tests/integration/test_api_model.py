"""Apps, workers and time at the same API in any order, with faults: what is promised of every turn holds throughout.

A state machine on the real application and store. Apps lose answers and ask again, workers die and are replaced, turns
wait for people and for apps, are canceled and interrupted, sessions are closed.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.contract.wholeness import broken
from tests.integration.api_door import Api, Json, opened
from tests.integration.scripted_worker import MOVES, RETRY_MS, Hand, Move

from turnkeeper.events.envelope import Event
from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.turns.model import Claim, Turn
from turnkeeper.turns.ports import PageRequest, StaleFence

SESSIONS: Final = 2
DRAIN_ROUNDS: Final = 60
TERMINAL: Final = frozenset({"turn.completed", "turn.failed", "turn.canceled"})
BEGUN: Final[tuple[Move, ...]] = ("answer", "answer")
"""What brings a turn from its claim to its first line of code, whatever it does then."""

SHORT: Final = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    database=None,
    # What failed leaves its turns behind, so a second run of it would not be the same.
    phases=(Phase.generate,),
    report_multiple_bugs=False,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
)


@dataclass(frozen=True)
class House:
    """An API on a clock that moves by hand, the loop it lives in, and where its store is."""

    api: Api
    run: asyncio.Runner
    clock: FakeClock
    url: str


@dataclass(frozen=True)
class Posted:
    """What an app asked for, to be asked again."""

    session_id: str
    key: str
    body: Json
    turn_id: str


class Life(RuleBasedStateMachine):
    """Everything that can happen, one thing after the other."""

    house: ClassVar[House]

    def __init__(self) -> None:
        super().__init__()
        self.sessions: list[str] = []
        self.posts: list[Posted] = []
        self.hands: list[Hand] = []
        self.dead: list[Hand] = []
        self.endings: dict[str, str] = {}
        self.waits = False
        self.workers = 0

    @initialize()
    def open_sessions(self) -> None:
        self.sessions = [self._run(self.house.api.session()) for _ in range(SESSIONS)]

    @rule(number=st.integers(0, 9), on_busy=st.sampled_from(("enqueue", "enqueue", "reject", "interrupt")))
    def post(self, number: int, on_busy: str) -> None:
        """An app posts, and sometimes never hears that it was heard."""
        session_id = self.sessions[number % SESSIONS]
        body = {"input": "hi", "on_busy": on_busy, "max_attempts": 1 + number % 2}
        key = f"{session_id}-{len(self.posts)}-{number}"
        status, first = self._post(session_id, key, body)
        assert status in {202, 409}, first
        if status == 202:
            self.posts.append(Posted(session_id, key, body, first["id"]))
        if number % 3 == 0:
            again, answer = self._post(session_id, key, body)
            assert (again, answer.get("id")) == ((200, first["id"]) if status == 202 else (409, None))

    @precondition(lambda self: self.posts)
    @rule(number=st.integers(0, 99))
    def repeat(self, number: int) -> None:
        """An app that was away asks again, however long ago it was."""
        posted = self.posts[number % len(self.posts)]
        status, answer = self._post(posted.session_id, posted.key, posted.body)
        assert (status, answer["id"]) == (200, posted.turn_id)

    @precondition(lambda self: len(self.posts) > len(self.endings))
    @rule(moves=st.lists(st.sampled_from(MOVES), min_size=1, max_size=4))
    def claim(self, moves: list[Move]) -> None:
        """A worker takes the next turn, and gets some way with it."""
        claim = self._run(self.house.api.store.claim(self._worker(), slot=True))
        if claim is not None:
            self._take(claim, inherited=False)
            for move in moves:
                if self.hands and self.hands[-1].turn_id == claim.turn.id:
                    self.work(len(self.hands) - 1, move)

    @precondition(lambda self: self.hands)
    @rule(number=st.integers(0, 9), move=st.sampled_from(MOVES))
    def work(self, number: int, move: Move) -> None:
        hand = self.hands[number % len(self.hands)]
        self.waits = self.waits or move in {"ask", "client"}
        if not self._run(hand.move(move)):
            self.hands.remove(hand)

    @precondition(lambda self: self.hands)
    @rule(number=st.integers(0, 9))
    def die(self, number: int) -> None:
        """A worker is killed: it says nothing any more of any of its turns, and gives none back."""
        owner = self.hands[number % len(self.hands)].fence.owner
        self.dead += [hand for hand in self.hands if hand.fence.owner == owner]
        self.hands = [hand for hand in self.hands if hand.fence.owner != owner]

    @precondition(lambda self: self.dead)
    @rule()
    def take_over(self) -> None:
        """Another worker takes what the dead left; what they still had to say is refused."""
        store, gone = self.house.api.store, {hand.fence.owner for hand in self.dead}
        heir = self._worker()
        holds = [hold for hold in self._run(store.held_by_others(heir)) if hold.fence.owner in gone]
        for claim in self._run(store.take_over(heir, holds)):
            self._take(claim, inherited=True)
        for hand in self.dead:
            with pytest.raises(StaleFence):
                self._run(hand.end())
        self.dead.clear()

    @precondition(lambda self: len(self.posts) > len(self.endings) + 1)
    @rule(number=st.integers(0, 99), mode=st.sampled_from(("graceful", "immediate")), twice=st.booleans())
    def cancel(self, number: int, mode: str, twice: bool) -> None:
        """Whoever posted a turn wants it no more, ended or not, and says so once or twice."""
        path = f"/v1/turns/{self.posts[number % len(self.posts)].turn_id}/cancel"
        for _ in range(1 + twice):
            self._made(path, {"mode": mode})

    @precondition(lambda self: self.waits)
    @rule(number=st.integers(0, 9), yes=st.booleans(), twice=st.booleans())
    def answer(self, number: int, yes: bool, twice: bool) -> None:
        """A person or an app answers one of the turns that wait."""
        session_id = self.sessions[number % SESSIONS]
        for turn in self._turns(session_id):
            pause = self._run(self.house.api.store.open_pause(turn.id))
            if turn.status != "paused" or pause is None or pause.state != "waiting":
                continue
            path, body = f"/v1/turns/{turn.id}/tool_results", {"tool_call_id": pause.call.tool_call_id, "output": yes}
            if pause.approval is not None:
                path, body = f"/v1/approvals/{pause.approval.id}/decision", {"decision": "approve" if yes else "deny"}
            for _ in range(1 + twice):
                self._made(path, body)

    @precondition(lambda self: len(self.posts) > SESSIONS)
    @rule(number=st.integers(0, 9), mode=st.sampled_from(("drain", "cancel")))
    def close(self, number: int, mode: str) -> None:
        # Rarely, or nothing much would happen before it.
        if number < SESSIONS:
            self._made(f"/v1/sessions/{self.sessions[number]}/close", {"mode": mode})

    @precondition(lambda self: self.hands or self.waits)
    @rule(delay_ms=st.sampled_from((1_000, RETRY_MS, 3_700_000)))
    def wait(self, delay_ms: int) -> None:
        self.house.clock.advance(delay_ms)
        self._run(self.house.api.store.expire_pauses(100))

    @invariant()
    def every_promise_holds(self) -> None:
        for session_id in self.sessions:
            events = self._run(self.house.api.store.events(session_id, after=0, limit=10_000))
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            check_order(events)
            for event in events:
                if event.type in TERMINAL and event.turn_id is not None:
                    assert self.endings.setdefault(event.turn_id, event.id) == event.id, "two endings"

    def teardown(self) -> None:
        """The workers that are left finish everything: each accepted turn then has ended once."""
        for session_id in self.sessions:
            self._made(f"/v1/sessions/{session_id}/close", {"mode": "drain"})
        for _ in range(DRAIN_ROUNDS):
            self.claim([])
            self.wait(3_700_000)
            if self.dead:
                self.take_over()
            for hand in list(self.hands):
                self.work(self.hands.index(hand), "answer")
            if not self.hands and all(turn.status.terminal for one in self.sessions for turn in self._turns(one)):
                break
        self.every_promise_holds()
        assert {posted.turn_id for posted in self.posts} == set(self.endings)
        assert broken(self.house.url) == {}

    def _take(self, claim: Claim, *, inherited: bool) -> None:
        """Never past a turn that was posted before, unless by one that interrupts; never a second one of a session."""
        turn, api = claim.turn, self.house.api
        before = [
            other.id for other in self._turns(turn.session_id) if other.seq < turn.seq and not other.status.terminal
        ]
        assert not before or turn.on_busy == "interrupt"
        assert turn.session_id not in {hand.fence.session_id for hand in self.hands}
        self.hands.append(Hand(api.store, self.house.clock, api.deps.ids, claim.fence, inherited))

    def _post(self, session_id: str, key: str, body: Json) -> tuple[int, Json]:
        path, headers = f"/v1/sessions/{session_id}/turns", {"Idempotency-Key": key}
        answer = self._run(self.house.api.client.post(path, json=body, headers=headers))
        return answer.status_code, answer.json()

    def _made(self, path: str, body: Json) -> Json:
        return self._run(self.house.api.made(path, body))

    def _turns(self, session_id: str) -> tuple[Turn, ...]:
        page = PageRequest(limit=100)
        return tuple(self._run(self.house.api.store.turns(page, session_id=session_id)).items)

    def _worker(self) -> str:
        self.workers += 1
        return f"worker-{id(self)}-{self.workers}"

    def _run(self, work: Any) -> Any:
        return self.house.run.run(work)


def check_order(events: tuple[Event, ...]) -> None:
    """No turn of a session begins before another that began has ended, and nothing is said of one that has ended."""
    active: str | None = None
    ended = set[str]()
    for event in events:
        assert event.turn_id not in ended, f"{event.type} after the end"
        if event.type == "turn.starting":
            assert active in {None, event.turn_id}, "two turns at once"
            active = event.turn_id
        if event.type in TERMINAL and event.turn_id is not None:
            ended.add(event.turn_id)
            active = None if active == event.turn_id else active


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    clock = FakeClock()
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        api = runner.run(stack.enter_async_context(opened(tmp_path, clock=clock)))
        try:
            yield House(api, runner, clock, f"sqlite:///{tmp_path}/turnkeeper.db")
        finally:
            runner.run(stack.aclose())


def living(house: House) -> type[Life]:
    """Lives in a house: hypothesis makes them without arguments."""
    return type("LifeHere", (Life,), {"house": house})


def test_whatever_apps_workers_and_time_do_every_turn_ends_once_and_in_order(house: House) -> None:
    run_state_machine_as_test(living(house), settings=SHORT)


def test_waits_deaths_and_interrupts_are_among_what_they_do(house: House) -> None:
    life = living(house)()
    life.open_sessions()
    life.post(0, "enqueue")
    life.post(6, "enqueue")
    life.claim([*BEGUN, "ask", "answer"])
    life.answer(0, yes=True, twice=True)
    life.claim(["answer", "answer"])
    life.claim([*BEGUN, "client"])
    life.die(0)
    life.take_over()
    life.post(4, "interrupt")
    life.teardown()
    events = house.run.run(house.api.store.events(life.sessions[0], after=0, limit=1_000))
    assert {"turn.paused", "turn.resumed", "approval.resolved"} <= {event.type for event in events}
    assert {event.type for event in events} >= {"turn.completed", "turn.canceled"}
