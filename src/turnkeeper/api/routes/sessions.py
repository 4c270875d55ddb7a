"""Sessions: open one, look at one, list, change, close and delete them (contract 2.2)."""

from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, require_id
from turnkeeper.api.auth import Caller, canceled_by
from turnkeeper.api.bodies import read_json
from turnkeeper.api.deps import ApiDeps, Deps
from turnkeeper.api.filters import SESSION_FILTERS, given, session_filter
from turnkeeper.api.intake import parse_close, parse_session, parse_session_change
from turnkeeper.api.keyed import created, created_response
from turnkeeper.api.openapi import LIST_QUERY, answers, body, making, query
from turnkeeper.api.pages import Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.api.problems import Issue, refused_for
from turnkeeper.api.reads import render_session
from turnkeeper.turns.access import check_agent
from turnkeeper.turns.model import Session
from turnkeeper.turns.ports import NewSession

router = APIRouter(prefix="/v1", tags=["sessions"])

_LISTED: Final = frozenset({"limit", "after", "order", "agent_id", *SESSION_FILTERS})
_NARROWED: Final = (*LIST_QUERY, "agent_id", "session_status", "created_after", "created_before", "metadata")


@router.post(
    "/sessions",
    status_code=201,
    responses=answers({201: "Session", 200: "Session"}),
    openapi_extra=making("NewSession"),
)
async def create_session(request: Request, deps: Deps, caller: Caller) -> Response:
    """Opens a session with an agent."""
    Query(request, ())
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    new = replace(parse_session(received, deps.settings), project_id=caller.project_id)
    check_agent(caller, new.agent_id)
    await _check_secrets(deps, new)
    made = await created(deps, request, received, caller, lambda keyed: deps.creations.session(new, keyed))
    return created_response(made, await _rendered(deps, made.thing), f"/v1/sessions/{made.thing.id}")


@router.get(
    "/sessions",
    responses=answers({200: "SessionList"}),
    openapi_extra=query(*_NARROWED),
)
async def list_sessions(request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists sessions, newest first unless `order` says otherwise."""
    values = Query(request, _LISTED, by_metadata=True)
    agent_id = values.text("agent_id")
    if agent_id is not None:
        require_id(agent_id, "agt", "agent")
    narrowed = session_filter(values, caller.reach)
    wanted = list_query(
        values, deps.cursor_secret, list="sessions", agent_id=agent_id, **given(values, SESSION_FILTERS)
    )
    page = await read_page(
        wanted.page,
        lambda part: deps.store.sessions(part, agent_id=agent_id, wanted=narrowed),
        lambda session: _element(deps, session),
    )
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get("/sessions/{session_id}", responses=answers({200: "Session"}))
async def get_session(session_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows a session."""
    Query(request, ())
    return json_response(await _rendered(deps, await deps.store.session(require_id(session_id, "ses", "session"))))


@router.post(
    "/sessions/{session_id}/close",
    status_code=202,
    responses=answers({202: "Session"}),
    openapi_extra=body("CloseSession", required=False),
)
async def close_session(session_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Takes no more turns from now on; `drain` works off the queue first, `cancel` cancels it."""
    Query(request, ())
    require_id(session_id, "ses", "session")
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes, optional=True)
    session = await deps.store.close_session(session_id, mode=parse_close(received), by=canceled_by(caller))
    return json_response(await _rendered(deps, session), 202)


@router.patch("/sessions/{session_id}", responses=answers({200: "Session"}), openapi_extra=body("SessionChange"))
async def change_session(session_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Changes the title, the metadata or how long the session is kept after its last activity."""
    Query(request, ())
    require_id(session_id, "ses", "session")
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    change = parse_session_change(received, deps.settings)
    session = await deps.retention.change_session(session_id, change)
    return json_response(await _rendered(deps, session))


@router.delete("/sessions/{session_id}", status_code=202, responses=answers({202: "Session"}))
async def delete_session(session_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Cancels the session's turns, closes it and has its content erased; from now on it is 410."""
    Query(request, ())
    require_id(session_id, "ses", "session")
    session = await deps.retention.delete_session(session_id, by=canceled_by(caller, "the session was deleted"))
    return json_response(await _rendered(deps, session), 202)


async def _check_secrets(deps: ApiDeps, new: NewSession) -> None:
    if not new.secrets:
        return
    known = await deps.secrets.known(new.project_id, {ref.ref for ref in new.secrets})
    unknown = [
        Issue(f"/secrets/{index}/ref", "invalid_field", "the project has no secret of this name")
        for index, ref in enumerate(new.secrets)
        if ref.ref not in known
    ]
    if unknown:
        raise refused_for(unknown)


async def _element(deps: ApiDeps, session: Session) -> Rendered:
    return Rendered(await _rendered(deps, session), session.id)


async def _rendered(deps: ApiDeps, session: Session) -> bytes:
    usage = await deps.budgets.session_usage([session.id])
    return render_session(session, usage[session.id])
