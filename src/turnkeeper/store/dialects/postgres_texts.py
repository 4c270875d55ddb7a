"""Texts while they are written, from the worker that hears them to every process that shows them, over NOTIFY.

Answers for pieces small enough for a notice (8,000 bytes) and for one notice in place of many while the server is slow.
Nothing here lasts: a notice that is lost leaves a gap, whoever sees the gap asks, and the worker that has the text
tells it again from its beginning.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, cast

import orjson

from turnkeeper.clock import Clock
from turnkeeper.turns.open_texts import OpenText, OpenTexts, TextKind

TEXT_CHANNEL: Final = "turnkeeper_text"
WANTED_CHANNEL: Final = "turnkeeper_text_wanted"
PIECE_CHARACTERS: Final = 1_200
"""Each becomes six bytes in the worst case, and what is said about the piece takes some too."""
ASK_AGAIN_MS: Final = 1_000
MAX_ASKED: Final = 1_000

Note = tuple[str, str]
"""A channel and its payload."""


def _nobody() -> None:
    """Nobody sends yet."""


class PostgresTexts:
    """One process's part in it. Implements `TextRelay`. With `shows` it is told what other processes write.

    Everything happens in one event loop; `wake` is called when there is something to send.
    """

    def __init__(self, texts: OpenTexts, clock: Clock, *, shows: bool) -> None:
        self._texts = texts
        self._clock = clock
        self._own: set[str] = set()
        self._grown: dict[tuple[str, TextKind], tuple[OpenText, int]] = {}
        self._notes: list[Note] = []
        self._asked: OrderedDict[str, int] = OrderedDict()
        self.channels = (TEXT_CHANNEL, WANTED_CHANNEL) if shows else (WANTED_CHANNEL,)
        self.wake: Callable[[], None] = _nobody

    def attach(self) -> None:
        """Carries what this process writes from now on."""
        self._texts.relay, self._texts.missing = self, self._ask

    def detach(self) -> None:
        """Carries nothing more."""
        self._texts.relay = self._texts.missing = None

    def piece(self, text: OpenText, offset: int) -> None:
        """The text has grown behind `offset`."""
        self._own.add(text.message_id)
        untold = self._grown.get(text.key)
        self._grown[text.key] = (text, offset if untold is None else untold[1])
        self.wake()

    def closed(self, message_id: str) -> None:
        """The message is not written any more."""
        self._own.discard(message_id)
        self._notes += self._pieces()
        self._notes.append((TEXT_CHANNEL, orjson.dumps({"closed": message_id}).decode()))
        self.wake()

    def take(self) -> list[Note]:
        """What is to be sent now."""
        notes, self._notes = [*self._notes, *self._pieces()], []
        return notes

    def hear(self, channel: str, payload: str) -> bool:
        """Takes a notice of ours, from whichever process; whether it was one."""
        if channel == WANTED_CHANNEL:
            self._tell_again(payload)
        elif channel == TEXT_CHANNEL:
            self._take_over(cast("dict[str, Any]", orjson.loads(payload)))
        else:
            return False
        return True

    def _pieces(self) -> list[Note]:
        grown, self._grown = self._grown, {}
        return [note for text, offset in grown.values() for note in _notes_of(text, offset)]

    def _tell_again(self, message_id: str) -> None:
        if message_id in self._own:
            for text in self._texts.find(message_id):
                self._grown[text.key] = (text, 0)
            self.wake()

    def _take_over(self, said: dict[str, Any]) -> None:
        if "closed" in said:
            self._texts.forget(said["closed"])
            return
        offset = cast("int", said.pop("offset"))
        self._texts.hear(OpenText(**said), offset)

    def _ask(self, message_id: str) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._asked.get(message_id, now_ms - ASK_AGAIN_MS) < ASK_AGAIN_MS:
            return
        self._asked[message_id] = now_ms
        if len(self._asked) > MAX_ASKED:
            self._asked.popitem(last=False)
        self._notes.append((WANTED_CHANNEL, message_id))
        self.wake()


def _notes_of(text: OpenText, offset: int) -> list[Note]:
    return [
        (TEXT_CHANNEL, _payload(text, start, text.text[start : start + PIECE_CHARACTERS]))
        for start in range(offset, text.offset, PIECE_CHARACTERS)
    ]


def _payload(text: OpenText, offset: int, piece: str) -> str:
    said = {
        "session_id": text.session_id,
        "turn_id": text.turn_id,
        "message_id": text.message_id,
        "attempt": text.attempt,
        "after": text.after,
        "kind": text.kind,
        "text": piece,
        "offset": offset,
    }
    return orjson.dumps(said).decode()
