"""The steps around a skill (CORE-SKILL-01, 07, 08): registered, loaded, unloaded.

Answers for digests that say what is there and for every load that may have been let through having its unload. Pure.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeAlias, cast

import orjson

from turnkeeper.acs import Marks
from turnkeeper.inspect.agbom import skill_ref
from turnkeeper.turns.model import NewStep, SkillRef, Step
from turnkeeper.turns.payloads import SKILL_LOAD, SKILL_REGISTER, SKILL_UNLOAD, TOOL_PROVIDER

UnloadReason: TypeAlias = Literal["explicit_unload", "error"]


def register_payload(marks: Marks, skill: SkillRef, text: str | None) -> str:
    """A skill is to become loadable. `text` is its SKILL.md, for inspection.

    A skill has no capabilities of its own: what it makes an agent do is done with the agent's tools, and asked then.
    """
    definition: dict[str, object] = {"digest": _digest(skill.sha256), "ref": skill_ref(skill.id)}
    payload: dict[str, object] = {
        "skill_id": skill.name,
        "skill": {"name": skill.name, "version": str(skill.version), "provider": TOOL_PROVIDER},
        "definition": definition if text is None else definition | {"body": text},
        "declared_capabilities": [],
    }
    label = marks.received("system", TOOL_PROVIDER).get("provenance")
    return _text(payload if label is None else payload | {"registration_provenance": label})


def load_payload(skill: SkillRef, sha256: str, *, registration: str | None, parent: str | None) -> str:
    """A skill is to be loaded from an archive with this SHA-256, because the model asked for it."""
    payload: dict[str, object] = {
        "skill_id": skill.name,
        "digest": _digest(sha256),
        "load_trigger": "agent_decision",
        "load_path": [{"skill_id": skill.name}],
        "declared_capabilities": [],
    }
    if registration is not None:
        payload["registration_ref"] = registration
    if parent is not None:
        payload["parent_step_id"] = parent
    return _text(payload)


def registrations_in(steps: Sequence[Step]) -> dict[tuple[str, str], str]:
    """The pairs of a skill and a SHA-256 that were let be registered, by the step that did; the last word counts."""
    found: dict[tuple[str, str], str] = {}
    for step in steps:
        if step.method != SKILL_REGISTER:
            continue
        payload = orjson.loads(step.payload_json or "{}")
        pair = (payload["skill_id"], payload["definition"]["digest"]["value"])
        found.pop(pair, None)
        if step.decision == "allow":
            found[pair] = step.request_id
    return found


def open_loads(steps: Sequence[Step]) -> list[str]:
    """The names of skills whose load was let through, or may have been, once for each load without its unload.

    `steps` are those of the turn's own chain.
    """
    found: Counter[str] = Counter()
    for step in steps:
        if step.method == SKILL_UNLOAD:
            found[_subject(step)] -= 1
        elif step.method == SKILL_LOAD and (step.state == "pending" or step.decision == "allow"):
            found[_subject(step)] += 1
    return list(found.elements())


def unload_step(turn_id: str, name: str, reason: UnloadReason, request_id: str, *, in_window: bool) -> NewStep:
    """A skill was unloaded, because its turn or the attempt is over."""
    payload_json = _text({"skill_id": name, "reason": reason})
    return NewStep(request_id, SKILL_UNLOAD, payload_json, in_window=in_window, turn_id=turn_id)


def _subject(step: Step) -> str:
    return cast("str", orjson.loads(step.payload_json or "{}")["skill_id"])


def _digest(sha256: str) -> dict[str, str]:
    return {"algorithm": "sha-256", "value": sha256}


def _text(payload: dict[str, object]) -> str:
    return orjson.dumps(payload).decode()
