"""A Guardian on a real store, and an agent that talks to it through a door."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import orjson

from turnkeeper.acs import Keyring, ObservedSession, Refusal, ServerHello, Verdict, build_client_hello
from turnkeeper.clock import render_time
from turnkeeper.guardian.calls import OFFERED_METHODS, Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.guardian.ports import GuardianStore
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import parse_rules
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.testing.fake_clock import FakeClock

Result = TypeVar("Result")
Answer = Verdict | Refusal | ServerHello

KEYRING = Keyring({"default": b"d" * 32, "other": b"o" * 32})
STRANGERS = Keyring({"default": b"s" * 32, "unknown": b"u" * 32})
IN_PROCESS = Door("in_process", KEYRING)
NO_CLAIMS: Mapping[str, object] = {}
WITH_PROVENANCE: dict[str, object] = {
    "provenance_producer": "deterministic",
    "profiles_supported": ["acs-core", "acs-provenance"],
}
ALLOW_ALL = b"version: 1\nname: allow-all\ndefault: allow\nrules: []\n"
DENY_ALL = b"version: 1\nname: deny-all\ndefault: deny\nrules: []\n"
TOOL_CALL: Mapping[str, object] = {"tool": {"name": "shell"}, "arguments": {"command": {"value": "ls"}}}
MESSAGE: Mapping[str, object] = {"content": [{"type": "text", "value": "hello"}]}


def engine(policy: bytes = ALLOW_ALL) -> CelEngine:
    """An engine over a policy's text."""
    return CelEngine(parse_rules(policy))


@dataclass
class House:
    """A running Guardian with its clock."""

    guardian: Guardian
    clock: FakeClock
    path: Path

    def agent(
        self, *, agent_id: str = "agent", key_id: str = "default", keyring: Keyring = KEYRING, session_id: str = ""
    ) -> "Agent":
        """An agent that has not shaken hands yet, with a session of its own unless one is named."""
        return Agent(self.guardian, self.clock, agent_id, key_id, keyring, session_id=session_id or str(uuid4()))


@asynccontextmanager
async def house(
    folder: Path,
    *,
    policy: PolicyEngine | None = None,
    settings: GuardianSettings | None = None,
    clock: FakeClock | None = None,
    wrap: Callable[[GuardianStore], GuardianStore] = lambda store: store,
) -> AsyncGenerator[House, None]:
    """A Guardian over guardian.db in a folder; a second one over the same folder is a restart."""
    path = folder / "guardian.db"
    time = clock or FakeClock()
    guardian = Guardian(store=wrap(SqliteGuardianStore(path)), engine=policy or engine(), clock=time, settings=settings)
    await guardian.start()
    try:
        yield House(guardian, time, path)
    finally:
        await guardian.stop()


@dataclass
class Agent:
    """An Observed Agent with one session. `sent` holds every body, in order."""

    guardian: Guardian
    clock: FakeClock
    agent_id: str = "agent"
    key_id: str = "default"
    keyring: Keyring = KEYRING
    door: Door = IN_PROCESS
    session_id: str = field(default_factory=lambda: str(uuid4()))
    sent: list[bytes] = field(default_factory=list[bytes])
    answers: list[bytes] = field(default_factory=list[bytes])

    @property
    def session(self) -> ObservedSession:
        """The signing half."""
        return ObservedSession.open(
            agent_id=self.agent_id, session_id=self.session_id, keyring=self.keyring, key_id=self.key_id
        )

    def body(
        self,
        method: str,
        payload: Mapping[str, object],
        *,
        request_id: str | None = None,
        nonce: str | None = None,
        turn_id: str | None = None,
        chain_hash: str | None = None,
        timestamp: str | None = None,
    ) -> bytes:
        """A signed request."""
        return self.session.request(
            method,
            payload,
            request_id=request_id or str(uuid4()),
            timestamp=timestamp or render_time(self.clock.now()),
            nonce=nonce or str(uuid4()),
            turn_id=turn_id,
            chain_hash=chain_hash,
        )

    async def post(self, body: bytes) -> Answer:
        """Sends a body as it is and judges the answer."""
        request_id = orjson.loads(body)["params"]["request_id"]
        raw = await self.guardian.answer(body, self.door)
        self.sent.append(body)
        self.answers.append(raw)
        return self.session.answer(raw, request_id=request_id)

    async def hello(
        self,
        *,
        methods: list[str] | None = None,
        transports: tuple[str, ...] = ("http",),
        claims: Mapping[str, object] = NO_CLAIMS,
    ) -> Answer:
        """Shakes hands; `claims` are further members of the hello."""
        names = sorted(OFFERED_METHODS) if methods is None else methods
        payload = build_client_hello(methods=names, transports=transports) | dict(claims)
        return await self.post(self.body("handshake/hello", payload))

    async def step(self, hook: str, payload: Mapping[str, object], **members: str | None) -> Verdict:
        """A step that must get a decision; `hook` may be a whole method."""
        answer = await self.post(self.body(hook if "/" in hook else f"steps/{hook}", payload, **members))
        assert isinstance(answer, Verdict), answer
        return answer

    async def refused(self, hook: str, payload: Mapping[str, object], **members: str | None) -> Refusal:
        """A step that must get an error; `hook` may be a whole method."""
        answer = await self.post(self.body(hook if "/" in hook else f"steps/{hook}", payload, **members))
        assert isinstance(answer, Refusal), answer
        return answer

    async def tool(self, turn_id: str | None = None, **members: str | None) -> Verdict:
        """A tool call."""
        return await self.step("toolCallRequest", TOOL_CALL, turn_id=turn_id, **members)

    async def turn_start(self, turn_id: str) -> Verdict:
        """The start of a turn."""
        return await self.step("turnStart", {"turn_id": turn_id, "triggered_by": "user_message"}, turn_id=turn_id)

    async def turn_end(self, turn_id: str, **counts: object) -> Verdict:
        """The end of a turn."""
        return await self.step("turnEnd", {"turn_id": turn_id, "outcome": "completed"} | counts, turn_id=turn_id)


def findings(here: House) -> list[str]:
    """The codes of all findings, in order."""
    with SqliteChainReader(here.path) as reader:
        return [found.finding.code for found in reader.findings(limit=99)]


async def greeted(here: House, *, session_id: str = "", claims: Mapping[str, object] = NO_CLAIMS) -> Agent:
    """An agent whose session exists; `claims` are further members of its hello."""
    agent = here.agent(session_id=session_id)
    answer = await agent.hello(claims=claims)
    assert isinstance(answer, ServerHello), answer
    return agent


def running(
    folder: Path,
    work: Callable[[House], Awaitable[Result]],
    *,
    policy: PolicyEngine | None = None,
    settings: GuardianSettings | None = None,
    clock: FakeClock | None = None,
    wrap: Callable[[GuardianStore], GuardianStore] = lambda store: store,
) -> Result:
    """Runs some work against a Guardian and returns what it returns."""

    async def main() -> Result:
        async with house(folder, policy=policy, settings=settings, clock=clock, wrap=wrap) as here:
            return await work(here)

    return asyncio.run(main())
