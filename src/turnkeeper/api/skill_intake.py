"""Skills on their way in (contract 2.13 and 9): archives that are taken, and those that an agent names.

Answers for an archive that was looked into before anybody can name it, and for names that stand for a skill of the
caller's project. A form that is refused leaves nothing but bytes without a name, which are swept.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from turnkeeper.acs.strictjson import JsonObject
from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.deps import ApiDeps
from turnkeeper.api.fields import Fields
from turnkeeper.api.keyed import created, idempotency_key
from turnkeeper.api.problems import RequestRefused
from turnkeeper.api.uploads import kept_form
from turnkeeper.ids import is_id
from turnkeeper.turns.creations import Created
from turnkeeper.turns.model import ApiKey, SkillRef
from turnkeeper.turns.skill_archives import MAX_ARCHIVE_BYTES, SkillBundle, read_skill
from turnkeeper.turns.skills import NewSkill, Skill, WantedSkill

MAX_AGENT_SKILLS: Final = 32
MAX_NAME_CHARACTERS: Final = 64
MAX_VERSION: Final = 2**31 - 1
FIELDS: Final[frozenset[str]] = frozenset()


async def take_skill(request: Request, deps: ApiDeps, caller: ApiKey) -> Created[Skill]:
    """The skill in the archive of a form, or the one that the request's Idempotency-Key stands for already.

    Raises `RequestRefused`, `ContentTooLarge`, `SkillRefused`, `SkillsFull`, and what keys raise.
    """
    idempotency_key(request)
    try:
        async with asyncio.timeout(deps.settings.upload_timeout_ms / 1000):
            _, content = await kept_form(request, deps, known=FIELDS, max_bytes=MAX_ARCHIVE_BYTES)
    except TimeoutError as error:
        raise RequestRefused("request_timeout", "The body did not arrive in time.") from error
    except ClientDisconnect as error:
        raise RequestRefused("request_timeout", "The connection was closed before the body was complete.") from error
    bundle = await _bundle(deps, content.sha256)
    new = NewSkill(caller.project_id, bundle.name, bundle.description, content.sha256, content.size_bytes)
    sent = JsonBody({"sha256": new.sha256}, {})
    return await created(deps, request, sent, caller, lambda keyed: deps.skills.add_skill(new, keyed))


def parse_agent_skills(agent: Fields, *, brings_tools: bool) -> tuple[WantedSkill, ...]:
    """The skills that an agent names; what is wrong is noted. Whether there are such skills is not looked up."""
    value = agent.value("skills")
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_AGENT_SKILLS:
        agent.note("skills", "invalid_field", f"/skills is not a list of at most {MAX_AGENT_SKILLS} skills")
        return ()
    if value and brings_tools:
        agent.note("skills", "invalid_field", "/skills is not empty, and what runs the loop brings its own tools")
    return tuple(_wanted(agent.element("skills", at, one)) for at, one in enumerate(value))


def wanted_skills(body: JsonBody) -> tuple[WantedSkill, ...]:
    """The skills that the body of an agent names. Raises `RequestRefused`."""
    fields = Fields({"skills": body.members.get("skills")})
    wanted = parse_agent_skills(fields, brings_tools=False)
    fields.finish()
    return wanted


async def known_skills(deps: ApiDeps, project_id: str, wanted: Sequence[WantedSkill]) -> tuple[SkillRef, ...]:
    """The versions that are named, of the project. Raises `RequestRefused` for one that there is not, or twice."""
    if not wanted:
        return ()
    found = await deps.skills.wanted(project_id, wanted)
    refs: list[SkillRef] = []
    for at, skill in enumerate(found):
        if skill is None:
            raise RequestRefused("invalid_field", "There is no such skill in the project.", param=f"/skills/{at}")
        if any(ref.name == skill.name for ref in refs):
            raise RequestRefused("invalid_field", f"The skill {skill.name} is named twice.", param=f"/skills/{at}")
        refs.append(skill.ref)
    return tuple(refs)


def skill_ref_document(ref: SkillRef) -> JsonObject:
    """A skill of an agent as it is shown, which is also how it may be sent."""
    return {"id": ref.id, "name": ref.name, "version": ref.version}


async def _bundle(deps: ApiDeps, sha256: str) -> SkillBundle:
    archive = b"".join([piece async for piece in deps.contents.read(sha256)])
    return await asyncio.to_thread(read_skill, archive)


def _wanted(one: Fields) -> WantedSkill:
    one.close({"id", "name", "version"}, {})
    skill_id = one.text("id", max_characters=MAX_NAME_CHARACTERS)
    name = one.text("name", max_characters=MAX_NAME_CHARACTERS)
    version = one.integer("version", low=1, high=MAX_VERSION)
    if skill_id is None and name is None:
        one.note_whole("invalid_field", "names no skill: `id`, or `name` with or without `version`")
    if skill_id is not None and not is_id(skill_id, "skl"):
        one.note("id", "invalid_field", f"{one.pointer('id')} is not the id of a skill")
    return WantedSkill(skill_id, name, version)
