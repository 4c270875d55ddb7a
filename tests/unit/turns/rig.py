"""A worker on a real SQLite store, with a Guardian and boxes that do as they are told."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import jsonschema_rs
import orjson

from turnkeeper.acs import Keyring
from turnkeeper.clock import Clock, SystemClock
from turnkeeper.events.envelope import Event
from turnkeeper.ids import RandomIds
from turnkeeper.sandbox.tools import TOOLS
from turnkeeper.store.content_folder import FolderContents
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.store.tx import StoreLimits
from turnkeeper.testing.recording_sandbox import HarnessScript, RecordingGateway, RecordingSandbox, ScriptedHarness
from turnkeeper.testing.scripted_guardian import ScriptedGuardian
from turnkeeper.turns.exchange import Exchange
from turnkeeper.turns.governor import Governor, GovernorSettings
from turnkeeper.turns.model import (
    BUILTIN,
    AgentLimits,
    Budget,
    CanceledBy,
    ClientTool,
    HarnessChoice,
    ModelChoice,
    Session,
    SkillRef,
    Subagent,
    Turn,
)
from turnkeeper.turns.open_texts import OpenTexts
from turnkeeper.turns.permissions import Permission
from turnkeeper.turns.ports import GuardianLink, NewAgent, NewSession, NewTurn
from turnkeeper.turns.schema_check import SchemaError
from turnkeeper.turns.timing import LoopWaiter, Waiter
from turnkeeper.turns.wakeups import LocalWakeups
from turnkeeper.turns.workbench import Workbench, WorkerSettings
from turnkeeper.turns.worker import Worker

KEYRING: Final = Keyring({"platform": bytes(range(32))})
DEADLINE_S: Final = 60
SETTINGS: Final = WorkerSettings(poll_ms=200, reap_ms=200, cancel_grace_ms=200, budget_grace_ms=200)
IMPATIENT: Final = GovernorSettings(decision_timeout_ms=500, first_backoff_ms=5, max_backoff_ms=20)
BY_USER: Final = CanceledBy("user", "somebody")


class AllGone:
    """Everybody else has ended."""

    async def gone(self, owners: Collection[str]) -> frozenset[str]:
        return frozenset(owners)


class LocalChecker:
    """Schemas checked in this process: a test's own schemas do no harm."""

    async def compile(self, schema_json: str) -> None:
        jsonschema_rs.validator_for(orjson.loads(schema_json))

    async def check(self, schema_json: str, value_json: str) -> tuple[SchemaError, ...]:
        found = jsonschema_rs.validator_for(orjson.loads(schema_json)).iter_errors(orjson.loads(value_json))
        return tuple(SchemaError("/", "/", "schema", error.message) for error in found)


@dataclass(slots=True)
class Rig:
    """Everything a test looks at."""

    store: SqlTurnStore
    wakeups: LocalWakeups
    guardian: ScriptedGuardian
    sandbox: RecordingSandbox
    gateway: RecordingGateway
    bench: Workbench
    worker: Worker
    working: asyncio.Task[None] | None = None
    tools: tuple[str, ...] = ("shell",)
    limits: AgentLimits = field(default_factory=AgentLimits)
    permissions: dict[str, Permission] = field(default_factory=dict[str, Permission])
    client_tools: tuple[ClientTool, ...] = ()
    harness: HarnessChoice = BUILTIN
    streamed: bool = False
    subagents: tuple[Subagent, ...] = ()
    skills: tuple[SkillRef, ...] = ()

    def work(self) -> None:
        """The worker begins."""
        self.working = asyncio.create_task(self.worker.run())

    async def stop(self) -> None:
        """The worker goes away at once, as if the process had ended."""
        if self.working is not None:
            self.working.cancel()
            await asyncio.wait({self.working})
            self.working = None

    def again(self) -> Worker:
        """Another worker on the same store, as after a restart."""
        self.bench = replace(self.bench, owner=f"{self.bench.owner}+", liveness=AllGone())
        self.worker = Worker(self.bench)
        return self.worker

    async def session(self, *, budget: Budget | None = None) -> Session:
        agent = await self.store.create_agent(
            NewAgent(
                "agent",
                ModelChoice("stub", "model"),
                "Be brief.",
                self.tools,
                self.limits,
                "{}",
                permissions=self.permissions,
                client_tools=self.client_tools,
                harness=self.harness,
                subagents=self.subagents,
                skills=self.skills,
                stream_before_decision=self.streamed,
            )
        )
        return await self.store.create_session(NewSession(agent.id, None, "{}", budget))

    async def post(
        self,
        session: Session,
        text: str = "hello",
        *,
        schema: str | None = None,
        budget: Budget | None = None,
        repairs: int = 3,
        attempts: int = 1,
    ) -> str:
        """A turn's id."""
        new = NewTurn(session.id, text, orjson.dumps(text).decode(), schema, '{"a":1}', budget, repairs, None, None)
        return (await self.store.accept_turn(replace(new, max_attempts=attempts))).turn.id

    async def until(self, turn_id: str, reached: Callable[[Turn], bool]) -> Turn:
        """The turn once it is as the test wants it."""
        session_id = (await self.store.turn(turn_id)).session_id
        async with asyncio.timeout(DEADLINE_S):
            with self.wakeups.watch(session_id) as watch:
                while not reached(turn := await self.store.turn(turn_id)):
                    await watch.wait(timeout_ms=1_000)
        return turn

    async def ended(self, turn_id: str) -> Turn:
        """The turn once it is terminal."""
        return await self.until(turn_id, lambda turn: turn.status.terminal)

    async def freed(self, turn_id: str) -> None:
        """Once no worker holds the turn."""
        async with asyncio.timeout(DEADLINE_S):
            with self.wakeups.watch("queue") as watch:
                while turn_id in {hold.fence.turn_id for hold in await self.store.held_by_others("nobody")}:
                    await watch.wait(timeout_ms=200)

    async def run_turn(
        self,
        session: Session | None = None,
        *,
        schema: str | None = None,
        budget: Budget | None = None,
        repairs: int = 3,
    ) -> Turn:
        """One turn, from its post to its end."""
        session = session or await self.session()
        return await self.ended(await self.post(session, schema=schema, budget=budget, repairs=repairs))

    async def settled(self, session_id: str) -> None:
        """Once the Guardian has answered every step of a session."""
        async with asyncio.timeout(DEADLINE_S):
            with self.wakeups.watch(session_id) as watch:
                while await self.store.pending_steps(session_id):
                    await watch.wait(timeout_ms=100)

    async def events(self, turn: Turn) -> list[Event]:
        return list(await self.store.events(turn.session_id, after=0, limit=1_000, turn_id=turn.id))

    async def types(self, turn: Turn) -> list[str]:
        return [event.type for event in await self.events(turn)]


async def answer(harness: ScriptedHarness) -> None:
    """A harness that calls its model once and ends in text."""
    await harness.begin()
    await harness.call_model()
    await harness.report("done")


def script(body: Callable[[ScriptedHarness], Awaitable[None]]) -> HarnessScript:
    """A harness that has begun when `body` runs."""

    async def run(harness: ScriptedHarness) -> None:
        await harness.begin()
        await body(harness)

    return run


@asynccontextmanager
async def rig(
    tmp_path: Path,
    *scripts: HarnessScript,
    link: GuardianLink | None = None,
    settings: WorkerSettings = SETTINGS,
    governor: GovernorSettings = IMPATIENT,
    clock: Clock | None = None,
    waiter: Waiter | None = None,
    limits: StoreLimits | None = None,
    start: bool = True,
) -> AsyncGenerator[Rig]:
    clock, waiter = clock or SystemClock(), waiter or LoopWaiter()
    wakeups = LocalWakeups()
    store = await SqlTurnStore.open(
        f"sqlite:///{tmp_path}/turnkeeper.db", clock=clock, ids=RandomIds(clock), wakeups=wakeups, limits=limits
    )
    guardian, gateway, ids = ScriptedGuardian(KEYRING), RecordingGateway(), RandomIds(clock)
    sandbox = RecordingSandbox(ids, gateway, *(scripts or (answer,)))
    exchange = Exchange(link or guardian, KEYRING, "platform", clock=clock, ids=ids, waiter=waiter)
    bench = Workbench(
        owner="wrk",
        store=store,
        governor=Governor(store, exchange, clock=clock, waiter=waiter, settings=governor),
        boxes=sandbox,
        gateway=gateway,
        checker=LocalChecker(),
        files=store.files(),
        contents=FolderContents(tmp_path / "contents", clock),
        wakeups=wakeups,
        clock=clock,
        waiter=waiter,
        ids=ids,
        workspaces=tmp_path / "workspaces",
        skill_folders=tmp_path / "skills",
        tools=TOOLS,
        output_mode_of=lambda _: "tool",
        settings=settings,
        texts=OpenTexts(wakeups),
    )
    made = Rig(store, wakeups, guardian, sandbox, gateway, bench, Worker(bench))
    try:
        if start:
            made.work()
        yield made
    finally:
        await made.stop()
        await store.close()
