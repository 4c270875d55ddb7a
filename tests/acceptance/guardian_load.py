"""Many agents at one Guardian, and a memory of every answer that each of them was given.

An agent works through turns: a start, calls side by side, a batch of calls, an end. Whatever breaks on the way, it
waits until somebody says that the Guardian is there again and sends the step once more under its request_id, freshly
signed; so its sessions go on across restarts. What it was told is kept with the moments of sending and of hearing.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

import httpx
from tests.acceptance.server import Json

from turnkeeper.acs import Disposition, Keyring, ObservedSession, Refusal, ServerHello, Verdict, build_client_hello
from turnkeeper.acs.observed import Answer, Recorded
from turnkeeper.acs.strictjson import item_slices
from turnkeeper.clock import render_time

METHODS: Final = (
    "steps/sessionStart",
    "steps/turnStart",
    "steps/toolCallRequest",
    "steps/turnEnd",
    "steps/sessionEnd",
)
TOOL_CALL: Final[Mapping[str, object]] = {"tool": {"name": "shell"}, "arguments": {"command": {"value": "ls"}}}
CALLS_AT_ONCE: Final = 3
REQUEST_TIMEOUT_S: Final = 30.0
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Told:
    """One answered step: the bytes that were answered, and when it was first sent and then heard of."""

    method: str
    payload: Mapping[str, object]
    turn_id: str | None
    body: bytes
    decision: Disposition
    chain_hash: str
    sent_at: int
    heard_at: int


@dataclass
class Agent:
    """One agent with one session. `told` has what it was decided, by request_id; `undecided` other answers.

    `recovered` counts decisions whose first answer never came: they were told at the second asking.
    """

    load: "Load"
    session_id: str = field(default_factory=lambda: str(uuid4()))
    told: dict[str, Told] = field(default_factory=dict[str, Told])
    undecided: list[Answer] = field(default_factory=list[Answer])
    recovered: int = 0

    def __post_init__(self) -> None:
        self._session = ObservedSession.open(
            agent_id="loaded", session_id=self.session_id, keyring=self.load.keyring, key_id="default"
        )

    def signed(
        self, method: str, payload: Mapping[str, object], request_id: str, *, turn_id: str | None = None
    ) -> bytes:
        """A request with a fresh time and nonce."""
        at = render_time(datetime.now(UTC))
        return self._session.request(
            method, payload, request_id=request_id, timestamp=at, nonce=str(uuid4()), turn_id=turn_id
        )

    def read(self, raw: bytes, request_id: str) -> Answer:
        """What an answer says."""
        return self._session.answer(raw, request_id=request_id)

    async def work(self) -> None:
        """Turns until the load is told to end; then the session ends too."""
        await self.shake_hands()
        await self.decided("steps/sessionStart", {})
        while not self.load.ending.is_set():
            await self._turn()
        await self.decided("steps/sessionEnd", {"reason": "completed"})

    async def decided(self, method: str, payload: Mapping[str, object], *, turn_id: str | None = None) -> Told:
        """A step sent until it is decided and recorded, whatever happens to the Guardian meanwhile."""
        request_id, sent_at = str(uuid4()), self.load.moment()
        while True:
            body = self.signed(method, payload, request_id, turn_id=turn_id)
            raw = await self.load.post(body)
            if raw is not None and (said := self._said(raw, request_id)) is not None:
                return self._keep(request_id, Told(method, payload, turn_id, body, *said, sent_at, self.load.moment()))

    async def shake_hands(self) -> None:
        """Hellos until one is answered with terms."""
        while True:
            request_id = str(uuid4())
            hello = build_client_hello(methods=METHODS, transports=["http"])
            raw = await self.load.post(self.signed("handshake/hello", hello, request_id))
            if raw is not None and isinstance(self.read(raw, request_id), ServerHello):
                return

    async def _turn(self) -> None:
        turn_id = str(uuid4())
        await self.decided("steps/turnStart", {"turn_id": turn_id, "triggered_by": "user_message"}, turn_id=turn_id)
        calls = [self.decided("steps/toolCallRequest", TOOL_CALL, turn_id=turn_id) for _ in range(CALLS_AT_ONCE)]
        await asyncio.gather(*calls)
        await self._batch(turn_id)
        await self.decided("steps/turnEnd", {"turn_id": turn_id, "outcome": "completed"}, turn_id=turn_id)

    async def _batch(self, turn_id: str) -> None:
        left, sent_at = [str(uuid4()) for _ in range(CALLS_AT_ONCE)], self.load.moment()
        while left:
            bodies = [self.signed("steps/toolCallRequest", TOOL_CALL, one, turn_id=turn_id) for one in left]
            raw = await self.load.post(b"[" + b",".join(bodies) + b"]")
            if raw is None:
                continue
            answers = item_slices(raw)
            assert len(answers) == len(left)
            said = [self._said(answer, one) for answer, one in zip(answers, left, strict=True)]
            for one, body, heard in zip(left, bodies, said, strict=True):
                if heard is not None:
                    told = Told("steps/toolCallRequest", TOOL_CALL, turn_id, body, *heard, sent_at, self.load.moment())
                    self._keep(one, told)
            left = [one for one, heard in zip(left, said, strict=True) if heard is None]

    def _said(self, raw: bytes, request_id: str) -> tuple[Disposition, str] | None:
        """The decision in an answer and the head it stands under; None where nothing was recorded."""
        answer = self.read(raw, request_id)
        found = answer.recorded if isinstance(answer, Refusal) else answer
        self.recovered += isinstance(found, Recorded)
        if isinstance(found, Verdict | Recorded) and found.decision is not None and found.chain_hash is not None:
            return found.decision, found.chain_hash
        self.undecided.append(answer)
        return None

    def _keep(self, request_id: str, told: Told) -> Told:
        self.told[request_id] = told
        self.load.count()
        return told


class Load:
    """Agents that work side by side over one pool of connections."""

    def __init__(self, url: str, keyring: Keyring, *, agents: int, connections: int | None = None) -> None:
        self.url, self.keyring = url, keyring
        self.ending = asyncio.Event()
        self.agents = [Agent(self) for _ in range(agents)]
        self.statuses: set[int] = set()
        self.answered = 0
        self._there = asyncio.Event()
        self._there.set()
        self._moments = itertools.count()
        self._wanted: tuple[int, asyncio.Event] | None = None
        limits = httpx.Limits(max_connections=connections or CALLS_AT_ONCE * agents)
        self.http = httpx.AsyncClient(timeout=REQUEST_TIMEOUT_S, trust_env=False, limits=limits)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """The agents at work; at the end of the block their turns and sessions are brought to an end."""
        async with self.http, asyncio.TaskGroup() as group:
            for agent in self.agents:
                group.create_task(agent.work())
            yield
            self.ending.set()

    def moment(self) -> int:
        """The next moment: a greater one is a later one."""
        return next(self._moments)

    def gone(self) -> None:
        """The Guardian is about to go: whoever loses an answer waits for `back`."""
        self._there.clear()

    def back(self) -> None:
        """The Guardian is there again."""
        self._there.set()

    def count(self) -> None:
        """One more decision."""
        self.answered += 1
        if self._wanted is not None and self.answered >= self._wanted[0]:
            self._wanted[1].set()

    async def more(self, decisions: int) -> None:
        """Returns once so many more decisions were heard."""
        reached = asyncio.Event()
        self._wanted = (self.answered + decisions, reached)
        async with asyncio.timeout(PATIENCE_S):
            await reached.wait()

    async def post(self, body: bytes) -> bytes | None:
        """The answer to a body; None where the wire broke, once the Guardian is there again."""
        try:
            response = await self.http.post(self.url, content=body)
        except httpx.TransportError:
            async with asyncio.timeout(PATIENCE_S):
                await self._there.wait()
            return None
        self.statuses.add(response.status_code)
        return response.content if response.status_code == 200 else None


def check_line(told: Mapping[str, Told], rows: Sequence[Json]) -> None:
    """Each answered step is in the chain once, under the head it was told; nobody who asked later stands earlier."""
    ids = [str(row["request"]["params"]["request_id"]) for row in rows]
    assert len(set(ids)) == len(ids), "a request_id was accepted twice"
    place = {one: number for number, one in enumerate(ids)}
    for request_id, one in told.items():
        assert request_id in place, f"an answered {one.method} is not in the chain"
        assert rows[place[request_id]]["entry"]["entry_hash"] == one.chain_hash
    heard = sorted(told.items(), key=lambda item: item[1].heard_at)
    latest, known = -1, 0
    for request_id, one in sorted(told.items(), key=lambda item: item[1].sent_at):
        while heard[known][1].heard_at < one.sent_at:
            latest, known = max(latest, place[heard[known][0]]), known + 1
        assert place[request_id] > latest, "the published heads are no line"
