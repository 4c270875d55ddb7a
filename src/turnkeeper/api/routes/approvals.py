"""Approvals and what is remembered of them; the answers of client-side tools (contract 2.3 and 2.5)."""

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, require_id
from turnkeeper.api.approval_intake import parse_decision, parse_tool_result
from turnkeeper.api.approval_views import render_approval, render_rule
from turnkeeper.api.auth import Caller
from turnkeeper.api.bodies import read_json
from turnkeeper.api.deps import ApiDeps, Deps
from turnkeeper.api.openapi import LIST_QUERY, answers, body, query
from turnkeeper.api.pages import Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.api.problems import RequestRefused
from turnkeeper.api.reads import read_turn
from turnkeeper.turns.approval_desk import ApprovalDesk
from turnkeeper.turns.approvals import APPROVAL_STATUSES, Approval, DecidedBy
from turnkeeper.turns.ports import Page

router = APIRouter(prefix="/v1", tags=["approvals"])

_LISTED: Final = frozenset({"limit", "after", "order", "status", "session_id"})


@router.get(
    "/approvals",
    responses=answers({200: "ApprovalList"}),
    openapi_extra=query(*LIST_QUERY, "approval_status", "session_id"),
)
async def list_approvals(request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists approvals, newest first unless `order` says otherwise."""
    values = Query(request, _LISTED)
    status = values.text("status")
    if status is not None and status not in APPROVAL_STATUSES:
        raise RequestRefused("invalid_field", f"status is not one of {', '.join(APPROVAL_STATUSES)}.", param="status")
    session_id = values.text("session_id")
    if session_id is not None:
        require_id(session_id, "ses", "session")
    wanted = list_query(values, deps.cursor_secret, list="approvals", status=status, session_id=session_id)

    async def element(approval: Approval) -> Rendered:
        return Rendered(_rendered(approval, deps), approval.id)

    page = await read_page(
        wanted.page,
        lambda part: deps.store.approvals(part, status=status, session_id=session_id, reach=caller.reach),
        element,
    )
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get("/approvals/{approval_id}", responses=answers({200: "Approval"}))
async def get_approval(approval_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows an approval."""
    Query(request, ())
    approval = await deps.store.approval(require_id(approval_id, "apr", "approval"))
    return json_response(_rendered(approval, deps))


@router.post(
    "/approvals/{approval_id}/decision",
    responses=answers({200: "Approval"}),
    openapi_extra=body("Decision"),
)
async def decide(approval_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Approves or denies; the same decision again changes nothing, another one is refused."""
    Query(request, ())
    require_id(approval_id, "apr", "approval")
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    answer = parse_decision(received, DecidedBy("api_key", caller.id))
    desk = ApprovalDesk(deps.store, deps.clock, deps.questions)
    return json_response(_rendered(await desk.decide(approval_id, answer), deps))


@router.get("/sessions/{session_id}/approval_rules", responses=answers({200: "ApprovalRuleList"}))
async def list_rules(session_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Lists the answers that hold for the same input until the session ends, oldest first."""
    Query(request, ())
    await deps.store.session(require_id(session_id, "ses", "session"))
    rules = await deps.store.approval_rules(session_id)
    return render_list(Page(tuple(Rendered(render_rule(rule), "") for rule in rules), has_more=False))


@router.delete("/sessions/{session_id}/approval_rules/{approval_id}", status_code=204, responses=answers({204: None}))
async def remove_rule(session_id: str, approval_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Takes a remembered answer back; the same call is asked about again."""
    Query(request, ())
    require_id(session_id, "ses", "session")
    await deps.store.remove_approval_rule(session_id, require_id(approval_id, "apr", "approval rule"))
    return Response(status_code=204)


@router.post("/turns/{turn_id}/tool_results", responses=answers({200: "Turn"}), openapi_extra=body("ToolResult"))
async def answer_tool(turn_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Answers the call of a client-side tool; the same answer again changes nothing, another one is refused."""
    Query(request, ())
    require_id(turn_id, "trn", "turn")
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    tool_call_id, answer = parse_tool_result(received, deps.settings)
    require_id(tool_call_id, "tcl", "tool call")
    return json_response(await read_turn(deps.store, await deps.store.answer_tool(turn_id, tool_call_id, answer)))


def _rendered(approval: Approval, deps: ApiDeps) -> bytes:
    return render_approval(approval, deps.clock.now(), inline_bytes=deps.settings.inline_bytes)
