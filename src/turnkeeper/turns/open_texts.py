"""Texts while they are written (contract 11): the newest state of each open message, for whoever follows it now.

Answers for nothing that lasts: what is here is a preview of `message.completed`, is lost with the process and moves no
sequence. A follower is only ever told that there is more and takes what he has not seen, so that one who is slow gets
it in one piece. Must never hold more than its limits, whatever agents write: the text that was touched least goes.

`offset` counts the characters (Unicode code points) before a piece. Pieces may come twice and in any number of copies;
one that leaves a gap is not taken, and `missing` says so.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias

MAX_OPEN_TEXTS: Final = 2_000
MAX_OPEN_CHARACTERS: Final = 32 * 1024 * 1024

TextKind: TypeAlias = Literal["message", "reasoning"]


@dataclass(frozen=True, slots=True)
class OpenText:
    """One text that is being written. `after` is the sequence of the `message.started` that belongs to it."""

    session_id: str
    turn_id: str
    message_id: str
    attempt: int
    after: int
    kind: TextKind = "message"
    text: str = ""

    @property
    def offset(self) -> int:
        """How many characters there are."""
        return len(self.text)

    def with_more(self, piece: str) -> "OpenText":
        """Once `piece` was written at its end."""
        return replace(self, text=self.text + piece)

    @property
    def key(self) -> tuple[str, TextKind]:
        """What tells it from others."""
        return self.message_id, self.kind


class Rings(Protocol):
    """Who tells followers in this process."""

    def ring(self, topic: str) -> None: ...


class TextRelay(Protocol):
    """Who carries texts to other processes. Both are called in the event loop and return at once."""

    def piece(self, text: OpenText, offset: int) -> None:
        """The text has grown behind `offset`."""
        ...

    def closed(self, message_id: str) -> None: ...


def text_topic(session_id: str) -> str:
    """What is rung when an open text of the session grows or ends."""
    return f"text:{session_id}"


class OpenTexts:
    """The open texts that this process knows of. Every method may be called from any thread."""

    def __init__(
        self, rings: Rings, *, max_texts: int = MAX_OPEN_TEXTS, max_characters: int = MAX_OPEN_CHARACTERS
    ) -> None:
        self._rings = rings
        self._max_texts = max_texts
        self._max_characters = max_characters
        self._characters = 0
        self._texts: OrderedDict[tuple[str, TextKind], OpenText] = OrderedDict()
        self._by_session: dict[str, set[tuple[str, TextKind]]] = {}
        self._lock = threading.Lock()
        self.relay: TextRelay | None = None
        self.missing: Callable[[str], None] | None = None

    def of_session(self, session_id: str) -> tuple[OpenText, ...]:
        """The open texts of a session, in the order in which they were begun."""
        with self._lock:
            found = [self._texts[key] for key in self._by_session.get(session_id, ())]
        return tuple(sorted(found, key=lambda text: (text.after, text.kind == "message")))

    def write(self, text: OpenText, piece: str) -> None:
        """The agent of this process has written `piece` at the end of `text`, as it was after the last piece."""
        grown = text.with_more(piece)
        self._keep(grown)
        if self.relay is not None:
            self.relay.piece(grown, text.offset)

    def close(self, message_id: str) -> None:
        """The message is not written any more: it was completed, refused or given up."""
        self.forget(message_id)
        if self.relay is not None:
            self.relay.closed(message_id)

    def hear(self, text: OpenText, offset: int) -> None:
        """Another process tells of `text.text` behind `offset`; the piece may be known, or leave a gap."""
        with self._lock:
            known = self._texts.get(text.key)
        have = 0 if known is None else known.offset
        if offset > have:
            if self.missing is not None:
                self.missing(text.message_id)
        elif offset + text.offset > have:
            before = "" if known is None else known.text[:offset]
            self._keep(replace(text, text=before + text.text))

    def forget(self, message_id: str) -> None:
        """As `close`, and nobody else is told."""
        kinds: tuple[TextKind, ...] = ("message", "reasoning")
        with self._lock:
            gone = [text for kind in kinds if (text := self._pop((message_id, kind))) is not None]
        for text in gone:
            self._rings.ring(text_topic(text.session_id))

    def find(self, message_id: str) -> tuple[OpenText, ...]:
        """The texts of a message, as far as they are known here."""
        kinds: tuple[TextKind, ...] = ("reasoning", "message")
        with self._lock:
            return tuple(self._texts[message_id, kind] for kind in kinds if (message_id, kind) in self._texts)

    def _keep(self, text: OpenText) -> None:
        with self._lock:
            self._pop(text.key)
            self._texts[text.key] = text
            self._characters += text.offset
            self._by_session.setdefault(text.session_id, set()).add(text.key)
            while len(self._texts) > self._max_texts or self._characters > self._max_characters:
                self._pop(next(iter(self._texts)))
        self._rings.ring(text_topic(text.session_id))

    def _pop(self, key: tuple[str, TextKind]) -> OpenText | None:
        text = self._texts.pop(key, None)
        if text is not None:
            self._characters -= text.offset
            keys = self._by_session[text.session_id]
            keys.discard(key)
            if not keys:
                del self._by_session[text.session_id]
        return text
