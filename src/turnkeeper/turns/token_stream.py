"""What a running agent writes, while it writes it, for an agent that may be heard before the Guardian (contract 11).

Answers for one open message at a time: its `message.started` is committed before the first piece of it is shown, and it
is closed when the agent does anything else, whatever becomes of the turn. Only for agents with
`guardian.stream_before_decision`; of all others nothing is shown before it was allowed (house rule 6). Must never show
more than a final text may have.
"""

from collections.abc import Callable
from typing import Final

from turnkeeper.events import catalogue
from turnkeeper.sandbox.protocol import HarnessProtocolError, TextDelta
from turnkeeper.turns.model import Fence, Turn
from turnkeeper.turns.open_texts import OpenText, OpenTexts, TextKind
from turnkeeper.turns.workbench import Workbench

MAX_DELTAS: Final = 200_000
"""How many pieces one run of a turn may come in; a harness tells at most 25 of them in a second."""


class TokenStream:
    """The streamed texts of one run of a turn."""

    def __init__(self, bench: Workbench, turn: Turn, fence: Callable[[], Fence], *, live: bool) -> None:
        self._texts: OpenTexts | None = bench.texts if live else None
        self._bench = bench
        self._turn = turn
        self._fence = fence
        self._number = 0
        self._deltas = 0
        self._open: dict[TextKind, OpenText] = {}
        self._message_id: str | None = None

    @property
    def message_id(self) -> str | None:
        """The message that is open, if one is."""
        return self._message_id

    async def take(self, delta: TextDelta) -> None:
        """Shows a piece. Raises `StaleFence`, and `HarnessProtocolError` for a flood or an answer out of turn."""
        self._deltas += 1
        if self._deltas > MAX_DELTAS or delta.message < self._number:
            raise HarnessProtocolError("the harness floods, or goes back to an earlier message")
        if self._texts is None or not delta.text:
            return
        if delta.message > self._number:
            self.close()
            self._number = delta.message
        if self._message_id is None:
            await self._begin()
        self._show(self._texts, delta)

    def close(self) -> None:
        """Nothing more of the open message will come. The turn's own events say what became of it."""
        message_id, self._message_id = self._message_id, None
        self._open.clear()
        if message_id is not None and self._texts is not None:
            self._texts.close(message_id)

    async def _begin(self) -> None:
        turn, message_id = self._turn, self._bench.ids.new("msg")
        started = catalogue.message_started(turn_id=turn.id, attempt=turn.attempt, message_id=message_id)
        (stored,) = await self._bench.store.record(self._fence(), [started])
        self._message_id = message_id
        kinds: tuple[TextKind, ...] = ("message", "reasoning")
        for kind in kinds:
            self._open[kind] = OpenText(turn.session_id, turn.id, message_id, turn.attempt, stored.sequence, kind)

    def _show(self, texts: OpenTexts, delta: TextDelta) -> None:
        text = self._open[delta.kind]
        piece = delta.text[: max(self._bench.settings.text_bytes - text.offset, 0)]
        if piece:
            texts.write(text, piece)
            self._open[delta.kind] = text.with_more(piece)
