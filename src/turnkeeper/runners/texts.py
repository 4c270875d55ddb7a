"""The messages that a runner writes bit by bit: each from its beginning, without a gap, one after the other. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from turnkeeper.api.problems import RequestRefused
from turnkeeper.sandbox.protocol import TextDelta

STREAMED: Final[Mapping[str, Literal["message", "reasoning"]]] = {
    "message.delta": "message",
    "reasoning.delta": "reasoning",
}
"""The events that a runner may write, and what their text is part of."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The data of one such event."""

    message_id: str
    kind: Literal["message", "reasoning"]
    offset: int
    text: str


class StreamedTexts:
    """Those of one lease."""

    def __init__(self) -> None:
        self._count = 0
        self._message_id: str | None = None
        self._characters: dict[str, int] = {}

    def taken(self, piece: Piece) -> TextDelta:
        """The frame of a piece. Raises `RequestRefused` where it leaves a gap or goes back."""
        is_new = piece.message_id != self._message_id
        expected = 0 if is_new else self._characters.get(piece.kind, 0)
        if piece.offset != expected:
            raise RequestRefused("invalid_field", f"/events/data/offset is {expected} where the text goes on")
        if is_new:
            self._count, self._message_id, self._characters = self._count + 1, piece.message_id, {}
        self._characters[piece.kind] = expected + len(piece.text)
        return TextDelta(self._count, piece.text, piece.kind)
