"""Turns that bring their own session, and turns that are done again (contract 2.3)."""

from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import require_id
from turnkeeper.api.auth import Caller
from turnkeeper.api.bodies import read_json
from turnkeeper.api.deps import Deps
from turnkeeper.api.keyed import fingerprint_of, idempotency_key
from turnkeeper.api.openapi import answers, body, query
from turnkeeper.api.post_intake import parse_alone, parse_retry
from turnkeeper.api.posting import (
    answer_post,
    check_schema,
    new_turn,
    wants_stream,
    with_files,
)
from turnkeeper.turns.access import check_agent
from turnkeeper.turns.posting import NewRetry

router = APIRouter(prefix="/v1/turns", tags=["turns"])


@router.post(
    "",
    status_code=202,
    responses=answers({202: "Turn", 200: "Turn or stream"}),
    openapi_extra=body("NewLoneTurn") | query("Idempotency-Key", "stream"),
)
async def post_lone_turn(request: Request, deps: Deps, caller: Caller) -> Response:
    """Opens a session for one turn and accepts the turn; the session closes with it."""
    stream = wants_stream(request, caller)
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    session, parsed = parse_alone(received, deps.settings)
    session = replace(session, project_id=caller.project_id)
    check_agent(caller, session.agent_id)
    limits = (await deps.store.agent(session.agent_id, session.agent_version)).limits
    await check_schema(deps, parsed.output_schema_json)
    new = new_turn(request, received, caller, parsed, limits, session_id="")
    return await answer_post(
        deps,
        caller,
        lambda: with_files(deps.store.accept_alone(session, new), parsed),
        key=new.idempotency_key,
        stream=stream,
    )


@router.post(
    "/{turn_id}/retry",
    status_code=202,
    responses=answers({202: "Turn", 200: "Turn or stream"}),
    openapi_extra=body("RetryTurn", required=False) | query("Idempotency-Key", "stream"),
)
async def retry_turn(turn_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Accepts a new turn with the input of one that has ended; it has `retry_of`."""
    stream = wants_stream(request, caller)
    require_id(turn_id, "trn", "turn")
    key = idempotency_key(request)
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes, optional=True)
    metadata_json, budget = parse_retry(received, deps.settings)
    print_ = None if key is None else fingerprint_of(request, received)
    new = NewRetry(turn_id, metadata_json, budget, key, print_, caller.id)
    return await answer_post(deps, caller, lambda: deps.store.retry_turn(new), key=key, stream=stream)
