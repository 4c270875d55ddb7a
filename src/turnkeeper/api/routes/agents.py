"""Agents: make one, look at one, list them (contract 2.1)."""

from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, refuse_idempotency_key, require_id
from turnkeeper.api.auth import Caller
from turnkeeper.api.bodies import read_json
from turnkeeper.api.deps import Deps
from turnkeeper.api.intake import parse_agent
from turnkeeper.api.openapi import LIST_QUERY, answers, body, query
from turnkeeper.api.pages import Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.api.reads import render_agent
from turnkeeper.api.unbuilt import AGENT_QUERY
from turnkeeper.turns.model import Agent

router = APIRouter(prefix="/v1", tags=["agents"])

_LISTED: Final = frozenset({"limit", "after", "order"})


@router.post("/agents", status_code=201, responses=answers({201: "Agent"}), openapi_extra=body("NewAgent"))
async def create_agent(request: Request, deps: Deps, caller: Caller) -> Response:
    """Makes an agent. Its version is 1 and never changes."""
    Query(request, ())
    refuse_idempotency_key(request)
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    agent = await deps.store.create_agent(replace(parse_agent(received, deps), project_id=caller.project_id))
    return json_response(render_agent(agent), 201, {"Location": f"/v1/agents/{agent.id}"})


@router.get("/agents", responses=answers({200: "AgentList"}), openapi_extra=query(*LIST_QUERY))
async def list_agents(request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists agents, newest first unless `order` says otherwise."""
    wanted = list_query(Query(request, _LISTED, AGENT_QUERY), deps.cursor_secret, list="agents")
    page = await read_page(wanted.page, lambda part: deps.store.agents(part, reach=caller.reach), _element)
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get("/agents/{agent_id}", responses=answers({200: "Agent"}))
async def get_agent(agent_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows an agent."""
    Query(request, ())
    return json_response(render_agent(await deps.store.agent(require_id(agent_id, "agt", "agent"))))


async def _element(agent: Agent) -> Rendered:
    return Rendered(render_agent(agent), agent.id)
