"""A worker on a real store, and runners that come to it over the HTTP application, in process."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import httpx
from tests.unit.turns.rig import SETTINGS, Rig, rig

from turnkeeper.clock import Clock, SystemClock
from turnkeeper.ids import RandomIds
from turnkeeper.runners.app import RunnerParts, build_runner_app
from turnkeeper.runners.calls import RunnerCalls
from turnkeeper.runners.leases import LeaseTerms
from turnkeeper.runners.pools import RunnerPools
from turnkeeper.runners.tokens import LeaseTokens, PoolTokens, token_sha256
from turnkeeper.sandbox.state_dir import remove_tree
from turnkeeper.testing.recording_sandbox import RecordingSandbox
from turnkeeper.turns.box_ports import LoopBox, LoopOrder, NetworkOrder, ToolBox
from turnkeeper.turns.governor import GovernorSettings
from turnkeeper.turns.model import BoxSize, ModelChoice, Session
from turnkeeper.turns.ports import NewAgent, NewSession
from turnkeeper.turns.timing import LoopWaiter
from turnkeeper.turns.workbench import WorkerSettings
from turnkeeper.turns.worker import QUEUE_TOPIC, Worker

POOL: Final = "gpu"
POOL_TOKEN: Final = "tkw_of-the-tests"
TTL_MS: Final = 60_000
SETTINGS_ELSEWHERE: Final = replace(SETTINGS, lease_ttl_ms=TTL_MS)

PATIENT: Final = GovernorSettings(decision_timeout_ms=20_000, first_backoff_ms=5, max_backoff_ms=20)

Json = dict[str, Any]

TOKENS: Final = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
NO_USAGE: Final[Json] = {
    **dict.fromkeys((*TOKENS, "total_tokens", "model_calls", "tool_calls", "sandbox_ms"), 0),
    "cost": None,
    "by_model": [],
    "estimated": False,
}


def report(text: str = "done", **changed: object) -> Json:
    """The seven fields of a turn that has finished."""
    return {
        "status": "completed",
        "stop_reason": "end_turn",
        "output": {"text": text},
        "result": None,
        "result_error": None,
        "usage": NO_USAGE,
        "duration_ms": 1,
        **changed,
    }


@dataclass(frozen=True, slots=True)
class _Boxes:
    """`Boxes` of a worker that has some of its own, and runners."""

    own: RecordingSandbox
    runners: RunnerPools

    @property
    def kind(self) -> str:
        return self.own.kind

    async def loop_box(self, order: LoopOrder) -> LoopBox:
        return await (self.own.loop_box(order) if order.pool is None else self.runners.loop_box(order))

    async def tool_box(
        self, workspace: Path, size: BoxSize, network: NetworkOrder | None = None, *, skills: Path | None = None
    ) -> ToolBox:
        return await self.own.tool_box(workspace, size, network, skills=skills)


@dataclass(slots=True)
class Runner:
    """One runner with its lease, if it has one."""

    http: httpx.AsyncClient
    lease: Json = field(default_factory=dict[str, Any])

    async def take(self, *, wait_ms: int = 20_000, token: str = POOL_TOKEN, pool: str = POOL) -> httpx.Response:
        """Asks for a turn, and keeps the lease."""
        body = {"pool": pool, "kinds": ["remote"], "capacity": 1, "wait_ms": wait_ms}
        answer = await self.http.post("/worker/v1/leases", json=body, headers=_bearer(token))
        if answer.status_code == 200:
            self.lease = answer.json()
        return answer

    async def begin(self) -> None:
        """Takes a turn and says that it runs."""
        assert (await self.take()).status_code == 200
        assert (await self.call("started", sandbox_id=self.lease["sandbox_id"])).status_code == 200

    async def call(self, verb: str, **body: object) -> httpx.Response:
        """One call of the lease; what is named wins over what the lease says."""
        token, turn_id = str(body.pop("token", self.lease["token"])), body.pop("turn_id", self.lease["turn"]["id"])
        whole = {"fence": self.lease["fence"], **body}
        return await self.http.post(f"/worker/v1/turns/{turn_id}/{verb}", json=whole, headers=_bearer(token))

    async def said(self, verb: str, **body: object) -> Json:
        """The answer to a call that is taken."""
        answer = await self.call(verb, **body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def asked(self, call_id: str = "1", arguments: Mapping[str, object] | None = None) -> Json:
        """What is said of a call that the runner wants to make."""
        payload = {"tool_call_id": call_id, "name": "shell", "arguments": arguments or {}}
        return await self.said("steps", hook="toolCallRequest", payload=payload)

    async def shown(self, output: str, call_id: str = "1") -> Json:
        """What is said of an output."""
        payload = {"tool_call_id": call_id, "status": "ok", "output": output}
        return await self.said("steps", hook="toolCallResult", payload=payload)


@dataclass(slots=True)
class Elsewhere:
    """What a test looks at."""

    made: Rig
    pools: RunnerPools
    http: httpx.AsyncClient

    def runner(self) -> Runner:
        """Another runner of the pool."""
        return Runner(self.http)

    async def session(self, **agent: Any) -> Session:
        """A session of an agent that the pool runs."""
        new = NewAgent("far", ModelChoice("stub", "model"), "Be brief.", (), self.made.limits, "{}", pool=POOL, **agent)
        created = await self.made.store.create_agent(new)
        return await self.made.store.create_session(NewSession(created.id, None, "{}", None))

    async def posted(self, **turn: Any) -> str:
        """A turn for the pool."""
        return await self.made.post(await self.session(), **turn)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def elsewhere(
    tmp_path: Path,
    *,
    settings: WorkerSettings = SETTINGS_ELSEWHERE,
    ttl_ms: int = TTL_MS,
    clock: Clock | None = None,
) -> AsyncGenerator[Elsewhere]:
    """The worker at work, and the application before it."""
    clock = clock or SystemClock()
    async with rig(tmp_path, settings=settings, governor=PATIENT, clock=clock, start=False) as made:
        sockets = iter(range(1_000))

        def socket_dir() -> Path:
            folder = tmp_path / f"s{next(sockets)}"
            folder.mkdir()
            return folder

        pools = RunnerPools(
            (POOL,),
            socket_dir=socket_dir,
            remove=remove_tree,
            stir=lambda: made.wakeups.ring(QUEUE_TOPIC),
            clock=clock,
            waiter=LoopWaiter(),
            ids=RandomIds(clock),
            ttl_ms=ttl_ms,
        )
        made.bench = replace(made.bench, boxes=_Boxes(made.sandbox, pools), runners=pools)
        made.worker = Worker(made.bench)
        made.work()
        parts = RunnerParts(
            pools,
            RunnerCalls(pools, made.store, made.wakeups, clock),
            PoolTokens({POOL: [token_sha256(POOL_TOKEN)]}),
            LeaseTokens(bytes(32)),
            LeaseTerms(ttl_ms, settings.cancel_grace_ms),
            RandomIds(clock),
            asyncio.Event(),
        )
        transport = httpx.ASGITransport(build_runner_app(parts))
        async with httpx.AsyncClient(transport=transport, base_url="http://here", timeout=60) as http:
            yield Elsewhere(made, pools, http)
