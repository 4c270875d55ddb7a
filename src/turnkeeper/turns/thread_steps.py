"""The steps around a subagent (contract 16.3; CORE-SUB-01 to 06): its start in its parent's chain, its own, its stop.

Answers for every start that may have been let through having its stop, for a window and a session of the Guardian that
are closed where they were opened, and for a final head that is stated only where it is known. Pure, but for reading
the steps that were sent.
"""

from collections.abc import Sequence
from typing import Final, cast

import orjson

from turnkeeper.events.subagents import SubagentOutcome
from turnkeeper.ids import IdSource, id_from_uuid, uuid_of
from turnkeeper.turns import payloads
from turnkeeper.turns.model import Agent, NewStep, SessionReason, Step, Subagent, Turn, TurnOutcome
from turnkeeper.turns.payloads import SESSION_END, SESSION_START, SUBAGENT_START, SUBAGENT_STOP, TURN_END
from turnkeeper.turns.ports import TurnReads
from turnkeeper.turns.windows import window_is_open

_STOPS: Final[dict[SubagentOutcome, str]] = {
    "completed": "completed",
    "budget_reached": "completed",
    "failed": "failed",
    "canceled": "cancelled",
}
_TURN_ENDS: Final[dict[SubagentOutcome, TurnOutcome]] = {
    "completed": "completed",
    "budget_reached": "completed",
    "failed": "error",
    "canceled": "interrupted",
}
_SESSION_ENDS: Final[dict[SubagentOutcome, SessionReason]] = {
    "completed": "completed",
    "budget_reached": "completed",
    "failed": "error",
    "canceled": "cancelled",
}


def start_payload(turn: Turn, agent: Agent, subagent: Subagent, thread_id: str, parent_step_id: str) -> str:
    """A subagent is about to start. Its intent is its parent's: nobody parses the task it is handed."""
    payload = {
        "subagent_session_id": uuid_of(thread_id),
        "parent_session_id": uuid_of(turn.session_id),
        "parent_step_id": parent_step_id,
        "intent_derivation": "inherit_full",
        "subagent_descriptor": {"agent_id": agent.id, "agent_name": subagent.name, "model_id": agent.model.id},
    }
    return orjson.dumps(payload).decode()


def open_threads(steps: Sequence[Step]) -> list[str]:
    """The subagents whose start was let through, or may have been, and whose stop is not written, innermost first.

    `steps` are those of the turn's own chain.
    """
    found: dict[str, None] = {}
    for step in steps:
        if step.method == SUBAGENT_STOP:
            found.pop(_subject(step), None)
        elif step.method == SUBAGENT_START and (step.state == "pending" or step.decision == "allow"):
            found[_subject(step)] = None
    return list(reversed(found))


def closing_steps(
    turn: Turn, thread_id: str, own: Sequence[Step], outcome: SubagentOutcome, ids: IdSource
) -> list[NewStep]:
    """What is still to be told of a subagent that is over; `own` are the steps of its chain."""
    due: list[NewStep] = []
    if window_is_open(own):
        due.append(_new(ids, turn, TURN_END, None, thread_id, outcome=_TURN_ENDS[outcome]))
    if _is_known(own):
        due.append(_new(ids, turn, SESSION_END, payloads.session_end(_SESSION_ENDS[outcome]), thread_id))
    stop = {"subagent_session_id": uuid_of(thread_id), "outcome": _STOPS[outcome]}
    due.append(_new(ids, turn, SUBAGENT_STOP, orjson.dumps(stop).decode(), None, in_window=True))
    return due


async def with_final_head(store: TurnReads, stop: Step) -> str:
    """A stop's payload with the head of the subagent's chain and the number of its steps, as far as they are known."""
    payload = cast("dict[str, object]", orjson.loads(stop.payload_json or "{}"))
    steps = await store.steps(stop.session_id, turn_id=stop.turn_id, thread_id=_subject(stop))
    entries = [step for step in steps if step.has_entry]
    if entries and entries[-1].chain_hash is not None and all(step.state != "pending" for step in steps):
        payload |= {"final_chain_hash": entries[-1].chain_hash, "subagent_step_count": len(entries)}
    return orjson.dumps(payload).decode()


def _subject(step: Step) -> str:
    return id_from_uuid("thr", orjson.loads(step.payload_json or "{}")["subagent_session_id"])


def _is_known(own: Sequence[Step]) -> bool:
    if any(step.method == SESSION_END for step in own):
        return False
    return any(step.method == SESSION_START and step.state in {"pending", "answered"} for step in own)


def _new(
    ids: IdSource,
    turn: Turn,
    method: str,
    payload_json: str | None,
    thread_id: str | None,
    *,
    outcome: TurnOutcome | None = None,
    in_window: bool = False,
) -> NewStep:
    return NewStep(ids.uuid(), method, payload_json, in_window, turn.id, outcome=outcome, thread_id=thread_id)
