"""Rows as the turn side knows them: one function per table, nothing asked of the database here."""

from collections.abc import Mapping
from typing import Any, cast

import orjson
from sqlalchemy import RowMapping

from turnkeeper.events.envelope import Event
from turnkeeper.turns.mcp_server import McpServer
from turnkeeper.turns.model import (
    Agent,
    AgentLimits,
    ApiKey,
    BoxSize,
    Budget,
    CallRecord,
    CanceledBy,
    ClientTool,
    Fence,
    HarnessChoice,
    KeyLimits,
    ModelChoice,
    Network,
    SecretRef,
    Session,
    SkillRef,
    Step,
    StopReason,
    Subagent,
    Submission,
    Turn,
    TurnError,
    TurnStatus,
    Usage,
)
from turnkeeper.turns.money import Money, join_amount, parse_money
from turnkeeper.turns.permissions import Permission
from turnkeeper.turns.secrets import Secret
from turnkeeper.turns.turn_files import parse_turn_files


def to_agent(row: RowMapping) -> Agent:
    """A row of `agents`."""
    return Agent(
        id=row["id"],
        version=row["version"],
        name=row["name"],
        model=ModelChoice(row["model_provider"], row["model_id"], _object(row["model_params_json"])),
        instructions=row["instructions"],
        tools=tuple(cast("list[str]", orjson.loads(row["tools_json"]))),
        limits=AgentLimits(row["timeout_ms"], row["max_repair_attempts"], row["max_attempts"], row["pause_expiry_ms"]),
        metadata_json=row["metadata_json"],
        created_at=row["created_at"],
        permissions=cast("dict[str, Permission]", orjson.loads(row["permissions_json"])),
        client_tools=tuple(ClientTool(**tool) for tool in orjson.loads(row["client_tools_json"])),
        stream_before_decision=row["stream_before_decision"],
        archived_at=row["archived_at"],
        project_id=row["project_id"],
        sandbox=_box_size(row["sandbox_json"]),
        network=_network(_object(row["sandbox_json"]).get("network")),
        pool=cast("str | None", _object(row["sandbox_json"]).get("pool")),
        harness=_harness(_object(row["harness_json"])),
        mcp_servers=tuple(_mcp_server(server) for server in orjson.loads(row["mcp_servers_json"])),
        subagents=tuple(map(_subagent, orjson.loads(row["subagents_json"]))),
        skills=tuple(SkillRef(**skill) for skill in orjson.loads(row["skills_json"])),
        budget_id=row["budget_id"],
    )


def _mcp_server(members: Mapping[str, Any]) -> McpServer:
    tools = members["tools"]
    return McpServer(
        members["name"],
        tuple(members["command"]),
        members["environment"],
        members["url"],
        members["headers"],
        None if tools is None else tuple(tools),
    )


def _subagent(members: Mapping[str, Any]) -> Subagent:
    return Subagent(members["name"], members["description"], members["instructions"], tuple(members["tools"]))


def _harness(members: Mapping[str, Any]) -> HarnessChoice:
    return HarnessChoice(members.get("kind", "builtin"), tuple(members.get("command", ())))


def to_session(row: RowMapping) -> Session:
    """A row of `sessions` with `active_turn_id` and `queue_depth` beside it."""
    return Session(
        id=row["id"],
        agent_id=row["agent_id"],
        agent_version=row["agent_version"],
        status=row["status"],
        title=row["title"],
        metadata_json=row["metadata_json"],
        budget=to_budget(row["budget_json"]),
        acs_state=row["acs_state"],
        witnessed_head=row["witnessed_head"],
        last_sequence=row["last_sequence"],
        active_turn_id=row["active_turn_id"],
        queue_depth=row["queue_depth"],
        created_at=row["created_at"],
        last_active_at=row["last_active_at"],
        closed_at=row["closed_at"],
        active_status=None if row["active_status"] is None else TurnStatus(row["active_status"]),
        deferrals=row["deferrals"],
        project_id=row["project_id"],
        retention_days=row["retention_days"],
        budget_id=row["budget_id"],
        ephemeral=row["ephemeral"],
        oldest_sequence=row["oldest_sequence"],
        secrets=tuple(SecretRef(**ref) for ref in orjson.loads(row["secrets_json"])),
        network=None if row["network_json"] is None else _network(orjson.loads(row["network_json"])),
    )


def to_turn(row: RowMapping, usage: Usage) -> Turn:
    """A row of `turns` with `queue_position` beside it, and its usage."""
    return Turn(
        id=row["id"],
        session_id=row["session_id"],
        agent_id=row["agent_id"],
        agent_version=row["agent_version"],
        seq=row["seq"],
        status=TurnStatus(row["status"]),
        stop_reason=_stop_reason(row["stop_reason"]),
        input_text=row["input_text"],
        input_json=row["input_json"],
        output_schema_json=row["output_schema_json"],
        metadata_json=row["metadata_json"],
        idempotency_key=row["idempotency_key"],
        budget=to_budget(row["budget_json"]),
        max_repair_attempts=row["max_repair_attempts"],
        attempt=row["attempt"],
        tries=row["tries"],
        fence=row["fence"],
        text=row["text"],
        result_json=row["result_json"],
        result_error=row["result_error"],
        error=_error(row["error_json"]),
        usage=usage,
        canceled_by=_canceled_by(row["canceled_by_json"]),
        cancel_mode=row["cancel_mode"],
        cancel_requested_at=row["cancel_requested_at"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        duration_ms=row["duration_ms"],
        first_sequence=row["first_sequence"],
        last_sequence=row["last_sequence"],
        terminal_event_id=row["terminal_event_id"],
        terminal_data=row["terminal_data"],
        queue_position=row["queue_position"],
        cancel_stop_reason=_stop_reason(row["cancel_stop_reason"]),
        max_attempts=row["max_attempts"],
        on_busy=row["on_busy"],
        start_by=row["start_by"],
        api_key_id=row["api_key_id"] or None,
        active_ms=row["active_ms"],
        active_since=row["active_since"],
        retry_of=row["retry_of"],
        input_files=parse_turn_files(row["input_files_json"]),
    )


def to_fence(row: RowMapping) -> Fence:
    """The fence of an owned row of `turns`."""
    return Fence(row["id"], row["session_id"], row["owner"], row["fence"])


def to_budget(limits_json: str | None) -> Budget | None:
    """The stored limits of a turn or a session, `None` where there is no limit at all."""
    return None if limits_json is None else parse_limits(limits_json)


def parse_limits(limits_json: str) -> Budget:
    """The stored limits of a budget."""
    limits = cast("dict[str, Any]", orjson.loads(limits_json))
    cost = limits.pop("max_cost", None)
    return Budget(**limits, max_cost=None if cost is None else parse_money(cost["amount"], cost["currency"]))


def to_event(row: RowMapping) -> Event:
    """A row of `events`."""
    return Event(
        id=row["id"],
        type=row["type"],
        created_at=row["created_at"],
        source=row["source"],
        project_id=row["project_id"],
        session_id=row["session_id"],
        turn_id=row["turn_id"],
        sequence=row["sequence"],
        attempt=row["attempt"],
        data=row["data"],
        thread_id=row["thread_id"],
    )


def to_step(row: RowMapping) -> Step:
    """A row of `steps`."""
    return Step(
        session_id=row["session_id"],
        ordinal=row["ordinal"],
        request_id=row["request_id"],
        method=row["method"],
        turn_id=row["turn_id"],
        in_window=row["in_window"],
        payload_json=row["payload_json"],
        outcome=row["outcome"],
        state=row["state"],
        decision=row["decision"],
        chain_hash=row["chain_hash"],
        reasoning=row["reasoning"],
        reason_codes=tuple(cast("list[str]", orjson.loads(row["reason_codes_json"]))),
        error_code=row["error_code"],
        attempts=row["attempts"],
        thread_id=row["thread_id"],
    )


def to_submission(row: RowMapping) -> Submission:
    """A row of `submissions`."""
    return Submission(
        submission=row["submission"],
        valid=row["valid"],
        value_json=row["value_json"],
        errors=tuple(cast("list[dict[str, str]]", orjson.loads(row["errors_json"]))),
        published=row["published"],
    )


def to_call(row: RowMapping) -> CallRecord:
    """A row of `model_calls` that has been settled or assumed."""
    return CallRecord(
        call=row["call"],
        provider=row["provider"],
        model=row["model"],
        accepted=row["accepted"],
        input_tokens=row["input_tokens"],
        cached_input_tokens=row["cached_input_tokens"],
        cache_write_tokens=row["cache_write_tokens"],
        output_tokens=row["output_tokens"],
        reasoning_tokens=row["reasoning_tokens"],
        estimated=row["estimated"],
        latency_ms=row["latency_ms"] or 0,
        first_token_ms=row["first_token_ms"],
        finish_reason=row["finish_reason"],
        retries=row["retries"],
        cost=_cost(row),
    )


def to_key(row: RowMapping) -> ApiKey:
    """A row of `api_keys`."""
    return ApiKey(
        id=row["id"],
        name=row["name"],
        secret_sha256=row["secret_sha256"],
        created_at=row["created_at"],
        revoked_at=row["revoked_at"],
        project_id=row["project_id"],
        scopes=_texts(row["scopes_json"]),
        agent_ids=_texts(row["agent_ids_json"]),
        limits=KeyLimits(row["requests_per_minute"], row["concurrent_turns"], row["queued_turns"], row["streams"]),
        expires_at=row["expires_at"],
        last_used_at=row["last_used_at"],
    )


def to_json(value: object) -> str:
    """A JSON text of ours."""
    return orjson.dumps(value).decode()


def _cost(row: RowMapping) -> Money | None:
    if row["cost_currency"] is None:
        return None
    return Money(join_amount(row["cost_units"], row["cost_picos"]), row["cost_currency"])


def _stop_reason(value: str | None) -> StopReason | None:
    return None if value is None else StopReason(value)


def _error(text: str | None) -> TurnError | None:
    return None if text is None else TurnError(**orjson.loads(text))


def _canceled_by(text: str | None) -> CanceledBy | None:
    return None if text is None else CanceledBy(**orjson.loads(text))


def _texts(text: str) -> tuple[str, ...]:
    return tuple(cast("list[str]", orjson.loads(text)))


def _object(text: str) -> Mapping[str, object]:
    return cast("dict[str, object]", orjson.loads(text))


def _box_size(text: str) -> BoxSize:
    return BoxSize(**{name: value for name, value in orjson.loads(text).items() if name not in {"network", "pool"}})


def _network(value: object) -> Network:
    return Network(tuple(cast("dict[str, list[str]]", value or {}).get("allow", ())))


def to_secret(row: RowMapping) -> Secret:
    """A row of `secrets`, without the value."""
    hosts = tuple(cast("list[str]", orjson.loads(row["hosts_json"])))
    return Secret(row["id"], row["project_id"], row["name"], hosts, row["created_at"])
