"""Skills (hooks.md; CORE-SKILL-01 to 07): what was approved is a pair of skill and digest, and nothing else loads.

Answers for registering, loading and the path of a load. An approval lasts as long as its session. Must never trust
`digest_verified`, nor keep a skill's body. Pure.
"""

from functools import partial
from itertools import pairwise
from typing import Final, cast

from turnkeeper.guardian.checks import CONTENT, Checked, Denial, Note, Step, full
from turnkeeper.guardian.memory import MAX_KEPT_TEXT, MAX_SKILLS, SessionMemory, Skill

SKILL_UNVERIFIABLE: Final = "skill_unverifiable"
SKILL_LOAD_PATH: Final = "skill_load_path"
SKILL_CAPABILITIES: Final = "skill_capabilities"
MAX_SKILL_NAMES: Final = 256
"""Capabilities, composed skills and steps of a load path that one skill may name."""

_Names = tuple[str, ...]


def check_register(step: Step, memory: SessionMemory) -> Checked:
    """The rule for skillRegister: the pair may load once the step is let through, and no longer once it is not."""
    skill = _registered(step)
    key = skill_key(skill.skill_id, skill.digest)
    if _too_large(skill) or (key not in memory.kept.skills and len(memory.kept.skills) >= MAX_SKILLS):
        return full("skills")
    return Checked(
        notes=_overbroad(step, skill, memory),
        memory=_without(memory, key),
        grant=partial(_approved, key, skill),
    )


def check_load(step: Step, memory: SessionMemory) -> Checked:
    """The rule for skillLoad."""
    skill_id = cast("str", step.payload["skill_id"])
    skill = memory.kept.skills.get(skill_key(skill_id, _digest(step.payload["digest"])))
    if skill is None:
        return Checked(Denial(SKILL_UNVERIFIABLE, "The skill was not approved with this digest in this session."))
    declared = _names(step.payload.get("declared_capabilities"))
    if not set(declared).issubset(skill.capabilities):
        return Checked(Denial(SKILL_CAPABILITIES, "The skill declares capabilities that it was not registered with."))
    return _path_checked(step, skill_id, memory)


def skill_key(skill_id: str, digest: str) -> str:
    """The key of an approval."""
    return f"{digest} {skill_id}"


def _path_checked(step: Step, skill_id: str, memory: SessionMemory) -> Checked:
    stated = cast("list[dict[str, str]]", step.payload["load_path"])
    if len(stated) > MAX_SKILL_NAMES:
        return full("steps of a load path")
    path = [one["skill_id"] for one in stated]
    if path[-1] != skill_id:
        path.append(skill_id)
    if step.payload["load_trigger"] == "skill_composition" and len(path) == 1:
        return Checked(Denial(SKILL_LOAD_PATH, "A skill that another one loads has that one in its load path."))
    for loader, loaded in pairwise(path):
        if not _composes(loader, loaded, memory):
            return Checked(Denial(SKILL_LOAD_PATH, "The load path has a skill load one that it is not composed of."))
    return CONTENT


def _composes(loader: str, loaded: str, memory: SessionMemory) -> bool:
    return any(skill.skill_id == loader and loaded in skill.composed_skills for skill in memory.kept.skills.values())


def _registered(step: Step) -> Skill:
    definition = cast("dict[str, object]", step.payload["definition"])
    composition = cast("dict[str, object]", step.payload.get("composition", {}))
    return Skill(
        skill_id=cast("str", step.payload["skill_id"]),
        digest=_digest(definition["digest"]),
        capabilities=_names(step.payload["declared_capabilities"]),
        composed_skills=_names(composition.get("composed_skills")),
    )


def _overbroad(step: Step, skill: Skill, memory: SessionMemory) -> tuple[Note, ...]:
    """A finding where the AgBOM shows that a skill claims more than its parts can do (CORE-SKILL-05)."""
    composition = cast("dict[str, object]", step.payload.get("composition", {}))
    tools = _names(composition.get("tools"))
    if memory.kept.agbom is None or not composition or composition.keys() & {"mcp_servers", "a2a_peers", "models"}:
        return ()
    parts = {key: part for key, part in memory.kept.agbom.items() if part.type == "tool"}
    able = {part.capability for key, part in parts.items() if key in tools or part.name in tools}
    for other in memory.kept.skills.values():
        if other.skill_id in skill.composed_skills:
            able.update(other.capabilities)
    if able.issuperset(skill.capabilities):
        return ()
    return (Note(SKILL_CAPABILITIES, "a skill declares capabilities that none of its tools and skills has"),)


def _approved(key: str, skill: Skill, memory: SessionMemory) -> SessionMemory:
    return memory.keeping(skills={**memory.kept.skills, key: skill})


def _without(memory: SessionMemory, key: str) -> SessionMemory | None:
    if key not in memory.kept.skills:
        return None
    return memory.keeping(skills={name: skill for name, skill in memory.kept.skills.items() if name != key})


def _too_large(skill: Skill) -> bool:
    names = (skill.skill_id, skill.digest, *skill.capabilities, *skill.composed_skills)
    return len(names) > MAX_SKILL_NAMES or max(map(len, names)) > MAX_KEPT_TEXT


def _digest(stated: object) -> str:
    digest = cast("dict[str, str]", stated)
    # Hexadecimal digits mean the same in both cases.
    return f"{digest['algorithm']}:{digest['value'].lower()}"


def _names(stated: object) -> _Names:
    return tuple(cast("list[str]", stated or []))
