"""Lineage of summaries (CORE-CMP-02 to 06, PROV-05): a summary derives from everything it was made of.

Answers for postCompact, whose summary owes the union of the ids of the entries it replaced, and for turnEnd, whose
summary owes the union of its turn's. Must never deny: both report what has happened. Pure.
"""

from collections.abc import Mapping
from typing import Final, cast

from turnkeeper.guardian.checks import CONTENT, Checked, Note, Step
from turnkeeper.guardian.memory import SessionMemory
from turnkeeper.guardian.provenance import AGENT_GENERATED

LINEAGE_MISMATCH: Final = "lineage_mismatch"
LINEAGE_UNVERIFIABLE: Final = "lineage_unverifiable"
COMPACTION_HEAD_DIFFERS: Final = "compaction_chain_hash_differs"


def check_post_compact(step: Step, memory: SessionMemory) -> Checked:
    """The rule for postCompact. `post_compact_chain_hash` cannot be known by its sender and is not looked at."""
    owed = step.lineage.of_steps(cast("list[str]", step.payload["entries_compacted"]))
    checked = _compared(_provenance(step.payload), owed, memory)
    if step.payload["pre_compact_chain_hash"] == step.head:
        return checked
    note = Note(COMPACTION_HEAD_DIFFERS, "a compaction states another chain head before it than the Guardian's")
    return Checked(notes=(*checked.notes, note), codes=checked.codes)


def check_turn_end(step: Step, memory: SessionMemory) -> Checked:
    """The rule for a turnEnd that carries a summary and closes its turn."""
    closed = step.placement.closed
    if closed is None or "summary" not in step.payload:
        return CONTENT
    return _compared(_provenance(step.payload), step.lineage.of_turn(closed.turn_id), memory)


def _compared(provenance: Mapping[str, object], owed: frozenset[str], memory: SessionMemory) -> Checked:
    stated = frozenset(cast("list[str]", provenance.get("derived_from", [])))
    if provenance["origin"] == AGENT_GENERATED and stated == owed:
        return CONTENT
    if memory.lineage_cut and provenance["origin"] == AGENT_GENERATED and stated >= owed:
        message = "a summary's lineage cannot be checked whole: the session had more ids than are remembered"
        return Checked(notes=(Note(LINEAGE_UNVERIFIABLE, message),), codes=(LINEAGE_UNVERIFIABLE,))
    message = "a summary does not derive from exactly the data it was made of"
    return Checked(notes=(Note(LINEAGE_MISMATCH, message),), codes=(LINEAGE_MISMATCH,))


def _provenance(payload: Mapping[str, object]) -> Mapping[str, object]:
    summary = cast("dict[str, object]", payload["summary"])
    return cast("dict[str, object]", summary["provenance"])
