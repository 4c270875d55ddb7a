"""The steps of every hook as values: what is sent, and what the agent may use afterwards (ACS 5, ledger section 4).

Pure. Answers for payloads that pass the standard's schemas and for reading back what a MODIFY left of them. A value
that has no canonical form (an integer beyond 2**53, say) is sent as its JSON text; unmodified, the agent gets its own
value back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

from turnkeeper.acs import CanonicalizationRejected
from turnkeeper.acs.lineage import Marks, Origin
from turnkeeper.acs.values import signable
from turnkeeper.client.errors import StepInvalid

T = TypeVar("T")

Payload: TypeAlias = Mapping[str, object]
TriggerType: TypeAlias = Literal["user_message", "scheduled", "external_event", "a2a_inbound", "system"]
TurnTrigger: TypeAlias = Literal[
    "user_message", "auto_continuation", "agent_loop", "subagent_return", "scheduled", "external_event"
]
TurnOutcome: TypeAlias = Literal["completed", "deferred", "error", "interrupted", "denied_at_start"]
SessionReason: TypeAlias = Literal["completed", "cancelled", "error", "timeout", "abandoned"]
ExitStatus: TypeAlias = Literal["success", "failure", "timeout", "blocked"]
PolicyMode: TypeAlias = Literal["strict", "moderate", "permissive"]
MemoryScope: TypeAlias = Literal["session", "user", "tenant", "global"]
MemoryOperation: TypeAlias = Literal["create", "update", "delete"]
CompactionTrigger: TypeAlias = Literal["size_threshold", "manual", "agent_initiated", "framework_initiated"]
IntentDerivation: TypeAlias = Literal["inherit_full", "inherit_subset", "derived_from_parent", "fresh"]
SubagentOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "timeout", "denied_at_spawn"]
LoadTrigger: TypeAlias = Literal["user", "agent_decision", "skill_composition", "system"]
UnloadReason: TypeAlias = Literal["session_end", "explicit_unload", "replaced", "error"]
AgbomTrigger: TypeAlias = Literal["session_start", "renegotiation", "policy_request"]

TOOL_CALL_REQUEST = "steps/toolCallRequest"
SESSION_START = "steps/sessionStart"
SESSION_END = "steps/sessionEnd"
TURN_START = "steps/turnStart"
TURN_END = "steps/turnEnd"


@dataclass(frozen=True, slots=True)
class Retrieved:
    """One result of a retrieval; `source_id` names the index or store it came from."""

    value: object
    source_id: str | None = None
    score: float | None = None
    memory_id: str | None = None


@dataclass(frozen=True, slots=True)
class Digest:
    """What identifies a skill's definition."""

    value: str
    algorithm: Literal["sha-256", "sha-512"] = "sha-256"

    def to_document(self) -> dict[str, object]:
        """As the wire has it."""
        return {"algorithm": self.algorithm, "value": self.value}


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """A step to ask for. `read` takes the payload that was allowed and returns what the agent goes on with."""

    method: str
    payload: Payload
    read: Callable[[Payload], T]
    marks: Marks | None = field(default=None, compare=False)


def plain(method: str, payload: Payload, marks: Marks | None = None) -> Step[Payload]:
    """A step whose payload is all there is to it."""
    return Step(method, payload, _same, marks)


def session_start(
    *,
    policy_mode: PolicyMode | None = None,
    intent: Payload | None = None,
    user_identity: Payload | None = None,
    platform_context: Payload | None = None,
) -> Step[Payload]:
    """A session begins; `intent` is fixed here or at the first agentTrigger (CORE-INT-02)."""
    members = _present(
        policy_mode=policy_mode, intent=intent, user_identity=user_identity, platform_context=platform_context
    )
    return plain(SESSION_START, members)


def session_end(reason: SessionReason) -> Step[Payload]:
    """A session is over."""
    return plain(SESSION_END, {"reason": reason})


def agent_trigger(
    trigger_type: TriggerType, *, source: Payload | None = None, intent: Payload | None = None
) -> Step[Payload]:
    """Something set the agent in motion; what comes back is the trigger source."""
    members = _present(trigger_type=trigger_type, trigger_source=source, intent=intent)
    return Step("steps/agentTrigger", members, lambda allowed: _object(allowed.get("trigger_source", {})))


def agbom_snapshot(agbom: Payload, *, trigger: AgbomTrigger = "session_start") -> Step[Payload]:
    """What the agent is made of, once per session after it started (INSP-01)."""
    return plain("agbom/snapshot", {"agbom": agbom, "trigger": trigger})


def agbom_changed(
    *, diff: Payload | None = None, full_snapshot: Payload | None = None, reason: str | None = None
) -> Step[Payload]:
    """The agent is made of something else now: a difference or everything anew (INSP-04)."""
    return plain("agbom/changed", _present(diff=diff, full_snapshot=full_snapshot, reason=reason))


def turn_start(turn_id: str, triggered_by: TurnTrigger, parent_turn_id: str | None = None) -> Step[Payload]:
    """A turn begins."""
    members = _present(turn_id=turn_id, triggered_by=triggered_by, parent_turn_id=parent_turn_id)
    return plain(TURN_START, members)


def turn_end(
    turn_id: str,
    outcome: TurnOutcome,
    *,
    step_count: int | None,
    tool_call_count: int | None,
    summary: Payload | None = None,
) -> Step[Payload]:
    """A turn is over. A count that is not known is left out."""
    members = _present(
        turn_id=turn_id, outcome=outcome, step_count=step_count, tool_call_count=tool_call_count, summary=summary
    )
    return plain(TURN_END, members)


def user_message(marks: Marks, text: str, *, origin: Origin = "user_input", source_id: str | None = None) -> Step[str]:
    """Something was said to the agent; what comes back is what it may read."""
    return _message("steps/userMessage", text, marks.received(origin, source_id), marks)


def agent_response(marks: Marks, text: str) -> Step[str]:
    """The agent answers; what comes back is what may be shown."""
    return _message("steps/agentResponse", text, marks.generated(), marks)


def tool_call_request(
    marks: Marks,
    name: str,
    arguments: Mapping[str, object],
    *,
    provider: str | None = None,
    version: str | None = None,
    operation: str | None = None,
    capability: str | None = None,
    raw_command: str | None = None,
    goal: str | None = None,
) -> Step[dict[str, object]]:
    """The agent wants to act (CORE-HOOK-02); what comes back are the arguments to act with."""
    sent = {argument: {"value": _signable(value)} | marks.generated() for argument, value in arguments.items()}
    members: dict[str, object] = {"tool": _present(name=name, version=version, provider=provider)}
    members |= _present(operation=operation, capability=capability, raw_command=raw_command)
    members |= {"arguments": sent} | ({"intent": {"goal": goal}} if goal is not None else {})

    def read(allowed: Payload) -> dict[str, object]:
        told = cast("Mapping[str, Mapping[str, object]]", allowed["arguments"])
        return {
            argument: arguments[argument] if _is_unchanged(member, sent.get(argument)) else member["value"]
            for argument, member in told.items()
        }

    return Step(TOOL_CALL_REQUEST, members, read, marks)


def tool_call_result(
    marks: Marks,
    name: str,
    output: object,
    *,
    exit_status: ExitStatus = "success",
    request_id_ref: str | None = None,
    duration_ms: int | None = None,
    operation: str | None = None,
) -> Step[object]:
    """What an action gave, before the agent reads it; what comes back is what it may read."""
    sent = {"value": _signable(output)} | marks.received("tool_output", name)
    members: dict[str, object] = {"tool": {"name": name}, "exit_status": exit_status, "outputs": [sent]}
    members |= _present(request_id_ref=request_id_ref, duration_ms=duration_ms, operation=operation)

    def read(allowed: Payload) -> object:
        outputs = cast("Sequence[Mapping[str, object]]", allowed["outputs"])
        return output if not outputs or _is_unchanged(outputs[0], sent) else outputs[0]["value"]

    return Step("steps/toolCallResult", members, read, marks)


def knowledge_retrieval(
    marks: Marks, query: str, results: Sequence[Retrieved], *, source: Payload | None = None
) -> Step[list[object]]:
    """What was found for a query; what comes back are the values the agent may read."""
    members: dict[str, object] = {"query": {"value": query} | marks.generated()}
    members |= _present(source=source)
    members["results"] = [
        {"value": _signable(result.value)}
        | _present(source_id=result.source_id, score=result.score)
        | marks.received("retrieved", result.source_id)
        for result in results
    ]
    return Step("steps/knowledgeRetrieval", members, _values("results"), marks)


def memory_context_retrieval(
    marks: Marks,
    results: Sequence[Retrieved],
    *,
    query: str | None = None,
    store: str | None = None,
    scope: MemoryScope | None = None,
) -> Step[list[object]]:
    """What memory brings into the context; what comes back are the values the agent may read."""
    members: dict[str, object] = {} if query is None else {"query": {"value": query} | marks.generated()}
    members |= _store(store, scope)
    members["results"] = [
        {"value": _signable(result.value)}
        | _present(memory_id=result.memory_id)
        | marks.received("retrieved", result.source_id or store)
        for result in results
    ]
    return Step("steps/memoryContextRetrieval", members, _values("results"), marks)


def memory_store(
    marks: Marks,
    value: object,
    *,
    operation: MemoryOperation = "create",
    memory_id: str | None = None,
    store: str | None = None,
    scope: MemoryScope | None = None,
) -> Step[object]:
    """Something is to be remembered; what comes back is what may be written."""
    sent = {"value": _signable(value)} | marks.generated()
    members = {"content": sent, "operation": operation} | _present(memory_id=memory_id) | _store(store, scope)

    def read(allowed: Payload) -> object:
        content = _object(allowed["content"])
        return value if _is_unchanged(content, sent) else content["value"]

    return Step("steps/memoryStore", members, read, marks)


def pre_compact(
    entries: Sequence[str],
    triggered_by: CompactionTrigger = "framework_initiated",
    *,
    provenance_summary: Payload | None = None,
    estimated_input_tokens: int | None = None,
    target_summary_tokens: int | None = None,
) -> Step[Payload]:
    """Entries are about to be replaced by a summary (CORE-CMP-01)."""
    members: dict[str, object] = {"entries_to_compact": list(entries), "triggered_by": triggered_by}
    members |= _present(
        pre_compact_provenance_summary=provenance_summary,
        estimated_input_tokens=estimated_input_tokens,
        target_summary_tokens=target_summary_tokens,
    )
    return plain("steps/preCompact", members)


def post_compact(
    marks: Marks,
    summary: str,
    entries: Sequence[str],
    *,
    derived_from: Sequence[str],
    head_before: str,
    lineage_depth_after: int | None = None,
) -> Step[str]:
    """Entries were replaced by a summary; what comes back is the summary to keep.

    `derived_from` is the union of the provenance ids of every entry compacted (CORE-CMP-02). The head after this step
    cannot be known before it (CORE-CMP-05); the head before stands in its place.
    """
    label = marks.generated(derived_from) or {
        "provenance": {
            "provenance_id": marks.lineage.new_id(),
            "origin": "agent_generated",
            "derived_from": list(derived_from),
        }
    }
    members: dict[str, object] = {
        "summary": {"value": summary} | label,
        "entries_compacted": list(entries),
        "pre_compact_chain_hash": head_before,
        "post_compact_chain_hash": head_before,
    }
    members |= _present(lineage_depth_after=lineage_depth_after)
    return Step("steps/postCompact", members, lambda allowed: str(_object(allowed["summary"])["value"]), marks)


def subagent_start(
    subagent_session_id: str,
    parent_session_id: str,
    parent_step_id: str,
    *,
    intent_derivation: IntentDerivation = "inherit_full",
    intent: Payload | None = None,
    descriptor: Payload | None = None,
) -> Step[Payload]:
    """A subagent is about to start, in a session of its own (CORE-SUB-01)."""
    members: dict[str, object] = {
        "subagent_session_id": subagent_session_id,
        "parent_session_id": parent_session_id,
        "parent_step_id": parent_step_id,
        "intent_derivation": intent_derivation,
    }
    return plain("steps/subagentStart", members | _present(subagent_intent=intent, subagent_descriptor=descriptor))


def subagent_stop(
    marks: Marks,
    subagent_session_id: str,
    outcome: SubagentOutcome,
    *,
    final_chain_hash: str | None = None,
    step_count: int | None = None,
) -> Step[Payload]:
    """A subagent is done. A chain hash that nobody published is left out (CORE-SUB-06)."""
    members: dict[str, object] = {"subagent_session_id": subagent_session_id, "outcome": outcome}
    members |= _present(final_chain_hash=final_chain_hash, subagent_step_count=step_count)
    return plain("steps/subagentStop", members, marks)


def skill_register(
    marks: Marks,
    skill_id: str,
    digest: Digest,
    declared_capabilities: Sequence[str],
    *,
    ref: str | None = None,
    body: str | None = None,
    composition: Payload | None = None,
    skill: Payload | None = None,
) -> Step[Payload]:
    """A skill is to become loadable (CORE-SKILL-01)."""
    label = marks.received("system").get("provenance")
    members: dict[str, object] = {
        "skill_id": skill_id,
        "definition": {"digest": digest.to_document()} | _present(ref=ref, body=body),
        "declared_capabilities": list(declared_capabilities),
    }
    members |= _present(composition=composition, skill=skill, registration_provenance=label)
    return plain("steps/skillRegister", members, marks)


def skill_load(
    skill_id: str,
    digest: Digest,
    *,
    load_trigger: LoadTrigger = "agent_decision",
    load_path: Sequence[str] = (),
    registration_ref: str | None = None,
    parent_step_id: str | None = None,
    declared_capabilities: Sequence[str] | None = None,
) -> Step[Payload]:
    """A skill is to be loaded; `load_path` names the skills that led to it, root first (CORE-SKILL-07)."""
    members: dict[str, object] = {
        "skill_id": skill_id,
        "digest": digest.to_document(),
        "load_trigger": load_trigger,
        "load_path": [{"skill_id": name} for name in load_path or (skill_id,)],
    }
    declared = None if declared_capabilities is None else list(declared_capabilities)
    members |= _present(
        registration_ref=registration_ref, parent_step_id=parent_step_id, declared_capabilities=declared
    )
    return plain("steps/skillLoad", members)


def skill_unload(skill_id: str, reason: UnloadReason, *, replaced_by: str | None = None) -> Step[Payload]:
    """A skill was unloaded (CORE-SKILL-08)."""
    return plain("steps/skillUnload", {"skill_id": skill_id, "reason": reason} | _present(replaced_by=replaced_by))


def mcp(message: Payload, *, answers: str | None = None) -> Step[Payload]:
    """An MCP message, carried intact (MCP-02, MCP-03); what comes back is the message to forward or consume.

    A response names the method it answers in `answers`. Raises `StepInvalid` where neither names one.
    """
    method = answers if answers is not None else message.get("method")
    if not isinstance(method, str) or not method:
        raise StepInvalid("an MCP message names no method, and a response says not which it answers")
    return plain(f"protocols/MCP/{method}", message)


def _message(method: str, text: str, label: dict[str, object], marks: Marks) -> Step[str]:
    payload = {"content": [{"type": "text", "value": text} | label]}

    def read(allowed: Payload) -> str:
        parts = cast("Sequence[Mapping[str, object]]", allowed["content"])
        return str(parts[0]["value"]) if parts else ""

    return Step(method, payload, read, marks)


def _values(member: str) -> Callable[[Payload], list[object]]:
    return lambda allowed: [item["value"] for item in cast("Sequence[Mapping[str, object]]", allowed[member])]


def _same(allowed: Payload) -> Payload:
    return allowed


def _is_unchanged(member: Mapping[str, object], sent: Mapping[str, object] | None) -> bool:
    return sent is not None and type(member["value"]) is type(sent["value"]) and member["value"] == sent["value"]


def _signable(value: object) -> object:
    """The value, or its JSON text where it has no canonical form. Raises `StepInvalid` for what is no JSON."""
    try:
        return signable(value)
    except CanonicalizationRejected as error:
        message = f"a value of type {type(value).__name__} cannot be shown to a Guardian as JSON"
        raise StepInvalid(message) from error


def _store(name: str | None, scope: MemoryScope | None) -> dict[str, object]:
    members = _present(name=name, scope=scope)
    return {"memory_store": members} if members else {}


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value)


def _present(**members: Any) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}
