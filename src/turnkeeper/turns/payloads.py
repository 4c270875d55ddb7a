"""The payloads of the steps our platform sends as Observed Agent (contract 16.3, ledger section 4).

Pure: values in, JSON text out. What a model wrote goes in as data and never as a member name of ours; numbers that
have no canonical form travel as JSON text, so that no step is unsignable. Each value that carries data gets its
provenance here, from the marks the caller was given (PROV-01, PROV-04); nothing a model wrote has a say in it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import orjson

from turnkeeper.acs import JsonValue, Marks, Origin
from turnkeeper.acs.values import signable
from turnkeeper.inspect.agbom import (
    CapabilityComponent,
    ModelComponent,
    ServerComponent,
    SkillComponent,
    ToolComponent,
    render_agbom,
)
from turnkeeper.turns.mcp_server import server_of
from turnkeeper.turns.model import BUILTIN, Agent, SessionReason, StepCounts, TurnOutcome
from turnkeeper.turns.turn_files import TurnFile, reference

SESSION_START: Final = "steps/sessionStart"
AGBOM_SNAPSHOT: Final = "agbom/snapshot"
AGBOM_CHANGED: Final = "agbom/changed"
AGENT_TRIGGER: Final = "steps/agentTrigger"
TURN_START: Final = "steps/turnStart"
USER_MESSAGE: Final = "steps/userMessage"
TOOL_CALL_REQUEST: Final = "steps/toolCallRequest"
TOOL_CALL_RESULT: Final = "steps/toolCallResult"
AGENT_RESPONSE: Final = "steps/agentResponse"
PRE_COMPACT: Final = "steps/preCompact"
POST_COMPACT: Final = "steps/postCompact"
SUBAGENT_START: Final = "steps/subagentStart"
SUBAGENT_STOP: Final = "steps/subagentStop"
SKILL_REGISTER: Final = "steps/skillRegister"
SKILL_LOAD: Final = "steps/skillLoad"
SKILL_UNLOAD: Final = "steps/skillUnload"
TURN_END: Final = "steps/turnEnd"
SESSION_END: Final = "steps/sessionEnd"

GATING_METHODS: Final = (
    SESSION_START,
    AGENT_TRIGGER,
    TURN_START,
    USER_MESSAGE,
    TOOL_CALL_REQUEST,
    TOOL_CALL_RESULT,
    AGENT_RESPONSE,
)
"""Steps whose decision something waits for. A Guardian that looks at fewer is no Guardian of ours."""

WRAPPED_MCP: Final = "protocols/MCP/"
"""What a message of an MCP server is wrapped as, followed by its method."""
MCP_METHODS: Final = (
    "initialize",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/message",
    "notifications/progress",
    "notifications/tools/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/prompts/list_changed",
    "tools/list",
    "resources/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
)
"""What is wrapped. A `tools/call` is a toolCallRequest and a toolCallResult (MCP-01)."""
COMPACTION_METHODS: Final = (PRE_COMPACT, POST_COMPACT)
OWN_METHODS: Final = (*GATING_METHODS, AGBOM_SNAPSHOT, AGBOM_CHANGED, *COMPACTION_METHODS, TURN_END, SESSION_END)
"""Steps whose payloads are made here."""
METHODS_IMPLEMENTED: Final = (
    *OWN_METHODS,
    SUBAGENT_START,
    SUBAGENT_STOP,
    SKILL_REGISTER,
    SKILL_LOAD,
    SKILL_UNLOAD,
    *(f"{WRAPPED_MCP}{method}" for method in MCP_METHODS),
)
OUTBOX_METHODS: Final = frozenset({TURN_END, SESSION_END, SUBAGENT_STOP, SKILL_UNLOAD})
"""Steps that report what has happened: delivered for as long as it takes, by whoever runs the outbox."""

REFERENCE: Final = "request_id_ref"
"""Where a step that is sent again names the step that was asked about."""
ADDITIONAL_CONTEXT: Final = "additional_context"
"""Where a step that is sent again says what an approver knows."""
PROVENANCE_PRODUCER: Final = "deterministic"
PROFILES: Final = ("acs-core", "acs-provenance")
"""What the platform claims as Observed Agent."""

TOOL_PROVIDER: Final = "turnkeeper"
MCP_PROVIDER: Final = "mcp:"
INPUT_SOURCE: Final = "turn_api"
PARENT_SOURCE: Final = "parent_agent"
EGRESS_TOOL: Final = "egress"
EGRESS_CAPABILITY: Final = "network.egress"
EGRESS_SOURCE: Final = "tool_box"
TOOL_CAPABILITIES: Final[Mapping[str, str]] = {
    "shell": "process.execute",
    "read_file": "filesystem.read",
    "write_file": "filesystem.write",
    "list_files": "filesystem.list",
    "load_skill": "skill.load",
}

FileReference: TypeAlias = Mapping[str, object]
Trigger: TypeAlias = Literal["user_message", "auto_continuation", "agent_loop"]
ExitStatus: TypeAlias = Literal["success", "failure", "timeout", "blocked"]
ChangeReason: TypeAlias = Literal["discovery", "component_added", "component_removed", "component_upgraded"]
"""`component_upgraded`: something that was there before says something else of itself now."""


def session_start(*, sandbox_kind: str) -> str:
    """A session of this platform begins; strict, because a missing decision is a denial here."""
    return _text({"policy_mode": "strict", "platform_context": {"platform": "turnkeeper", "sandbox": sandbox_kind}})


def agbom_snapshot(agent: Agent) -> str:
    """What the agent version of the session is made of. What its MCP servers offer is not known yet."""
    return _text({"agbom": agbom_of(agent, configured_servers(agent)), "trigger": "session_start"})


def agbom_changed(agent: Agent, servers: Sequence[ServerComponent], *, reason: ChangeReason) -> str:
    """The whole document as it is now."""
    return _text({"full_snapshot": agbom_of(agent, servers), "reason": reason})


def configured_servers(agent: Agent) -> list[ServerComponent]:
    """An agent's MCP servers as they are configured, before any was spoken to."""
    return [ServerComponent(server.name, server.url) for server in agent.mcp_servers]


def agbom_of(agent: Agent, servers: Sequence[ServerComponent]) -> dict[str, object]:
    """The document of an agent version whose servers are these."""
    return render_agbom(
        agent_id=agent.id,
        agent_name=agent.name,
        agent_version=agent.version,
        model=ModelComponent(
            agent.model.provider, agent.model.id, {name: signable(value) for name, value in agent.model.params.items()}
        ),
        tools=[ToolComponent(name, TOOL_CAPABILITIES.get(name, name)) for name in agent.tools],
        servers=servers,
        capabilities=[*_own_loop(agent), *_subagents(agent)],
        skills=[SkillComponent(one.name, one.id, one.version, one.description, one.sha256) for one in agent.skills],
    )


def _own_loop(agent: Agent) -> list[CapabilityComponent]:
    if agent.harness.kind == BUILTIN.kind:
        return []
    tools = "which brings tools of its own" if agent.harness.is_client else "whose tools the platform runs"
    return [CapabilityComponent("harness", agent.harness.kind, f"runs the agent's loop, {tools}")]


def _subagents(agent: Agent) -> list[CapabilityComponent]:
    return [
        CapabilityComponent(f"subagent:{each.name}", each.name, "takes tasks that the agent hands on", each.tools)
        for each in agent.subagents
    ]


def agent_trigger() -> str:
    """An app posted a turn."""
    return _text({"trigger_type": "user_message", "trigger_source": {"type": "api"}})


def turn_start(turn_id: str, *, triggered_by: Trigger = "user_message") -> str:
    """A turn reached the front of its queue, or goes on after a deferral or a lost attempt."""
    return _text({"turn_id": turn_id, "triggered_by": triggered_by})


def user_message(marks: Marks, text: str, files: Sequence[TurnFile] = ()) -> str:
    """The turn's input, before the agent sees it. Of a file it has what tells it from every other one."""
    parts = [{"type": "text", "value": text}, *(_file(reference(file)) for file in files)]
    return _text({"content": [part | marks.received("user_input", INPUT_SOURCE) for part in parts]})


def handed_task(marks: Marks, task: str) -> str:
    """What a subagent is to do. Another model wrote it, of which this chain knows nothing: it is not a user's word."""
    label = marks.received("a2a_inbound", PARENT_SOURCE)
    return _text({"content": [{"type": "text", "value": task} | label]})


def tool_call_request(marks: Marks, name: str, arguments: Mapping[str, JsonValue]) -> str:
    """An action the agent asks for: every argument is the model's, and derives from all that it was told."""
    labeled = {argument: {"value": signable(value)} | marks.generated() for argument, value in arguments.items()}
    return _text(_tool(name) | {"arguments": labeled})


def egress_request(marks: Marks, host: str, port: int, via: str) -> str:
    """A program in the tool box wants to reach a host. What it says comes from there, and not from the model."""
    arguments = {
        name: {"value": value} | marks.received("tool_output", EGRESS_SOURCE)
        for name, value in {"host": host, "port": port}.items()
    }
    tool = {"name": EGRESS_TOOL, "provider": TOOL_PROVIDER}
    return _text({"tool": tool, "operation": via, "capability": EGRESS_CAPABILITY, "arguments": arguments})


def referring_to(payload_json: str, request_id: str) -> str:
    """The same step sent again, with the step that was asked about."""
    return with_member(without_reference(payload_json), REFERENCE, orjson.dumps(request_id).decode())


def without_reference(payload_json: str) -> str:
    """The step as it was, whichever step it referred to."""
    return _text({name: value for name, value in orjson.loads(payload_json).items() if name != REFERENCE})


def with_member(payload_json: str, name: str, value_json: str) -> str:
    """The payload with one member more."""
    return _text(orjson.loads(payload_json) | {name: signable(orjson.loads(value_json))})


def tool_call_result(
    marks: Marks,
    name: str,
    *,
    exit_status: ExitStatus,
    output: str,
    request_id_ref: str,
    duration_ms: int,
    by_platform: bool = False,
) -> str:
    """What an action gave, before the agent sees it. `by_platform`: the tool said nothing, the text is ours."""
    origin: Origin = "system" if by_platform else "tool_output"
    label = marks.received(origin, TOOL_PROVIDER if by_platform else name)
    return _text(
        _tool(name)
        | {
            "exit_status": exit_status,
            "outputs": [{"value": output} | label],
            "request_id_ref": request_id_ref,
            "duration_ms": duration_ms,
        }
    )


def agent_response(marks: Marks, text: str, result_json: str | None, files: Sequence[FileReference] = ()) -> str:
    """The answer of a turn, text, result and the files it leaves, before anybody sees it.

    ACS knows no content type for structured data; the result is text that says what it is.
    """
    parts: list[dict[str, object]] = [{"type": "text", "value": text}]
    if result_json is not None:
        parts.append({"type": "text", "value": result_json, "name": "result", "media_type": "application/json"})
    parts += [_file(file) for file in files]
    return _text({"content": [part | marks.generated() for part in parts]})


def pre_compact(entries: Sequence[str], *, estimated_tokens: int | None) -> str:
    """An agent's context is about to be summarized: all of it, which came in these steps."""
    payload: dict[str, object] = {"entries_to_compact": list(entries), "triggered_by": "size_threshold"}
    if estimated_tokens is not None:
        payload["estimated_input_tokens"] = estimated_tokens
    return _text(payload)


def post_compact(marks: Marks, summary: str, entries: Sequence[str], union: Sequence[str], head: str) -> str:
    """What the context was summarized to. It derives from every value of every entry, whatever the model made of them.

    The head after this step cannot be known before it; nobody looks at it (CORE-CMP-05).
    """
    return _text(
        {
            "summary": {"value": summary} | marks.generated(union),
            "entries_compacted": list(entries),
            "pre_compact_chain_hash": head,
            "post_compact_chain_hash": head,
        }
    )


def entries_of(payload_json: str | None) -> tuple[str, ...]:
    """The steps that a preCompact was about."""
    return tuple(orjson.loads(payload_json or "{}").get("entries_to_compact", ()))


def turn_end(
    marks: Marks, turn_id: str, outcome: TurnOutcome, counts: StepCounts, union: Sequence[str] | None = None
) -> str:
    """A turn is over. A count that is not known is left out, never guessed (amendment 4).

    `union` is every provenance id of the turn's steps; the summary derives from all of them. Its text is ours and
    quotes nothing. A turn that showed no data, or whose ids are not all at hand, has no summary.
    """
    payload: dict[str, object] = {"turn_id": turn_id, "outcome": outcome}
    if counts.step_count is not None:
        payload["step_count"] = counts.step_count
    if counts.tool_call_count is not None:
        payload["tool_call_count"] = counts.tool_call_count
    if union:
        payload["summary"] = {"value": f"the turn ended: {outcome}"} | marks.generated(union)
    return _text(payload)


def session_end(reason: SessionReason) -> str:
    """A session is over."""
    return _text({"reason": reason})


def _file(file: FileReference) -> dict[str, object]:
    # As text, so that a rule that reads texts reads it too.
    value = orjson.dumps(file).decode()
    return {"type": "file", "value": value, "name": file["name"], "media_type": file["media_type"]}


def _tool(name: str) -> dict[str, object]:
    server = server_of(name)
    provider = TOOL_PROVIDER if server is None else f"{MCP_PROVIDER}{server}"
    tool: dict[str, object] = {"tool": {"name": name, "provider": provider}}
    if name in TOOL_CAPABILITIES:
        tool["capability"] = TOOL_CAPABILITIES[name]
    return tool


def _text(payload: Mapping[str, object]) -> str:
    return orjson.dumps(payload).decode()
