"""Subagents (CORE-SUB-01 to 07): a session and chain of their own, an intent within their parent's.

Answers for the intent that a subagent is handed and for the head that its end states. Must never read a missing
`final_chain_hash` as a fault: it says that no chain was kept. Pure.
"""

from typing import Final, cast

from turnkeeper.guardian.checks import CONTENT, Checked, Denial, Note, Step, noted
from turnkeeper.guardian.intent import capabilities_of, check_origin
from turnkeeper.guardian.memory import KnownCapability, SessionMemory

SUBAGENT_START: Final = "steps/subagentStart"
SUBAGENT_STOP: Final = "steps/subagentStop"
SUBAGENT_INTENT_EXCEEDS: Final = "subagent_intent_exceeds"
SUBAGENT_PARENT_DIFFERS: Final = "subagent_parent_differs"
SUBAGENT_HEAD_DIFFERS: Final = "subagent_chain_hash_differs"
_ANY: Final = ("", "*")
_OWN_INTENT: Final = "fresh"


def check_start(step: Step, memory: SessionMemory) -> Checked:
    """The rule for subagentStart."""
    origin = check_origin(step, memory)
    if origin.denial is not None:
        return origin
    notes: tuple[Note, ...] = ()
    if str(step.payload["parent_session_id"]).lower() != step.request.session_id.lower():
        notes = (Note(SUBAGENT_PARENT_DIFFERS, "a subagent was started that names another session as its parent"),)
    if step.payload["intent_derivation"] == _OWN_INTENT or not _exceeds(step, memory):
        return Checked(notes=notes)
    reasoning = "The subagent's intent permits more than the intent it is derived from."
    return Checked(Denial(SUBAGENT_INTENT_EXCEEDS, reasoning), notes=notes)


def check_stop(step: Step, _: SessionMemory) -> Checked:
    """The rule for subagentStop: a head is compared where this Guardian keeps the subagent's chain itself."""
    stated = step.payload.get("final_chain_hash")
    known = step.looked_up.subagent_head
    if stated is None or known is None or stated == known:
        return CONTENT
    return noted((SUBAGENT_HEAD_DIFFERS, "a subagent's end states another chain head than the one that was published"))


def _exceeds(step: Step, memory: SessionMemory) -> bool:
    parent = None if memory.kept.intent is None else memory.kept.intent.capabilities
    intent = cast("dict[str, object]", step.payload.get("subagent_intent", {}))
    if parent is None or "parsed" not in intent:
        return False
    asked = capabilities_of(cast("list[dict[str, str]]", intent["parsed"]))
    return not all(any(_covers(had, wanted) for had in parent) for wanted in asked)


def _covers(had: KnownCapability, wanted: KnownCapability) -> bool:
    return (
        _permits(had.tool, wanted.tool)
        and _permits(had.operation, wanted.operation)
        and _permits_resource(had.resource, wanted.resource)
    )


def _permits(had: str, wanted: str) -> bool:
    return had in _ANY or had == wanted


def _permits_resource(had: str, wanted: str) -> bool:
    if had.endswith("*"):
        return wanted.startswith(had[:-1])
    return _permits(had, wanted)
