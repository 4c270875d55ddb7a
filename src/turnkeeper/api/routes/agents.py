"""Agents and their versions: make, look at, list, change and archive them (contract 2.1)."""

from dataclasses import replace
from typing import Final, cast

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.acs.strictjson import JsonObject
from turnkeeper.api.answers import json_response, refuse_idempotency_key, require_id
from turnkeeper.api.auth import Caller
from turnkeeper.api.bodies import read_json
from turnkeeper.api.deps import Deps
from turnkeeper.api.intake import parse_agent, parse_agent_change
from turnkeeper.api.keyed import created, created_response
from turnkeeper.api.openapi import LIST_QUERY, answers, body, making, query
from turnkeeper.api.pages import Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.api.problems import not_found
from turnkeeper.api.reads import render_agent
from turnkeeper.api.skill_intake import known_skills, wanted_skills
from turnkeeper.turns.model import Agent

router = APIRouter(prefix="/v1", tags=["agents"])

_LISTED: Final = frozenset({"limit", "after", "order"})


@router.post(
    "/agents",
    status_code=201,
    responses=answers({201: "Agent", 200: "Agent"}),
    openapi_extra=making("NewAgent"),
)
async def create_agent(request: Request, deps: Deps, caller: Caller) -> Response:
    """Makes an agent, in its version 1. Versions never change."""
    Query(request, ())
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    parsed = parse_agent(received, deps)
    skills = await known_skills(deps, caller.project_id, wanted_skills(received))
    new = replace(parsed, project_id=caller.project_id, skills=skills)
    made = await created(deps, request, received, caller, lambda keyed: deps.creations.agent(new, keyed))
    return created_response(made, render_agent(made.thing), f"/v1/agents/{made.thing.id}")


@router.get("/agents", responses=answers({200: "AgentList"}), openapi_extra=query(*LIST_QUERY))
async def list_agents(request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists agents, newest first unless `order` says otherwise."""
    wanted = list_query(Query(request, _LISTED), deps.cursor_secret, list="agents")
    page = await read_page(wanted.page, lambda part: deps.store.agents(part, reach=caller.reach), _element)
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get("/agents/{agent_id}", responses=answers({200: "Agent"}))
async def get_agent(agent_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows an agent."""
    Query(request, ())
    return json_response(render_agent(await deps.store.agent(require_id(agent_id, "agt", "agent"))))


@router.post("/agents/{agent_id}", responses=answers({200: "Agent"}), openapi_extra=body("AgentChange"))
async def change_agent(agent_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Makes the next version: what is named is replaced as a whole. Open sessions keep the version they have."""
    Query(request, ())
    refuse_idempotency_key(request)
    known = await deps.store.agent(require_id(agent_id, "agt", "agent"))
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    shown = cast("JsonObject", orjson.loads(render_agent(known)))
    new, expected = parse_agent_change(received, shown, known.metadata_json, deps)
    skills = known.skills
    if "skills" in received.members:
        skills = await known_skills(deps, known.project_id, wanted_skills(received))
    new = replace(new, project_id=known.project_id, skills=skills)
    return json_response(render_agent(await deps.store.change_agent(agent_id, new, expected_version=expected)))


@router.post("/agents/{agent_id}/archive", responses=answers({200: "Agent"}))
async def archive_agent(agent_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Takes an agent out of use: no more sessions, no more versions. Open sessions go on."""
    Query(request, ())
    return json_response(render_agent(await deps.store.archive_agent(require_id(agent_id, "agt", "agent"))))


@router.get("/agents/{agent_id}/versions", responses=answers({200: "AgentList"}), openapi_extra=query(*LIST_QUERY))
async def list_versions(agent_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Lists the versions of an agent, newest first unless `order` says otherwise."""
    require_id(agent_id, "agt", "agent")
    wanted = list_query(Query(request, _LISTED), deps.cursor_secret, list="agent_versions", agent_id=agent_id)
    page = await read_page(wanted.page, lambda part: deps.store.agent_versions(agent_id, part), _version)
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get("/agents/{agent_id}/versions/{version}", responses=answers({200: "Agent"}))
async def get_version(agent_id: str, version: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows a version of an agent."""
    Query(request, ())
    require_id(agent_id, "agt", "agent")
    if not (version.isascii() and version.isdecimal() and len(version) < 10):
        raise not_found("version with this number")
    return json_response(render_agent(await deps.store.agent(agent_id, int(version))))


async def _version(agent: Agent) -> Rendered:
    return Rendered(render_agent(agent), str(agent.version))


async def _element(agent: Agent) -> Rendered:
    return Rendered(render_agent(agent), agent.id)
