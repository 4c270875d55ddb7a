"""What an app reads before it follows a session, and what a browser follows it with (contract 2.2 and 2.4)."""

from datetime import timedelta

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, refuse_idempotency_key, require_id
from turnkeeper.api.auth import Caller
from turnkeeper.api.bodies import read_json
from turnkeeper.api.deps import Deps
from turnkeeper.api.fields import Fields
from turnkeeper.api.openapi import answers, body
from turnkeeper.api.pages import Query
from turnkeeper.api.snapshot_views import render_snapshot, render_token
from turnkeeper.api.stream_texts import open_messages
from turnkeeper.clock import epoch_ms, from_epoch_ms
from turnkeeper.events.stream_tokens import DEFAULT_TTL_S, MAX_TTL_S, StreamToken, render_stream_token

router = APIRouter(prefix="/v1/sessions/{session_id}", tags=["sessions"])


@router.get("/snapshot", responses=answers({200: "SessionSnapshot"}))
async def get_snapshot(session_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows a session with its turns and open questions, all as of one event; a stream goes on `after` that one."""
    Query(request, ())
    snapshot = await deps.store.snapshot(require_id(session_id, "ses", "session"))
    texts = open_messages(deps.texts, snapshot.session)
    return json_response(render_snapshot(snapshot, texts, deps.clock.now(), inline_bytes=deps.settings.inline_bytes))


@router.post(
    "/stream_tokens",
    status_code=201,
    responses=answers({201: "StreamToken"}),
    openapi_extra=body("NewStreamToken", required=False),
)
async def create_stream_token(session_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Makes a token that opens streams of this session, for a browser that cannot send a key."""
    Query(request, ())
    refuse_idempotency_key(request)
    fields = Fields((await read_json(request, max_bytes=deps.settings.max_body_bytes, optional=True)).members)
    fields.close({"ttl_s"}, {})
    ttl_s = fields.integer("ttl_s", low=1, high=MAX_TTL_S) or DEFAULT_TTL_S
    fields.finish()
    session = await deps.store.session(require_id(session_id, "ses", "session"))
    until = from_epoch_ms(epoch_ms(deps.clock.now())) + timedelta(seconds=ttl_s)
    token = render_stream_token(StreamToken(session.id, caller.id, until), deps.cursor_secret)
    return json_response(render_token(token, until), 201)
