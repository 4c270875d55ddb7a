"""`/worker/v1` as an ASGI application (contract 2.11): who calls, for which lease, and how answers look.

Answers for a pool's token at the first call and the lease's own at all others; an app's API key opens nothing here, and
a runner's token opens nothing there. Holds no rule about turns.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import orjson
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from turnkeeper.acs import JsonObject
from turnkeeper.api.bodies import JsonBody, read_json
from turnkeeper.api.edge import RequestEdge
from turnkeeper.api.problems import RequestRefused, not_found, problem_response
from turnkeeper.errors import TurnkeeperError
from turnkeeper.ids import IdSource
from turnkeeper.runners.boxes import AskedToStop, LeaseOver, RemoteLoopBox
from turnkeeper.runners.calls import RunnerCalls
from turnkeeper.runners.documents import RunnerFields
from turnkeeper.runners.gateway_door import forward
from turnkeeper.runners.leases import GATEWAY_PATH, LeaseTerms, lease_document
from turnkeeper.runners.leaving import unless_left
from turnkeeper.runners.pools import RunnerPools
from turnkeeper.runners.tokens import Holder, LeaseTokens, PoolTokens, RunnerTokenInvalid
from turnkeeper.sandbox.protocol import MAX_FRAME_BYTES
from turnkeeper.turns.model import REMOTE

PREFIX: Final = "/worker/v1"
MAX_WAIT_MS: Final = 20_000
MAX_CAPACITY: Final = 1_000
MAX_KINDS: Final = 16

Call: TypeAlias = Callable[[RemoteLoopBox, JsonBody], Awaitable[JsonObject]]
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

_log = structlog.get_logger(__name__)


def _unheard(_code: str) -> None:
    return


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """What the application works with. `on_refused` hears the code of each call of a lease that is refused."""

    pools: RunnerPools
    calls: RunnerCalls
    pool_tokens: PoolTokens
    lease_tokens: LeaseTokens
    terms: LeaseTerms
    ids: IdSource
    draining: asyncio.Event
    on_refused: Callable[[str], None] = _unheard


def build_runner_app(parts: RunnerParts) -> Starlette:
    """The application; whoever serves it sends it what begins with `PREFIX`."""
    door, calls = _Door(parts), parts.calls
    of_turn: dict[str, Endpoint] = {
        "started": door.of_lease(calls.started),
        "heartbeat": door.of_lease(calls.heartbeat),
        "events": door.of_lease(calls.events),
        "steps": door.step,
        "submissions": door.of_lease(calls.submission),
        "report": door.report,
    }
    routes = [
        Route(f"{PREFIX}/leases", door.lease, methods=["POST"]),
        *(Route(f"{PREFIX}/turns/{{turn_id}}/{name}", call, methods=["POST"]) for name, call in of_turn.items()),
        Route(f"{GATEWAY_PATH}/{{path:path}}", door.gateway, methods=["GET", "POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(RequestEdge, ids=parts.ids)],
        exception_handlers={HTTPException: _refuse_http, TurnkeeperError: _refuse, ClientDisconnect: _left},
    )


class _Door:
    def __init__(self, parts: RunnerParts) -> None:
        self._parts = parts

    async def lease(self, request: Request) -> Response:
        """A turn for a runner of a pool, waited for."""
        parts, token = self._parts, _shown_token(request)
        body = await read_json(request, max_bytes=MAX_FRAME_BYTES)
        fields = RunnerFields(body.members, {"pool", "kinds", "capacity", "wait_ms"})
        pool, kinds = fields.text("pool"), fields.texts("kinds", MAX_KINDS)
        fields.integer("capacity", high=MAX_CAPACITY)
        wait_ms = fields.integer("wait_ms", low=0, high=MAX_WAIT_MS)
        parts.pool_tokens.check(token, pool)
        if REMOTE not in kinds:
            raise fields.wrong("kinds", f"does not name {REMOTE}, the only kind of sandbox that is leased")
        leased = await unless_left(request, parts.pools.lease(pool, wait_ms=wait_ms, draining=parts.draining))
        if leased is None:
            return Response(status_code=204)
        asked_at = str(request.base_url)
        return _json(lease_document(leased, parts.lease_tokens, parts.terms, asked_at=asked_at))

    def of_lease(self, call: Call) -> Endpoint:
        """A call that only a lease which lives may make."""

        async def endpoint(request: Request) -> Response:
            _, box, body = await self._admitted(request)
            if box is None:
                raise _over(request)
            return _json(await self._counted(box, call(box, body)))

        return endpoint

    async def step(self, request: Request) -> Response:
        """A question that may have to wait for somebody: then the lease ends, and the turn is leased again."""
        holder, box, body = await self._admitted(request)
        if box is None:
            raise _over(request)
        try:
            return _json(await self._counted(box, self._parts.calls.step(box, body)))
        except LeaseOver:
            if await self._parts.calls.is_paused(holder):
                return _json({"paused": True}, status=202)
            raise

    async def report(self, request: Request) -> Response:
        """The end of a turn, as its runner sees it."""
        holder, box, body = await self._admitted(request)
        reporting = self._parts.calls.report(holder, box, body)
        return _json(await (reporting if box is None else self._counted(box, reporting)))

    async def gateway(self, request: Request) -> Response:
        """A model call."""
        token = request.headers.get("x-api-key") or _shown_token(request)
        holder = self._parts.lease_tokens.holder("gateway", token)
        box = self._parts.pools.box_of(holder)
        if box is None:
            raise LeaseOver(f"{holder.turn_id} is no longer this runner's")
        return await forward(box, request, str(request.path_params["path"]))

    async def _admitted(self, request: Request) -> tuple[Holder, RemoteLoopBox | None, JsonBody]:
        """Whose lease it is, its box while it lives, and the body. Raises `RunnerTokenInvalid`, `LeaseOver`."""
        holder = self._parts.lease_tokens.holder("lease", _shown_token(request))
        if request.path_params["turn_id"] != holder.turn_id:
            raise RunnerTokenInvalid("the token is another turn's")
        box = self._parts.pools.box_of(holder)
        try:
            body = await read_json(request, max_bytes=MAX_FRAME_BYTES)
            if box is not None:
                box.pay_for(sum(map(len, body.slices.values())))
            if RunnerFields(body.members, body.members).integer("fence", low=0) != holder.fence:
                raise LeaseOver("the fence is not the one of this lease", hint="Use what the lease said.")
        except TurnkeeperError as error:
            self._note(holder, box, error)
            raise
        return holder, box, body

    async def _counted(self, box: RemoteLoopBox, answering: Awaitable[JsonObject]) -> JsonObject:
        try:
            return await answering
        except TurnkeeperError as error:
            self._note(box.holder, box, error)
            raise

    def _note(self, holder: Holder, box: RemoteLoopBox | None, error: TurnkeeperError) -> None:
        """What a runner says that it may not say is written down, whatever else becomes of it."""
        _log.warning("runner_call_refused", turn_id=holder.turn_id, fence=holder.fence, code=error.error_code)
        self._parts.on_refused(error.error_code)
        # Who asks while word of a cancel is on its way could not know.
        if box is not None and not isinstance(error, AskedToStop):
            box.refused(error.error_code)


def _shown_token(request: Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise RunnerTokenInvalid("the request has no Authorization header with a runner's token")
    return token.strip()


def _over(request: Request) -> LeaseOver:
    turn_id = request.path_params["turn_id"]
    return LeaseOver(f"{turn_id} is no longer this runner's", hint="Stop, and ask for another lease.")


def _json(document: JsonObject, *, status: int = 200) -> Response:
    return Response(orjson.dumps(document), status, media_type="application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    return problem_response(cast("TurnkeeperError", error), request_id=_request_id(request))


async def _refuse_http(request: Request, error: Exception) -> Response:
    if cast("HTTPException", error).status_code == 405:
        refusal = RequestRefused("method_not_allowed", f"This path does not take {request.method[:20]}.")
    else:
        refusal = not_found(f"endpoint {request.url.path[:200]}")
    return problem_response(refusal, request_id=_request_id(request))


async def _left(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)


def _request_id(request: Request) -> str:
    return cast("dict[str, str]", request.scope["state"])["request_id"]
