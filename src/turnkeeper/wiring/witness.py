"""What the turn side saw of each session's chain, for `verify`: the last head it was shown, the counts it stated.

Kept in another file than the chain (house rule 11), so that a cut tail or a lost session shows. Reads only. A subagent
has a session of the Guardian's of its own, and so a witness of its own.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from turnkeeper.ids import uuid_of
from turnkeeper.turns.model import Step
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
    """A witness for each session that the Guardian was told of, oldest first, with those of its subagents."""
    after: str | None = None
    while True:
        page = await store.sessions(PageRequest(limit=PAGE_SESSIONS, after=after, order="asc"))
        for session in page.items:
            if session.acs_state != "new" or session.witnessed_head is not None:
                yield _witness(session.id, session.witnessed_head, await store.steps(session.id))
            for witness in _of_threads(await store.thread_steps(session.id)):
                yield witness
        if not page.has_more:
            return
        after = page.items[-1].id


def _of_threads(steps: Sequence[Step]) -> Iterable[Witness]:
    for thread_id in dict.fromkeys(step.thread_id for step in steps if step.thread_id is not None):
        own = [step for step in steps if step.thread_id == thread_id]
        heads = [step.chain_hash for step in own if step.chain_hash is not None]
        if heads:
            yield _witness(thread_id, heads[-1], own)


def _witness(chain_id: str, head: str | None, steps: Sequence[Step]) -> Witness:
    counts = {step.turn_id: _counts(step) for step in steps if step.turn_id is not None and _is_settled_end(step)}
    return Witness(uuid_of(chain_id), head, counts)


def _is_settled_end(step: Step) -> bool:
    return step.method == TURN_END and step.state == "answered" and step.payload_json is not None


def _counts(step: Step) -> Counts:
    payload = orjson.loads(step.payload_json or "{}")
    return payload.get("step_count"), payload.get("tool_call_count")
