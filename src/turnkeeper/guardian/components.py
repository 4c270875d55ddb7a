"""The agent's bill of materials in a session (INSP-01 to 07, CORE-SKILL-10): what it is made of, and what is not seen.

Answers for one snapshot a session, for its changes, and for findings where a component would act through hooks that
the handshake did not name, or does not say where it was registered from. Must never keep a skill's body. Pure.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, cast

from turnkeeper.acs import AcsError, AcsErrorCode, RequestEnvelope
from turnkeeper.guardian.checks import Checked, Note, Step, full
from turnkeeper.guardian.memory import MAX_AGBOM_COMPONENTS, MAX_KEPT_TEXT, Component, SessionMemory
from turnkeeper.guardian.ports import SessionTerms

AGBOM_SNAPSHOT: Final = "agbom/snapshot"
AGBOM_CHANGED: Final = "agbom/changed"
SNAPSHOT_REPEATED: Final = "agbom_snapshot_repeated"
CHANGED_BEFORE_SNAPSHOT: Final = "agbom_changed_before_snapshot"
COMPONENT_NOT_COVERED: Final = "agbom_component_not_covered"
REGISTRATION_UNSTATED: Final = "agbom_registration_unstated"

Parts = Mapping[str, Component]

_COVERED_BY: Mapping[str, frozenset[str]] = {
    "knowledge_source": frozenset({"steps/knowledgeRetrieval"}),
    "memory_store": frozenset({"steps/memoryStore", "steps/memoryContextRetrieval"}),
    "skill": frozenset({"steps/skillRegister", "steps/skillLoad"}),
    "tool": frozenset({"steps/toolCallRequest", "steps/toolCallResult"}),
}


def check_snapshot(step: Step, memory: SessionMemory) -> Checked:
    """The rule for agbom/snapshot."""
    parts = _parts(_components(step.payload["agbom"]))
    if (over := _too_large(parts)) is not None:
        return over
    notes = (*_unregistered(step.request), *_uncovered(parts, step.terms))
    if memory.kept.agbom is not None:
        notes = (Note(SNAPSHOT_REPEATED, "the session has its agbom/snapshot already"), *notes)
    return Checked(notes=notes, grant=partial(_replaced, parts))


def check_changed(step: Step, memory: SessionMemory) -> Checked:
    """The rule for agbom/changed."""
    known: Parts = memory.kept.agbom or {}
    parts = _changed(step.payload, known)
    if (over := _too_large(parts)) is not None:
        return over
    new = {key: part for key, part in parts.items() if known.get(key) != part}
    notes = (*_unregistered(step.request), *_uncovered(new, step.terms))
    if memory.kept.agbom is None:
        notes = (Note(CHANGED_BEFORE_SNAPSHOT, "the agent's parts changed before any agbom/snapshot"), *notes)
    return Checked(notes=notes, grant=partial(_replaced, parts))


def check_registration(request: RequestEnvelope) -> None:
    """Raises `AcsError` (-32602) for a component without `registration_provenance` (PROV-08)."""
    if _without_registration(request):
        raise AcsError(
            AcsErrorCode.INVALID_PARAMS,
            "registration_provenance_missing",
            "under acs-provenance every component says where it was registered from",
        )


def _unregistered(request: RequestEnvelope) -> tuple[Note, ...]:
    """A finding for components that do not say where they were registered from (INSP-06)."""
    missing = _without_registration(request)
    message = f"{missing} components of the agent do not say where they were registered from"
    return (Note(REGISTRATION_UNSTATED, message),) if missing else ()


def _without_registration(request: RequestEnvelope) -> int:
    return sum("registration_provenance" not in component for component in _stated(request))


def _stated(request: RequestEnvelope) -> Iterable[Mapping[str, object]]:
    if request.method == AGBOM_SNAPSHOT:
        return _components(request.payload["agbom"])
    if "full_snapshot" in request.payload:
        return _components(request.payload["full_snapshot"])
    diff = cast("dict[str, list[dict[str, object]]]", request.payload["diff"])
    changed = cast("list[dict[str, dict[str, object]]]", diff.get("changed", []))
    return [*diff.get("added", []), *(change["after"] for change in changed)]


def _changed(payload: Mapping[str, object], known: Parts) -> Parts:
    if "full_snapshot" in payload:
        return _parts(_components(payload["full_snapshot"]))
    diff = cast("dict[str, list[dict[str, object]]]", payload["diff"])
    gone = {cast("str", part["id"]) for part in (*diff.get("removed", []), *diff.get("changed", []))}
    kept = {key: part for key, part in known.items() if key not in gone}
    after = [cast("dict[str, object]", change["after"]) for change in diff.get("changed", [])]
    return kept | dict(_parts([*diff.get("added", []), *after]))


def _components(agbom: object) -> list[dict[str, object]]:
    return cast("list[dict[str, object]]", cast("dict[str, object]", agbom)["components"])


def _parts(components: Iterable[Mapping[str, object]]) -> Parts:
    return {cast("str", component["id"]): _part(component) for component in components}


def _part(component: Mapping[str, object]) -> Component:
    tool = cast("dict[str, str]", component.get("tool_fields", {}))
    skill = cast("dict[str, dict[str, dict[str, str]]]", component.get("skill_fields", {}))
    digest = skill.get("definition", {}).get("digest", {})
    return Component(
        type=cast("str", component["type"]),
        name=cast("str", component.get("name", "")),
        capability=tool.get("capability", ""),
        digest=":".join(digest[member] for member in ("algorithm", "value") if member in digest),
    )


def _uncovered(parts: Parts, terms: SessionTerms) -> tuple[Note, ...]:
    """A finding for each type of component whose doings would not be seen (INSP-07)."""
    return tuple(
        Note(COMPONENT_NOT_COVERED, f"the agent has a {kind}, and the handshake names no hook that shows its use")
        for kind in sorted({part.type for part in parts.values()})
        if not _covered(kind, terms)
    )


def _covered(kind: str, terms: SessionTerms) -> bool:
    if kind == "mcp_server":
        return bool(terms.mcp_versions)
    owed = _COVERED_BY.get(kind)
    return owed is None or owed <= terms.methods


def _too_large(parts: Parts) -> Checked | None:
    if len(parts) > MAX_AGBOM_COMPONENTS:
        return full("components of the agent")
    longest = (len(text) for key, part in parts.items() for text in (key, part.name, part.capability, part.digest))
    return full("text about a component") if max(longest, default=0) > MAX_KEPT_TEXT else None


def _replaced(parts: Parts, memory: SessionMemory) -> SessionMemory:
    return memory.keeping(agbom=parts)
