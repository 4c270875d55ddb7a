"""The turn API on a real SQLite store, in process, and a worker's hand to move turns along."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from turnkeeper.api.app import build_api
from turnkeeper.api.auth import generate_secret
from turnkeeper.api.deps import ApiDeps, ApiSettings, Readiness
from turnkeeper.api.stream_registry import StreamRegistry
from turnkeeper.clock import Clock, SystemClock
from turnkeeper.events.catalogue import turn_started, turn_starting
from turnkeeper.ids import RandomIds
from turnkeeper.sealing import Sealer
from turnkeeper.store.content_folder import FolderContents
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.store.tx import StoreLimits
from turnkeeper.turns.lifecycle import Happening
from turnkeeper.turns.model import ApiKey, Claim, Ending, StopReason, TurnStatus
from turnkeeper.turns.open_texts import OpenTexts
from turnkeeper.turns.schema_check import ProcessSchemaChecker, SchemaLimits
from turnkeeper.turns.wakeups import LocalWakeups

Json = dict[str, Any]
DEADLINE_S = 30
LEASE_MS = 60_000


@dataclass(frozen=True)
class Api:
    """An open API: the application, a client that shows a key, the store behind it."""

    app: FastAPI
    client: httpx.AsyncClient
    deps: ApiDeps
    store: SqlTurnStore
    key: ApiKey
    secret: str

    async def made(self, path: str, body: Json | None = None, **headers: str) -> Json:
        """What a POST that succeeds answers."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.client.post(path, json=body or {}, headers=named)
        assert answer.status_code in {200, 201, 202}, answer.text
        return answer.json()

    async def seen(self, path: str) -> Json:
        """What a GET that succeeds answers."""
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refused(self, method: str, path: str, **request: Any) -> Json:
        """The problem that a request gets."""
        answer = await self.client.request(method, path, **request)
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        problem: Json = answer.json()
        assert problem["status"] == answer.status_code
        assert problem["request_id"] == answer.headers["Request-Id"]
        return problem

    async def session(self, **fields: Any) -> str:
        """A fresh session with a fresh agent."""
        agent = await self.made("/v1/agents", AGENT)
        return str((await self.made("/v1/sessions", {"agent_id": agent["id"], **fields}))["id"])

    async def turn(self, session_id: str, **fields: Any) -> Json:
        """A fresh turn."""
        return await self.made(f"/v1/sessions/{session_id}/turns", {"input": "hi", **fields})

    async def started(self) -> Claim:
        """The next turn, claimed and running."""
        claim = await self.store.claim("worker", slot=True)
        assert claim is not None
        turn_id = claim.turn.id
        starting = turn_starting(turn_id=turn_id, queue_ms=1, try_number=1, sandbox_kind="none")
        await self.store.starting(claim.fence, [starting])
        sandbox_id = self.deps.ids.new("sbx")
        running = turn_started(turn_id=turn_id, attempt=1, sandbox_id=sandbox_id, start_ms=1, warm=True)
        await self.store.started(claim.fence, [running])
        return claim

    async def completed(self, claim: Claim, text: str = "done", **fields: Any) -> None:
        """The end of a running turn, with an answer."""
        wanted: Json = {"result_json": None, "result_error": None, **fields}
        ending = Ending(
            happening=Happening.REPORT_COMPLETED,
            status=TurnStatus.COMPLETED,
            stop_reason=StopReason.END_TURN,
            source="sandbox",
            text=text,
            duration_ms=5,
            turn_outcome="completed",
            **wanted,
        )
        await self.store.end(claim.fence, ending)


AGENT: Json = {"name": "a", "model": {"provider": "stub", "id": "m"}, "instructions": "Be brief.", "tools": ["shell"]}


def serve(
    folder: Path,
    work: Callable[[Api], Awaitable[None]],
    settings: ApiSettings | None = None,
    *,
    streams: StreamRegistry | None = None,
    queue_depth: int = 100,
) -> None:
    """Runs `work` against a fresh API in `folder`."""

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S), opened(folder, settings, streams, queue_depth) as api:
            await work(api)

    asyncio.run(main())


@asynccontextmanager
async def opened(
    folder: Path,
    settings: ApiSettings | None = None,
    streams: StreamRegistry | None = None,
    queue_depth: int = 100,
    *,
    clock: Clock | None = None,
    url: str | None = None,
) -> AsyncGenerator[Api]:
    clock, news = clock or SystemClock(), LocalWakeups()
    store = await SqlTurnStore.open(
        url or f"sqlite:///{folder}/turnkeeper.db",
        clock=clock,
        ids=RandomIds(clock),
        wakeups=news,
        limits=StoreLimits(queue_depth=queue_depth),
    )
    made = generate_secret()
    key = await store.create_key(name="test", secret_sha256=made.sha256)
    checker = ProcessSchemaChecker(SchemaLimits(cpu_ms=300))

    async def readiness() -> Readiness:
        await store.ping()
        return Readiness(ready=True, checks={"store": True}, counters={"dead_letters": 0})

    deps = ApiDeps(
        store=store,
        news=news,
        schema_checker=checker,
        clock=clock,
        ids=RandomIds(clock),
        cursor_secret=b"c" * 32,
        readiness=readiness,
        webhooks=store.webhooks(),
        budgets=store.budgets(),
        creations=store.creations(),
        access=store.access(),
        retention=store.retention(),
        operations=store.operations(),
        files=store.files(),
        contents=FolderContents(folder / "contents", clock),
        skills=store.skills(),
        secrets=store.secrets(Sealer(b"5e" * 32)),
        providers=frozenset({"stub"}),
        tool_names=frozenset({"shell", "read_file"}),
        model_params=frozenset({"temperature"}),
        # Nobody is saved by the look once in a while: what waits here waits for news.
        settings=settings or ApiSettings(poll_ms=600_000),
        streams=streams or StreamRegistry(),
        texts=OpenTexts(news),
    )
    app = build_api(deps)
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://turnkeeper",
            headers={"Authorization": f"Bearer {made.secret}"},
        ) as client:
            yield Api(app, client, deps, store, key, made.secret)
    finally:
        await checker.close()
        await store.close()
