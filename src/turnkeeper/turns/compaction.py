"""Compaction of an agent's context (ACS preCompact and postCompact, contract 16.3): asked, made, asked again, taken.

Answers for a summary that is taken only after the Guardian has seen it, for its lineage (every value of every step that
went in, which the model has no say in), and for pairs that balance: each preCompact that was let through is followed by
one postCompact, over a crash and a turn's end too. A denial at preCompact is no compaction and nothing worse. Counts no
tokens of a harness: the sizes told are those of the call that read the context and wrote the summary.
"""

from collections.abc import Callable
from typing import Final

import structlog

from turnkeeper.acs import Marks
from turnkeeper.events import catalogue
from turnkeeper.events.envelope import NewEvent
from turnkeeper.sandbox.protocol import (
    CompactionRuled,
    HarnessProtocolError,
    SummaryRuled,
)
from turnkeeper.turns import payloads
from turnkeeper.turns.applied import summary_of
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.governor import EventsFor, no_events
from turnkeeper.turns.lineage import Compactable
from turnkeeper.turns.meter import LedgerMeter
from turnkeeper.turns.model import Draft, Fence, NewStep, Turn
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.windows import steps_since_last_end
from turnkeeper.turns.workbench import Workbench

ABANDONED: Final = "[no summary was made; nothing was replaced]"
"""What stands for the summary where there is none: our word, which quotes nothing."""
NO_HEAD: Final = "0" * 64
"""Where a Guardian shows no chain."""

_log = structlog.get_logger(__name__)


class Compactions:
    """The compactions of one running turn."""

    def __init__(self, bench: Workbench, turn: Turn, fence: Callable[[], Fence], meter: LedgerMeter) -> None:
        self._bench = bench
        self._turn = turn
        self._fence = fence
        self._meter = meter
        self._party = Party(turn.session_id, turn.agent_id)
        self._asked = 0
        self._open: Compactable | None = None

    async def ask(self) -> CompactionRuled:
        """Whether the context may be summarized. Raises `StaleFence`."""
        await self.close()
        self._asked += 1
        if self._asked > self._bench.settings.max_compactions:
            return CompactionRuled(allowed=False)
        found = await self._bench.governor.compactable(self._turn.session_id)
        if found is None or not found.entries:
            return CompactionRuled(allowed=False)
        size = self._meter.last
        payload = payloads.pre_compact(
            found.entries, estimated_tokens=None if size is None else size.input_tokens + size.output_tokens
        )
        step = NewStep(self._bench.ids.uuid(), payloads.PRE_COMPACT, payload, in_window=True, turn_id=self._turn.id)
        ruling = await self._bench.governor.ask(self._party, step, self._fence())
        if ruling.allowed:
            self._open = found
        return CompactionRuled(ruling.allowed)

    async def take(self, written: str) -> SummaryRuled:
        """What the agent goes on with. Raises `StaleFence`, and `HarnessProtocolError` where nothing was allowed."""
        if self._open is None:
            raise HarnessProtocolError("a summary came that nobody had allowed")
        summary = written.strip()
        if not summary or len(summary.encode()) > self._bench.settings.summary_bytes:
            await self.close()
            return SummaryRuled(taken=False)
        found, self._open = self._open, None
        ruling = await reported(self._bench, self._turn, self._fence(), found, summary, news=self._news(summary))
        return SummaryRuled(_is_taken(ruling), _taken(summary, ruling) if _is_taken(ruling) else "")

    async def close(self) -> None:
        """Reports a compaction that was allowed and came to nothing. Raises `StaleFence`."""
        found, self._open = self._open, None
        if found is not None:
            await reported(self._bench, self._turn, self._fence(), found, ABANDONED)

    def _news(self, summary: str) -> Callable[[Ruling], list[NewEvent]]:
        size = self._meter.last

        def news(ruling: Ruling) -> list[NewEvent]:
            if not _is_taken(ruling):
                return []
            turn_id, attempt, message_id = self._turn.id, self._turn.attempt, self._bench.ids.new("msg")
            text = _taken(summary, ruling)
            return [
                catalogue.message_started(turn_id=turn_id, attempt=attempt, message_id=message_id),
                catalogue.message_completed(
                    turn_id=turn_id, attempt=attempt, message_id=message_id, text=text, final=False
                ),
                catalogue.context_compacted(
                    turn_id=turn_id,
                    attempt=attempt,
                    before_tokens=0 if size is None else size.input_tokens,
                    after_tokens=0 if size is None else size.output_tokens,
                ),
            ]

        return news


async def reported(
    bench: Workbench, turn: Turn, fence: Fence, found: Compactable, summary: str, *, news: EventsFor = no_events
) -> Ruling:
    """The postCompact of what a preCompact was allowed for. Raises `StaleFence`."""
    head = (await bench.store.session(turn.session_id)).witnessed_head or NO_HEAD

    def write(marks: Marks) -> str:
        return payloads.post_compact(marks, summary, found.entries, found.union, head)

    step = Draft(bench.ids.uuid(), payloads.POST_COMPACT, write, in_window=True, turn_id=turn.id)
    return await bench.governor.ask(Party(turn.session_id, turn.agent_id), step, fence, events_for=news)


async def close_left_open(bench: Workbench, turn: Turn, fence: Fence) -> None:
    """Balances what a worker that is gone had asked last: a preCompact without its postCompact. Raises `StaleFence`."""
    window = steps_since_last_end(await bench.store.steps(turn.session_id, turn_id=turn.id))
    last = next((step for step in reversed(window) if step.method in payloads.COMPACTION_METHODS), None)
    if last is None or last.method == payloads.POST_COMPACT:
        return
    if last.state == "pending":
        party = Party(turn.session_id, turn.agent_id)
        asked = NewStep(last.request_id, last.method, last.payload_json, in_window=True, turn_id=turn.id)
        ruling = await bench.governor.ask(party, asked, fence, known=last)
        if ruling.decision != "allow":
            return
    elif last.decision != "allow":
        return
    found = await bench.governor.compactable(turn.session_id, of=payloads.entries_of(last.payload_json))
    if found is not None:
        await reported(bench, turn, fence, found, ABANDONED)
        _log.info("compaction_abandoned", turn_id=turn.id)


def _is_taken(ruling: Ruling) -> bool:
    # A postCompact is never denied: where its decision cannot be followed, the summary stays as it was (CORE-MOD-07).
    return ruling.allowed or ruling.kind == "unapplicable"


def _taken(summary: str, ruling: Ruling) -> str:
    return summary if ruling.changed is None else summary_of(ruling.changed)
