"""Turns: post one, wait for one, list them, cancel one, see what was submitted (contract 2.3, 3 and 9)."""

from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import IDEMPOTENCY_HEADER, json_response, require_id
from turnkeeper.api.auth import Caller, canceled_by
from turnkeeper.api.bodies import read_json
from turnkeeper.api.deps import ApiDeps, Deps
from turnkeeper.api.intake import TurnBody, parse_cancel, parse_turn
from turnkeeper.api.openapi import LIST_QUERY, answers, body, query
from turnkeeper.api.pages import ListQuery, Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.api.problems import RequestRefused
from turnkeeper.api.reads import read_turn, render_submission
from turnkeeper.api.unbuilt import POST_TURN_QUERY, TURN_QUERY
from turnkeeper.api.waiting import wait_for_end
from turnkeeper.turns.idempotency import fingerprint, parse_key
from turnkeeper.turns.model import AgentLimits, Turn
from turnkeeper.turns.ports import Accepted, NewTurn, Page
from turnkeeper.turns.schema_rules import OutputSchemaInvalid

MAX_WAIT_MS: Final = 60_000

router = APIRouter(prefix="/v1", tags=["turns"])

_LISTED: Final = frozenset({"limit", "after", "order"})


@router.post(
    "/sessions/{session_id}/turns",
    status_code=202,
    responses=answers({202: "Turn", 200: "Turn"}),
    openapi_extra=body("NewTurn") | query("Idempotency-Key"),
)
async def post_turn(session_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Accepts a turn into the session's queue. 202 for a new one, 200 for a replay of its Idempotency-Key."""
    Query(request, (), POST_TURN_QUERY)
    require_id(session_id, "ses", "session")
    key = _idempotency_key(request)
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    parsed = parse_turn(received, deps.settings)
    session = await deps.store.session(session_id)
    limits = (await deps.store.agent(session.agent_id)).limits
    await _check_schema(deps, parsed.output_schema_json)
    print_ = fingerprint(request.method, request.url.path, received.members)
    new = replace(_new_turn(session_id, key, parsed, limits, print_), api_key_id=caller.id)
    accepted = await deps.store.accept_turn(new)
    return await _accepted_response(deps, accepted)


@router.get("/sessions/{session_id}/turns", responses=answers({200: "TurnList"}), openapi_extra=query(*LIST_QUERY))
async def list_session_turns(session_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Lists the turns of a session, newest first unless `order` says otherwise."""
    values = Query(request, _LISTED, TURN_QUERY)
    await deps.store.session(require_id(session_id, "ses", "session"))
    wanted = list_query(values, deps.cursor_secret, list="turns", session_id=session_id)
    return await _list(deps, wanted, session_id)


@router.get("/turns", responses=answers({200: "TurnList"}), openapi_extra=query(*LIST_QUERY))
async def list_turns(request: Request, deps: Deps, _caller: Caller) -> Response:
    """Lists turns of all sessions, newest first unless `order` says otherwise."""
    wanted = list_query(Query(request, _LISTED, TURN_QUERY), deps.cursor_secret, list="turns", session_id=None)
    return await _list(deps, wanted, None)


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


async def _list(deps: ApiDeps, wanted: ListQuery, session_id: str | None) -> Response:
    async def element(turn: Turn) -> Rendered:
        return Rendered(await read_turn(deps.store, turn), turn.id)

    page = await read_page(wanted.page, lambda part: deps.store.turns(part, session_id=session_id), element)
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


def _idempotency_key(request: Request) -> str | None:
    values = request.headers.getlist(IDEMPOTENCY_HEADER)
    if len(values) > 1:
        raise RequestRefused("idempotency_key_invalid", "The header is given twice.", param=IDEMPOTENCY_HEADER)
    return parse_key(values[0]) if values else None


async def _check_schema(deps: ApiDeps, schema_json: str | None) -> None:
    if schema_json is None:
        return
    try:
        await deps.schema_checker.compile(schema_json)
    except OutputSchemaInvalid as invalid:
        invalid.detail["pointer"] = f"/output_schema{invalid.detail.get('pointer', '')}"
        raise


def _new_turn(session_id: str, key: str | None, parsed: TurnBody, limits: AgentLimits, print_: str) -> NewTurn:
    repairs, attempts = parsed.max_repair_attempts, parsed.max_attempts
    return NewTurn(
        session_id=session_id,
        input_text=parsed.input_text,
        input_json=parsed.input_json,
        output_schema_json=parsed.output_schema_json,
        metadata_json=parsed.metadata_json,
        budget=parsed.budget,
        max_repair_attempts=limits.max_repair_attempts if repairs is None else repairs,
        max_attempts=limits.max_attempts if attempts is None else attempts,
        on_busy=parsed.on_busy,
        start_by=parsed.start_by,
        idempotency_key=key,
        fingerprint=None if key is None else print_,
    )


async def _accepted_response(deps: ApiDeps, accepted: Accepted) -> Response:
    headers = {"Location": f"/v1/turns/{accepted.turn.id}", "Events-After": str(accepted.events_after)}
    if accepted.replayed:
        headers["Idempotent-Replayed"] = "true"
    document = await read_turn(deps.store, accepted.turn)
    return json_response(document, 200 if accepted.replayed else 202, headers)
