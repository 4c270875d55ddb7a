"""What the agent of each session has been told, as provenance ids (ACS 7, PROV-01 to PROV-04).

Answers for labels that survive a restart: every id stands in the payload of a stored step, and what one owner of a turn
knows is read back from those by the next. Must never derive a value from an id of the model's that the Guardian was not
shown. A value counts as made from all that its session's agent was told, earlier turns included: their messages and
outputs come back as history, and their files stay in the workspace.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import Final, cast

import orjson

from turnkeeper.acs import Disposition, Lineage, LineageFull, Marks, TurnIds
from turnkeeper.acs.handshake import Posture
from turnkeeper.acs.lineage import carries_data
from turnkeeper.ids import IdSource
from turnkeeper.turns.model import Fence, Step, StepAnswer
from turnkeeper.turns.payloads import POST_COMPACT, TURN_END
from turnkeeper.turns.ports import TurnReads

MAX_CARRIED_SOURCES: Final = 1_000
"""Values an agent was told since it last spoke; the oldest fall out, as they do from the history it is given."""
MAX_KNOWN_SESSIONS: Final = 1_000
PAGE_STEPS: Final = 20
MAX_PAGES: Final = 500
"""How far back is read. A turn of more steps has no summary."""

_LET_THROUGH: Final = frozenset({Disposition.ALLOW.value, Disposition.MODIFY.value})


@dataclass(frozen=True, slots=True)
class Compactable:
    """What an agent's context is made of, oldest first: steps by their ids, and every provenance id they brought."""

    entries: tuple[str, ...]
    union: tuple[str, ...]


class SessionLineages:
    """The lineages of the sessions that one process asks for."""

    def __init__(self, store: TurnReads, ids: IdSource, posture: Posture) -> None:
        self._store = store
        self._ids = ids
        self._unheard_is_told = posture == "proceed"
        self._known: OrderedDict[tuple[str, str | None], tuple[Fence | None, Lineage]] = OrderedDict()

    async def marks(self, session_id: str, fence: Fence | None, thread_id: str | None = None) -> Marks:
        """Labels for a step that is about to be sent, every earlier one being settled, by the owner with this fence."""
        known = self._known.get((session_id, thread_id))
        if known is None or fence is None or known[0] != fence:
            known = (fence, self._lineage(await self._sources(session_id, thread_id)))
            self._remember((session_id, thread_id), known)
        return known[1].marks()

    def keep(self, step: Step, answer: StepAnswer, fence: Fence | None) -> None:
        """A step was settled for the owner with this fence."""
        known = self._known.get((step.session_id, step.thread_id))
        if known is None or not carries_data(step.method):
            return
        if known[0] != fence:
            self.forget(step.session_id, step.thread_id)
            return
        settled = replace(
            step,
            state=answer.state,
            decision=answer.decision,
            chain_hash=answer.chain_hash,
            error_code=answer.error_code,
        )
        known[1].keep(self._shown(settled), seen=self._was_told(settled))

    def forget(self, session_id: str, thread_id: str | None = None) -> None:
        """What is known of a chain may have changed."""
        self._known.pop((session_id, thread_id), None)

    def blank(self) -> Marks:
        """Labels for values whose sources the caller names."""
        return self._lineage(()).marks()

    async def union(self, session_id: str, turn_id: str, thread_id: str | None = None) -> tuple[str, ...] | None:
        """Every id that the steps of a turn showed the Guardian, oldest first; None where there are too many."""
        ids, newest_first = TurnIds(), list[Marks]()
        try:
            async for step in self._backwards(session_id, turn_id, thread_id):
                if step.has_entry and carries_data(step.method):
                    newest_first.append(self._labels(step))
            for marks in reversed(newest_first):
                ids.add(marks)
        except LineageFull:
            return None
        return ids.union

    async def compactable(self, session_id: str, *, of: tuple[str, ...] | None = None) -> Compactable | None:
        """What was said since the last summary, that one included, or in the steps `of`; None where it is too much."""
        ids, newest_first = TurnIds(), list[tuple[str, Marks]]()
        try:
            async for step in self._backwards(session_id, None, None):
                if step.has_entry and step.method != TURN_END and carries_data(step.method):
                    if of is None or step.request_id in of:
                        newest_first.append((step.request_id, self._labels(step)))
                    if step.method == POST_COMPACT and of is None:
                        break
                if of is not None and len(newest_first) == len(of):
                    break
            for _, marks in reversed(newest_first):
                ids.add(marks)
        except LineageFull:
            return None
        return Compactable(tuple(request_id for request_id, _ in reversed(newest_first)), ids.union)

    async def _sources(self, session_id: str, thread_id: str | None) -> tuple[str, ...]:
        told: list[str] = []
        try:
            async for step in self._backwards(session_id, None, thread_id):
                if step.method == TURN_END or not carries_data(step.method):
                    continue
                marks = self._shown(step)
                if self._was_told(step):
                    told += reversed(marks.came_in)
                if marks.made:
                    return (*marks.made, *reversed(told[:MAX_CARRIED_SOURCES]))
        except LineageFull:
            pass
        return tuple(reversed(told[:MAX_CARRIED_SOURCES]))

    async def _backwards(
        self, session_id: str, turn_id: str | None, thread_id: str | None
    ) -> AsyncGenerator[Step, None]:
        before: int | None = None
        for _ in range(MAX_PAGES):
            page = await self._store.steps(
                session_id, turn_id=turn_id, before=before, limit=PAGE_STEPS, thread_id=thread_id
            )
            for step in reversed(page):
                yield step
            if len(page) < PAGE_STEPS:
                return
            before = page[0].ordinal
        raise LineageFull(f"more than {MAX_PAGES * PAGE_STEPS} steps")

    def _shown(self, step: Step) -> Marks:
        marks = self._labels(step)
        if not step.has_entry:
            # To the Guardian such an id stands for nothing; what the value derives from still leads to the rest.
            marks.made.clear()
        return marks

    def _was_told(self, step: Step) -> bool:
        if step.decision is None:
            return self._unheard_is_told
        return step.decision in _LET_THROUGH

    def _labels(self, step: Step) -> Marks:
        payload = cast("Mapping[str, object]", orjson.loads(step.payload_json or "{}"))
        return self._lineage(()).marks_of(step.method, payload)

    def _lineage(self, sources: tuple[str, ...]) -> Lineage:
        return Lineage(self._ids, produces=True, sources=sources)

    def _remember(self, chain: tuple[str, str | None], known: tuple[Fence | None, Lineage]) -> None:
        self._known[chain] = known
        self._known.move_to_end(chain)
        if len(self._known) > MAX_KNOWN_SESSIONS:
            self._known.popitem(last=False)
