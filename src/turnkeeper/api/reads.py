"""How agents, sessions, turns and submissions look from outside (contract 2 and 3).

Answers for one rendering of each thing, used by the routes and by whatever else shows them. What an app or an agent
sent comes back token for token; after the end a turn shows the terminal event's own text. Must never publish a
submitted value that was not allowed (amendment 7).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from turnkeeper.acs.strictjson import JsonLimits, member_slices
from turnkeeper.api.agent_harness import harness_document
from turnkeeper.api.agent_mcp import mcp_server_document
from turnkeeper.api.agent_sandbox import sandbox_document
from turnkeeper.api.agent_subagents import subagent_document
from turnkeeper.api.approval_views import client_tool_document, pause_document
from turnkeeper.api.networks import network_document
from turnkeeper.api.skill_intake import skill_ref_document
from turnkeeper.clock import render_time
from turnkeeper.turns.activity import doing_of
from turnkeeper.turns.budget_accounts import limits_document
from turnkeeper.turns.model import Agent, BlockedBy, Budget, Session, Submission, Turn, TurnStatus, Usage
from turnkeeper.turns.pausing import Pause
from turnkeeper.turns.ports import TurnReads
from turnkeeper.turns.retention import expires_at
from turnkeeper.turns.usage import render_usage

# Our own stored text: longer and deeper than anything that was let in, as the event wraps it.
_STORED: Final = JsonLimits(max_bytes=64 * 1_048_576, max_depth=128)
_SEED_FIELDS: Final = (
    "status",
    "stop_reason",
    "output",
    "result",
    "result_error",
    "usage",
    "metadata",
    "idempotency_key",
    "duration_ms",
)


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What a turn object says that does not stand in the turn's row."""

    blocked_by: BlockedBy | None = None
    repair_attempts_left: int | None = None
    pause: Pause | None = None


async def read_turn(store: TurnReads, turn: Turn) -> bytes:
    """The turn object, with what waits before it and how many repairs are left."""
    blocker = None
    if turn.status is TurnStatus.QUEUED:
        blocker = await store.blocker(turn.session_id)
        if blocker is not None and blocker.turn_id == turn.id:
            blocker = None
    pause = await store.open_pause(turn.id) if turn.status is TurnStatus.PAUSED else None
    return render_turn(turn, TurnContext(blocker, await _repairs_left(store, turn), pause))


async def _repairs_left(store: TurnReads, turn: Turn) -> int | None:
    if turn.output_schema_json is None:
        return None
    if turn.attempt == 0:
        return turn.max_repair_attempts
    refused = sum(not submission.valid for submission in await store.submissions(turn.id))
    return max(0, turn.max_repair_attempts - refused)


def render_turn(turn: Turn, context: TurnContext) -> bytes:
    """The turn object, its keys in the contract's order (contract 3)."""
    return orjson.dumps(_running_turn(turn, context) | _ended_fields(turn))


def _running_turn(turn: Turn, context: TurnContext) -> dict[str, object]:
    return {
        "id": turn.id,
        "object": "turn",
        "session_id": turn.session_id,
        "agent_id": turn.agent_id,
        "agent_version": turn.agent_version,
        "status": turn.status.value,
        "stop_reason": None,
        "input": orjson.Fragment(turn.input_json),
        "output_schema": raw_or_none(turn.output_schema_json),
        "output": None,
        "result": None,
        "result_error": None,
        "usage": orjson.Fragment(render_usage(turn.usage)),
        "metadata": orjson.Fragment(turn.metadata_json),
        "idempotency_key": turn.idempotency_key,
        "budget": budget_document(turn.budget),
        "on_busy": turn.on_busy,
        "priority": "interactive",
        "queue_position": turn.queue_position,
        "blocked_by": _blocked_document(context.blocked_by),
        "attempt": turn.attempt,
        "max_attempts": turn.max_attempts,
        "repair_attempts_left": context.repair_attempts_left,
        "pause": pause_document(context.pause),
        "error": None,
        "parent_turn_id": None,
        "retry_of": turn.retry_of,
        "cancel_requested_at": time_or_none(turn.cancel_requested_at),
        "created_at": render_time(turn.created_at),
        "started_at": time_or_none(turn.started_at),
        "ended_at": time_or_none(turn.ended_at),
        "start_by": time_or_none(turn.start_by),
        "duration_ms": None,
        "first_sequence": turn.first_sequence,
        "last_sequence": turn.last_sequence,
    }


def _ended_fields(turn: Turn) -> dict[str, object]:
    if turn.terminal_data is None:
        return {}
    slices = member_slices(turn.terminal_data, _STORED)
    names = (*_SEED_FIELDS, "error") if "error" in slices else _SEED_FIELDS
    return {name: orjson.Fragment(slices[name]) for name in names}


def render_agent(agent: Agent) -> bytes:
    """The agent object; what is not built is `null`."""
    return orjson.dumps(
        {
            "id": agent.id,
            "object": "agent",
            "version": agent.version,
            "name": agent.name,
            "model": {"provider": agent.model.provider, "id": agent.model.id, "params": dict(agent.model.params)},
            "instructions": agent.instructions,
            "tools": [*agent.tools, *map(client_tool_document, agent.client_tools)],
            "mcp_servers": [mcp_server_document(server) for server in agent.mcp_servers],
            "skills": [skill_ref_document(skill) for skill in agent.skills],
            "subagents": [subagent_document(one) for one in agent.subagents],
            "permissions": dict(agent.permissions),
            "sandbox": sandbox_document(agent.sandbox, agent.network, agent.pool),
            "harness": harness_document(agent.harness),
            "limits": {
                "timeout_ms": agent.limits.timeout_ms,
                "max_repair_attempts": agent.limits.max_repair_attempts,
                "max_attempts": agent.limits.max_attempts,
                "pause_expiry_ms": agent.limits.pause_expiry_ms,
            },
            "guardian": {"stream_before_decision": agent.stream_before_decision},
            "budget_id": agent.budget_id,
            "metadata": orjson.Fragment(agent.metadata_json),
            "created_at": render_time(agent.created_at),
            "archived_at": time_or_none(agent.archived_at),
        }
    )


def render_session(session: Session, usage: Usage | None = None) -> bytes:
    """The session object (contract 2.2), with the inline budget beside it."""
    return orjson.dumps(
        {
            "id": session.id,
            "object": "session",
            "agent_id": session.agent_id,
            "agent_version": session.agent_version,
            "status": session_status(session),
            "active_turn_id": session.active_turn_id,
            "queue_depth": session.queue_depth,
            "last_sequence": session.last_sequence,
            "oldest_sequence": session.oldest_sequence,
            "workspace": {"mode": "ephemeral" if session.ephemeral else "persistent"},
            "secrets": [{"name": ref.name, "ref": ref.ref} for ref in session.secrets],
            "network": None if session.network is None else network_document(session.network),
            "budget_id": session.budget_id,
            "budget": budget_document(session.budget),
            "usage": None if usage is None else orjson.Fragment(render_usage(usage)),
            "title": session.title,
            "metadata": orjson.Fragment(session.metadata_json),
            "created_at": render_time(session.created_at),
            "last_active_at": render_time(session.last_active_at),
            "closed_at": time_or_none(session.closed_at),
            "retention_days": session.retention_days,
            "expires_at": time_or_none(expires_at(session)),
        }
    )


def session_status(session: Session) -> str:
    """The status an app sees: an open session is `paused` or `busy` while a turn is, or waits, else `idle`."""
    if session.status != "open":
        return session.status
    return doing_of(session).activity


def render_submission(submission: Submission) -> bytes:
    """One submitted value; value and errors only once a response that carried it was allowed."""
    shown = submission.published
    return orjson.dumps(
        {
            "submission": submission.submission,
            "valid": submission.valid,
            "value": orjson.Fragment(submission.value_json) if shown else None,
            "errors": [dict(error) for error in submission.errors] if shown else [],
            "withheld": not shown,
        }
    )


def budget_document(budget: Budget | None) -> dict[str, object] | None:
    """The limits that are set; `None` without a budget."""
    return None if budget is None else limits_document(budget)


def raw_or_none(text: str | None) -> orjson.Fragment | None:
    """JSON text as a part of a document, `None` for none."""
    return None if text is None else orjson.Fragment(text)


def time_or_none(at: datetime | None) -> str | None:
    """The time as text, `None` for none."""
    return None if at is None else render_time(at)


def _blocked_document(blocked: BlockedBy | None) -> dict[str, object] | None:
    if blocked is None:
        return None
    return {"turn_id": blocked.turn_id, "reason": blocked.reason, "approval_ids": list(blocked.approval_ids)}
