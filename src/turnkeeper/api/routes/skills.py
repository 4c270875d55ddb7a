"""Skills: take an archive, see what there is (contract 2.13)."""

from typing import Final

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, require_id
from turnkeeper.api.auth import Caller
from turnkeeper.api.deps import Deps
from turnkeeper.api.keyed import created_response
from turnkeeper.api.openapi import LIST_QUERY, answers, query
from turnkeeper.api.openapi_skills import SKILL_UPLOAD
from turnkeeper.api.pages import Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.api.skill_intake import take_skill
from turnkeeper.clock import render_time
from turnkeeper.turns.skills import Skill

router = APIRouter(prefix="/v1", tags=["skills"])

_LISTED: Final = frozenset({"limit", "after", "order"})


@router.post(
    "/skills",
    status_code=201,
    responses=answers({201: "Skill", 200: "Skill"}),
    openapi_extra=SKILL_UPLOAD | query("Idempotency-Key"),
)
async def create_skill(request: Request, deps: Deps, caller: Caller) -> Response:
    """Takes an archive as the next version of the skill in it. The newest version's archive again is that version."""
    Query(request, ())
    made = await take_skill(request, deps, caller)
    return created_response(made, _render(made.thing), f"/v1/skills/{made.thing.id}")


@router.get("/skills", responses=answers({200: "SkillList"}), openapi_extra=query(*LIST_QUERY))
async def list_skills(request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists the versions of the project's skills, newest first unless `order` says otherwise."""
    wanted = list_query(Query(request, _LISTED), deps.cursor_secret, list="skills", project_id=caller.project_id)
    page = await read_page(wanted.page, lambda part: deps.skills.skills(caller.project_id, part), _element)
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get("/skills/{skill_id}", responses=answers({200: "Skill"}))
async def get_skill(skill_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows a version of a skill."""
    Query(request, ())
    return json_response(_render(await deps.skills.skill(require_id(skill_id, "skl", "skill"))))


def _render(skill: Skill) -> bytes:
    return orjson.dumps(
        {
            "id": skill.id,
            "object": "skill",
            "project_id": skill.project_id,
            "name": skill.name,
            "version": skill.version,
            "description": skill.description,
            "sha256": skill.sha256,
            "bytes": skill.size_bytes,
            "created_at": render_time(skill.created_at),
        }
    )


async def _element(skill: Skill) -> Rendered:
    return Rendered(_render(skill), skill.id)
