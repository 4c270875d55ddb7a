"""What the turn side saw of each session's chain, for `verify`: the last head it was shown, the counts it stated.

Kept in another file than the chain (house rule 11), so that a cut tail or a lost session shows. Reads only.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

import orjson

from turnkeeper.ids import uuid_of
from turnkeeper.turns.model import Session, Step
from turnkeeper.turns.payloads import TURN_END
from turnkeeper.turns.ports import PageRequest, TurnReads

PAGE_SESSIONS: Final = 100

Counts = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Witness:
    """One session as the turn side knows it. `counts` are `step_count` and `tool_call_count` by turn."""

    acs_session_id: str
    head: str | None
    counts: dict[str, Counts]


async def witnesses(store: TurnReads) -> AsyncGenerator[Witness, None]:
    """A witness for each session that the Guardian was told of, oldest first."""
    after: str | None = None
    while True:
        page = await store.sessions(PageRequest(limit=PAGE_SESSIONS, after=after, order="asc"))
        for session in page.items:
            if session.acs_state != "new" or session.witnessed_head is not None:
                yield await _witness(store, session)
        if not page.has_more:
            return
        after = page.items[-1].id


async def _witness(store: TurnReads, session: Session) -> Witness:
    steps = await store.steps(session.id)
    counts = {step.turn_id: _counts(step) for step in steps if step.turn_id is not None and _is_settled_end(step)}
    return Witness(uuid_of(session.id), session.witnessed_head, counts)


def _is_settled_end(step: Step) -> bool:
    return step.method == TURN_END and step.state == "answered" and step.payload_json is not None


def _counts(step: Step) -> Counts:
    payload = orjson.loads(step.payload_json or "{}")
    return payload.get("step_count"), payload.get("tool_call_count")
