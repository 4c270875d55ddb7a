"""Turns: post one, wait for one, list them, cancel one, see what was submitted (contract 2.3, 3 and 9)."""

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, require_id
from turnkeeper.api.auth import Caller, canceled_by
from turnkeeper.api.bodies import read_json
from turnkeeper.api.deps import ApiDeps, Deps
from turnkeeper.api.filters import TURN_FILTERS, given, turn_filter
from turnkeeper.api.intake import parse_cancel, parse_turn
from turnkeeper.api.openapi import LIST_QUERY, answers, body, query
from turnkeeper.api.pages import Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.api.posting import answer_post, check_schema, new_turn, wants_stream, with_files
from turnkeeper.api.reads import read_turn, render_submission
from turnkeeper.api.waiting import wait_for_end
from turnkeeper.turns.model import ApiKey, Turn
from turnkeeper.turns.ports import Page

MAX_WAIT_MS: Final = 60_000

router = APIRouter(prefix="/v1", tags=["turns"])

_LISTED: Final = frozenset({"limit", "after", "order", *TURN_FILTERS})
_NARROWED: Final = (*LIST_QUERY, "turn_status", "stop_reason", "created_after", "created_before", "metadata")


@router.post(
    "/sessions/{session_id}/turns",
    status_code=202,
    responses=answers({202: "Turn", 200: "Turn or stream"}),
    openapi_extra=body("NewTurn") | query("Idempotency-Key", "stream"),
)
async def post_turn(session_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Accepts a turn into the session's queue. 202 for a new one, 200 for a replay of its Idempotency-Key.

    With `stream=true` 200 and the turn's events as they come; losing that connection cancels nothing.
    """
    stream = wants_stream(request, caller)
    require_id(session_id, "ses", "session")
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    parsed = parse_turn(received, deps.settings)
    session = await deps.store.session(session_id)
    limits = (await deps.store.agent(session.agent_id, session.agent_version)).limits
    await check_schema(deps, parsed.output_schema_json)
    new = new_turn(request, received, caller, parsed, limits, session_id=session_id)
    return await answer_post(
        deps,
        caller,
        lambda: with_files(deps.store.accept_turn(new), parsed),
        key=new.idempotency_key,
        stream=stream,
    )


@router.get("/sessions/{session_id}/turns", responses=answers({200: "TurnList"}), openapi_extra=query(*_NARROWED))
async def list_session_turns(session_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists the turns of a session, newest first unless `order` says otherwise."""
    values = Query(request, _LISTED, by_metadata=True)
    await deps.store.session(require_id(session_id, "ses", "session"))
    return await _list(deps, caller, values, session_id)


@router.get("/turns", responses=answers({200: "TurnList"}), openapi_extra=query(*_NARROWED))
async def list_turns(request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists turns of all sessions, newest first unless `order` says otherwise."""
    return await _list(deps, caller, Query(request, _LISTED, by_metadata=True), None)


@router.get("/turns/{turn_id}", responses=answers({200: "Turn"}), openapi_extra=query("wait_ms"))
async def get_turn(turn_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows a turn; with `wait_ms` once it has ended, or when the time is up."""
    wait_ms = Query(request, {"wait_ms"}).integer("wait_ms", low=0, high=MAX_WAIT_MS) or 0
    turn = await deps.store.turn(require_id(turn_id, "trn", "turn"))
    if wait_ms and not turn.status.terminal:
        turn = await wait_for_end(turn, deps, request, wait_ms=wait_ms)
    return json_response(await read_turn(deps.store, turn))


@router.post(
    "/turns/{turn_id}/cancel",
    status_code=202,
    responses=answers({202: "Turn", 200: "Turn"}),
    openapi_extra=body("CancelTurn", required=False),
)
async def cancel_turn(turn_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Ends a queued turn at once (200), asks a running one to stop (202), leaves an ended one as it is (200)."""
    Query(request, ())
    require_id(turn_id, "trn", "turn")
    mode, reason = parse_cancel(await read_json(request, max_bytes=deps.settings.max_body_bytes, optional=True))
    turn, effect = await deps.store.cancel_turn(turn_id, mode=mode, by=canceled_by(caller, reason))
    return json_response(await read_turn(deps.store, turn), 202 if effect == "requested" else 200)


@router.get("/turns/{turn_id}/submissions", responses=answers({200: "SubmissionList"}))
async def list_submissions(turn_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Lists what the agent submitted for the output schema, refused values too, as far as it was allowed out."""
    Query(request, ())
    await deps.store.turn(require_id(turn_id, "trn", "turn"))
    submissions = await deps.store.submissions(turn_id)
    rendered = tuple(Rendered(render_submission(submission), "") for submission in submissions)
    return render_list(Page(rendered, has_more=False))


async def _list(deps: ApiDeps, caller: ApiKey, values: Query, session_id: str | None) -> Response:
    narrowed = turn_filter(values, caller.reach)
    wanted = list_query(values, deps.cursor_secret, list="turns", session_id=session_id, **given(values, TURN_FILTERS))

    async def element(turn: Turn) -> Rendered:
        return Rendered(await read_turn(deps.store, turn), turn.id)

    page = await read_page(
        wanted.page, lambda part: deps.store.turns(part, session_id=session_id, wanted=narrowed), element
    )
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))
