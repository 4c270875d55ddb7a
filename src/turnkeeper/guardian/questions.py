"""What a decided step leaves of questions to approvers: one raised, or a grant used and the intent it extends.

Answers for the rows and entries that belong into the step's own commit. Pure.
"""

from collections.abc import Mapping
from typing import cast

import orjson

from turnkeeper.acs import Disposition, link
from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.calls import Call
from turnkeeper.guardian.ledger import Considered
from turnkeeper.guardian.memory import SessionMemory
from turnkeeper.guardian.ports import ExtensionRecord, SessionProgress, SessionTerms
from turnkeeper.guardian.resubmissions import (
    Resubmission,
    asking,
    extension_entry,
    question_of,
    raises_question,
    using,
)
from turnkeeper.guardian.settings import MAX_IDENTIFIER_CHARACTERS
from turnkeeper.guardian.verdicts import Ruling
from turnkeeper.records import record


@record
class Asking:
    """What a step changes about questions to approvers, and the session's memory after it."""

    memory: SessionMemory
    question: Approval | None = None
    used_approval: str | None = None
    extension: Mapping[str, object] | None = None


def asked_by(
    call: Call,
    terms: SessionTerms,
    considered: Considered,
    ruling: Ruling,
    *,
    again: Resubmission | None,
    memory: SessionMemory,
) -> Asking:
    """What a decided step changes, when `memory` is what the session remembers of everything else."""
    decision = ruling.decision
    if again is None and raises_question(decision):
        question = question_of(
            call.envelope,
            terms,
            decision,
            ruling.ask,
            tool=_tool_name(considered.called or call.envelope.payload),
            turn_id=considered.placement.turn_id,
            now_ms=call.received_at_ms,
        )
        return Asking(asking(memory, question), question)
    if again is None or again.grant is None or decision.disposition not in (Disposition.ALLOW, Disposition.MODIFY):
        return Asking(memory)
    extension = extension_entry(call.envelope, again, memory, considered.placement.turn_id)
    return Asking(using(memory, again, again.grant), None, again.grant.approval_id, extension)


def extension_record(progress: SessionProgress, asked: Asking) -> ExtensionRecord | None:
    """The entry of the extension that a step brings into force, linked to the head before it."""
    if asked.extension is None:
        return None
    linked = link(asked.extension, progress.head)
    return ExtensionRecord(
        progress.recorded + 1, str(linked["entry_id"]), orjson.dumps(linked), str(linked["entry_hash"])
    )


def _tool_name(members: Mapping[str, object]) -> str:
    tool = members.get("tool")
    name = cast("Mapping[str, object]", tool).get("name") if isinstance(tool, Mapping) else None
    return name[:MAX_IDENTIFIER_CHARACTERS] if isinstance(name, str) else ""
