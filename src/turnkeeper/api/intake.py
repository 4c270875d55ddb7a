"""From a request body to something the store can be given (contract 2 and 8).

Answers for checked, typed values with the raw text of what must be echoed. Looks nothing up but names it was given.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal, cast

import orjson

from turnkeeper.acs.strictjson import JsonObject, JsonValue
from turnkeeper.api.agent_harness import parse_harness
from turnkeeper.api.agent_mcp import parse_mcp_servers
from turnkeeper.api.agent_sandbox import parse_pool, parse_sandbox
from turnkeeper.api.agent_subagents import parse_subagents
from turnkeeper.api.agent_tools import parse_permissions, parse_tools
from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.budget_intake import parse_limits
from turnkeeper.api.deps import ApiDeps, ApiSettings
from turnkeeper.api.fields import Fields
from turnkeeper.api.input_intake import parse_input
from turnkeeper.api.networks import parse_network
from turnkeeper.api.secret_intake import parse_session_secrets
from turnkeeper.api.skill_intake import parse_agent_skills
from turnkeeper.api.unbuilt import (
    AGENT_CHANGE_FIELDS,
    AGENT_FIELDS,
    GUARDIAN_FIELDS,
    LIMITS_FIELDS,
    SESSION_FIELDS,
    TURN_FIELDS,
)
from turnkeeper.ids import is_id
from turnkeeper.turns.model import NO_NETWORK, AgentLimits, Budget, CancelMode, ModelChoice, OnBusy
from turnkeeper.turns.pausing import MAX_PAUSE_EXPIRY_MS
from turnkeeper.turns.ports import NewAgent, NewSession
from turnkeeper.turns.retention import MAX_RETENTION_DAYS, SessionChange

MAX_NAME_CHARACTERS: Final = 200
MAX_INSTRUCTIONS_CHARACTERS: Final = 262_144
MAX_PARAMS: Final = 32
MAX_PARAMS_BYTES: Final = 16_384
MAX_REASON_CHARACTERS: Final = 500
MAX_REPAIR_ATTEMPTS: Final = 10
MAX_ATTEMPTS: Final = 5
DEFAULT_TIMEOUT_MS: Final = 3_600_000
MAX_TIMEOUT_MS: Final = 86_400_000
DEFAULT_REPAIR_ATTEMPTS: Final = 3

_AGENT_NAMES = frozenset(
    {
        "name",
        "model",
        "instructions",
        "tools",
        "mcp_servers",
        "permissions",
        "limits",
        "guardian",
        "metadata",
        "sandbox",
        "harness",
        "subagents",
        "skills",
    }
)
_SESSION_NAMES = frozenset(
    {"agent_id", "title", "budget", "metadata", "retention_days", "agent_version", "network", "secrets"}
)
_TURN_NAMES = frozenset(
    {
        "input",
        "output_schema",
        "metadata",
        "budget",
        "max_repair_attempts",
        "max_attempts",
        "on_busy",
        "start_by",
    }
)


@dataclass(frozen=True, slots=True)
class TurnBody:
    """The body of a posted turn. An attempt limit is `None` where the agent's own number counts.

    `files` has the ids of its files, each with the pointer of its part.
    """

    input_text: str
    input_json: str
    output_schema_json: str | None
    metadata_json: str
    budget: Budget | None
    max_repair_attempts: int | None
    max_attempts: int | None = None
    on_busy: OnBusy = "enqueue"
    start_by: datetime | None = None
    files: Mapping[str, str] = field(default_factory=dict[str, str])


def parse_agent(body: JsonBody, deps: ApiDeps) -> NewAgent:
    """The agent to create, apart from the skills that it names. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close(_AGENT_NAMES | {"budget"}, AGENT_FIELDS)
    budget = parse_limits(fields.object("budget"))
    return replace(_agent(fields, body, deps), budget=budget)


def _agent(fields: Fields, body: JsonBody, deps: ApiDeps) -> NewAgent:
    name = fields.required_text("name", max_characters=MAX_NAME_CHARACTERS)
    model = _model(fields.required_object("model"), deps)
    instructions = fields.text("instructions", max_characters=MAX_INSTRUCTIONS_CHARACTERS, one_line=False) or ""
    tools, client_tools = parse_tools(fields, deps.tool_names)
    permissions = parse_permissions(fields)
    limits = _limits(fields.object("limits"))
    streamed = _streams_before_decision(fields.object("guardian"))
    metadata_json = parse_metadata(fields, body, deps.settings)
    box = fields.object("sandbox")
    sandbox = parse_sandbox(box, deps.settings.largest_box)
    network = None if box is None else parse_network(box.object("network"), deps.settings.egress)
    harness = parse_harness(fields, deps.settings.harnesses)
    mcp_servers = parse_mcp_servers(fields, deps.settings.egress, network or NO_NETWORK)
    pool = parse_pool(fields, box, deps.settings.pools)
    taken = {*deps.tool_names, *(tool.name for tool in client_tools)}
    brings_tools = harness.is_client or pool is not None
    subagents = parse_subagents(fields, tools, taken, brings_tools=brings_tools)
    parse_agent_skills(fields, brings_tools=brings_tools)
    fields.finish()
    return NewAgent(
        name,
        model,
        instructions,
        tools,
        limits,
        metadata_json,
        permissions=permissions,
        client_tools=client_tools,
        stream_before_decision=streamed,
        sandbox=sandbox,
        harness=harness,
        network=network or NO_NETWORK,
        mcp_servers=mcp_servers,
        pool=pool,
        subagents=subagents,
    )


def parse_agent_change(body: JsonBody, agent: JsonObject, metadata_json: str, deps: ApiDeps) -> tuple[NewAgent, int]:
    """The next version of an agent shown as `agent`, and the version that it follows. Raises `RequestRefused`.

    Of its skills nothing is looked up.
    """
    given = Fields({"expected_version": body.members.get("expected_version")})
    expected = given.integer("expected_version", low=1)
    if expected is None:
        given.note("expected_version", "invalid_field", "/expected_version is required: the version that is changed")
    given.finish()
    changed = {name: value for name, value in body.members.items() if name != "expected_version"}
    kept = {name: agent[name] for name in _AGENT_NAMES}
    whole = JsonBody({**kept, **changed}, {"metadata": metadata_json, **body.slices})
    fields = Fields(whole.members)
    fields.close(_AGENT_NAMES, AGENT_CHANGE_FIELDS)
    return _agent(fields, whole, deps), expected or 0


def parse_session(body: JsonBody, settings: ApiSettings) -> NewSession:
    """The session to open. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close(_SESSION_NAMES, SESSION_FIELDS)
    agent_id = fields.required_text("agent_id", max_characters=MAX_NAME_CHARACTERS)
    title = fields.text("title", max_characters=MAX_NAME_CHARACTERS)
    budget = parse_limits(fields.object("budget"))
    metadata_json = parse_metadata(fields, body, settings)
    retention_days = fields.integer("retention_days", low=1, high=MAX_RETENTION_DAYS)
    version = fields.integer("agent_version", low=1)
    network = parse_network(fields.object("network"), settings.egress)
    secrets = parse_session_secrets(fields)
    if agent_id and not is_id(agent_id, "agt"):
        fields.note("agent_id", "invalid_field", "/agent_id is not the id of an agent")
    fields.finish()
    return NewSession(
        agent_id,
        title,
        metadata_json,
        budget,
        retention_days=retention_days,
        agent_version=version,
        network=network,
        secrets=secrets,
    )


def parse_session_change(body: JsonBody, settings: ApiSettings) -> SessionChange:
    """What is said about a session now; a member that is left out stays as it is. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"title", "metadata", "retention_days"}, {})
    change = SessionChange(
        title=fields.text("title", max_characters=MAX_NAME_CHARACTERS),
        metadata_json=fields.raw_object("metadata", body.slices, max_bytes=settings.metadata_bytes),
        retention_days=fields.integer("retention_days", low=1, high=MAX_RETENTION_DAYS),
    )
    fields.finish()
    return change


def parse_turn(body: JsonBody, settings: ApiSettings) -> TurnBody:
    """The turn to accept. The output schema is not looked into here. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close(_TURN_NAMES, TURN_FIELDS)
    posted = parse_input(fields, body.slices, settings.text_bytes)
    metadata_json = parse_metadata(fields, body, settings)
    budget = parse_limits(fields.object("budget"))
    repairs = fields.integer("max_repair_attempts", low=0, high=MAX_REPAIR_ATTEMPTS)
    attempts = fields.integer("max_attempts", low=1, high=MAX_ATTEMPTS)
    on_busy = cast("OnBusy", fields.choice("on_busy", ("enqueue", "reject", "interrupt"), "enqueue"))
    start_by = fields.time("start_by")
    schema_json = body.slices["output_schema"] if fields.has("output_schema") else None
    fields.finish()
    return TurnBody(
        posted.text,
        body.slices["input"],
        schema_json,
        metadata_json,
        budget,
        repairs,
        max_attempts=attempts,
        on_busy=on_busy,
        start_by=start_by,
        files=posted.files,
    )


def parse_cancel(body: JsonBody) -> tuple[CancelMode, str | None]:
    """How a turn is to be canceled, and why. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"mode", "reason"}, {})
    mode = fields.choice("mode", ("graceful", "immediate"), "graceful")
    reason = fields.text("reason", max_characters=MAX_REASON_CHARACTERS)
    fields.finish()
    return cast("CancelMode", mode), reason


def parse_close(body: JsonBody) -> Literal["drain", "cancel"]:
    """What becomes of a closing session's queue; it is worked off when nothing is said. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"mode"}, {})
    mode = fields.choice("mode", ("drain", "cancel"), "drain")
    fields.finish()
    return cast("Literal['drain', 'cancel']", mode)


def _model(fields: Fields, deps: ApiDeps) -> ModelChoice:
    fields.close({"provider", "id", "params"}, {})
    provider = fields.required_text("provider", max_characters=MAX_NAME_CHARACTERS)
    model_id = fields.required_text("id", max_characters=MAX_NAME_CHARACTERS)
    if provider and provider not in deps.providers:
        configured = ", ".join(sorted(deps.providers)) or "none"
        fields.note("provider", "invalid_field", f"no provider has this name; configured: {configured}")
    return ModelChoice(provider, model_id, _params(fields.object("params"), deps.model_params))


def _params(fields: Fields | None, allowed: frozenset[str] | None) -> Mapping[str, object]:
    if fields is None:
        return {}
    if len(fields.members()) > MAX_PARAMS or not _storable(fields.members()):
        fields.note_whole("invalid_field", f"has more than {MAX_PARAMS} members, or a number that no model takes")
    if allowed is not None:
        unbuilt: dict[str, tuple[JsonValue, ...]] = {name: () for name in fields.members() if name not in allowed}
        fields.close(allowed, unbuilt)
    return fields.members()


def _storable(params: Mapping[str, object]) -> bool:
    try:
        return len(orjson.dumps(params)) <= MAX_PARAMS_BYTES
    except TypeError:
        return False


def _limits(fields: Fields | None) -> AgentLimits:
    if fields is None:
        return AgentLimits()
    fields.close({"timeout_ms", "max_repair_attempts", "max_attempts", "pause_expiry_ms"}, LIMITS_FIELDS)
    timeout_ms = fields.integer("timeout_ms", low=1, high=MAX_TIMEOUT_MS)
    repairs = fields.integer("max_repair_attempts", low=0, high=MAX_REPAIR_ATTEMPTS)
    attempts = fields.integer("max_attempts", low=1, high=MAX_ATTEMPTS)
    return AgentLimits(
        timeout_ms=DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms,
        max_repair_attempts=DEFAULT_REPAIR_ATTEMPTS if repairs is None else repairs,
        max_attempts=attempts or 1,
        pause_expiry_ms=fields.integer("pause_expiry_ms", low=1, high=MAX_PAUSE_EXPIRY_MS),
    )


def _streams_before_decision(fields: Fields | None) -> bool:
    if fields is None:
        return False
    fields.close({"stream_before_decision"}, GUARDIAN_FIELDS)
    return fields.flag("stream_before_decision")


def parse_metadata(fields: Fields, body: JsonBody, settings: ApiSettings) -> str:
    """The metadata as it came; what is wrong with it is noted."""
    return fields.raw_object("metadata", body.slices, max_bytes=settings.metadata_bytes) or "{}"
