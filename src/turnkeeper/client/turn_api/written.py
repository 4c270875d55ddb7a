"""Text while an agent writes it, put together from a stream's events (contract 11).

Pure. Answers for one text per message whatever the stream brings: pieces, a whole after a reconnect, and at last the
message as it was allowed, which is the authority. Only agents with `guardian.stream_before_decision` are heard before
that; of all others the completed message is the first that comes.
"""

from dataclasses import dataclass
from typing import Final

from turnkeeper.client.turn_api.views import Event

_WHOLE: Final = frozenset({"message.snapshot", "message.completed"})


@dataclass(frozen=True, slots=True)
class Written:
    """A message as far as it is known. Only one that is `completed` was allowed, and stays as it is."""

    message_id: str
    text: str
    completed: bool


class WrittenTexts:
    """The agent messages of one stream, put together."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}

    def take(self, event: Event) -> Written | None:
        """The message that the event is a piece of, as it is now; None for any other event.

        A piece that leaves a gap is passed over: a whole text comes later.
        """
        if event.ends_turn:
            self._open.clear()
        piece = event.piece
        if piece is None or event.type == "reasoning.delta":
            return None
        if event.type == "message.completed":
            self._open.pop(piece.message_id, None)
            return Written(piece.message_id, piece.text, completed=True)
        known = self._open.get(piece.message_id, "")
        if event.type in _WHOLE:
            known = piece.text
        elif piece.offset is not None and piece.offset <= len(known):
            known = known[: piece.offset] + piece.text
        self._open[piece.message_id] = known
        return Written(piece.message_id, known, completed=False)
