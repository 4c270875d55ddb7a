"""A valid payload for every hook, and the pieces they are made of."""

from collections.abc import Mapping
from uuid import uuid4

from tests.unit.guardian.kit import MESSAGE, TOOL_CALL

DIGEST: dict[str, object] = {"algorithm": "sha-256", "value": "ab" * 32}
OTHER_DIGEST: Mapping[str, object] = {"algorithm": "sha-256", "value": "cd" * 32}
HASH = "0" * 64
AGBOM: Mapping[str, object] = {"agbom_version": "1.0.0", "agent": {"agent_id": "agent"}, "components": []}

PAYLOADS: Mapping[str, Mapping[str, object]] = {
    "steps/sessionStart": {},
    "agbom/snapshot": {"agbom": AGBOM},
    "agbom/changed": {"full_snapshot": AGBOM},
    "steps/agentTrigger": {"trigger_type": "scheduled"},
    "steps/turnStart": {"turn_id": "t", "triggered_by": "user_message"},
    "steps/userMessage": MESSAGE,
    "steps/knowledgeRetrieval": {"query": {"value": "q"}, "results": []},
    "steps/memoryContextRetrieval": {"results": []},
    "steps/memoryStore": {"content": {"value": 1}},
    "steps/toolCallRequest": TOOL_CALL,
    "steps/toolCallResult": {"tool": {"name": "shell"}, "exit_status": "success", "outputs": [{"value": "x"}]},
    "steps/agentResponse": MESSAGE,
    "steps/preCompact": {"entries_to_compact": ["r"], "triggered_by": "manual"},
    "steps/postCompact": {
        "summary": {
            "value": "s",
            "provenance": {"provenance_id": "summary", "origin": "agent_generated", "derived_from": []},
        },
        "entries_compacted": ["r"],
        "pre_compact_chain_hash": HASH,
        "post_compact_chain_hash": HASH,
    },
    "steps/subagentStart": {
        "subagent_session_id": str(uuid4()),
        "parent_session_id": str(uuid4()),
        "parent_step_id": "r",
        "intent_derivation": "fresh",
    },
    "steps/subagentStop": {"subagent_session_id": str(uuid4()), "outcome": "completed"},
    "steps/skillRegister": {"skill_id": "k", "definition": {"digest": DIGEST}, "declared_capabilities": []},
    "steps/skillLoad": {"skill_id": "k", "digest": DIGEST, "load_trigger": "user", "load_path": [{"skill_id": "k"}]},
    "steps/skillUnload": {"skill_id": "k", "reason": "explicit_unload"},
    "steps/turnEnd": {"turn_id": "t", "outcome": "completed"},
    "steps/sessionEnd": {"reason": "completed"},
}


def provenance(name: str, origin: str = "tool_output", *parents: str, **members: object) -> dict[str, object]:
    """A provenance object."""
    made = {"provenance_id": name, "origin": origin} | members
    return made | {"derived_from": list(parents)} if parents else made


def result(*data: Mapping[str, object], **members: object) -> dict[str, object]:
    """A tool result with one output for each provenance object."""
    outputs = [{"value": "x", "provenance": dict(datum)} for datum in data]
    return {"tool": {"name": "fetch"}, "exit_status": "success", "outputs": outputs} | members


def said(*data: Mapping[str, object]) -> dict[str, object]:
    """A message with one part for each provenance object."""
    return {"content": [{"type": "text", "value": "x", "provenance": dict(datum)} for datum in data]}


def summary(*parents: str, origin: str = "agent_generated", name: str = "the-summary") -> dict[str, object]:
    """What postCompact and turnEnd carry of a summary."""
    return {
        "summary": {
            "value": "in short",
            "provenance": {"provenance_id": name, "origin": origin, "derived_from": list(parents)},
        }
    }
