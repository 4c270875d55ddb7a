"""What the model writes, told to the worker while it is written, if the worker asked for it (contract 11).

Answers for few frames: pieces that come quickly after one another go out as one. What is told here is a preview and
nothing more; the turn's text is the one in the report.
"""

import time
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from turnkeeper.harness.channel import WorkerLink
from turnkeeper.sandbox.protocol import TextDelta

TOLD_EVERY_MS: Final = 40
"""About as often as a person sees text move."""

MAX_PIECE_CHARACTERS: Final = 65_536
"""However a provider cuts its stream, a piece fits a frame."""

SpeechKind: TypeAlias = Literal["message", "reasoning"]


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Speech:
    """The voice of one turn. Without `wanted` it is silent."""

    def __init__(self, link: WorkerLink, *, wanted: bool, now_ms: Callable[[], int] = _monotonic_ms) -> None:
        self._link = link
        self._now_ms = now_ms
        self._message = 0
        self._kind: SpeechKind = "message"
        self._untold: list[str] = []
        self._told_ms = 0
        self.wanted = wanted

    def begin(self) -> None:
        """Another answer of the model begins."""
        self._message += 1

    async def say(self, kind: SpeechKind, text: str) -> None:
        """Tells a piece of the answer, or keeps it for a moment. Raises `WorkerGone`."""
        if not self.wanted or not text:
            return
        if kind != self._kind:
            await self.end()
        self._kind = kind
        self._untold.append(text)
        if self._now_ms() - self._told_ms >= TOLD_EVERY_MS:
            await self.end()

    async def end(self) -> None:
        """Tells what was kept. Raises `WorkerGone`."""
        if not self._untold:
            return
        text, self._untold = "".join(self._untold), []
        self._told_ms = self._now_ms()
        for start in range(0, len(text), MAX_PIECE_CHARACTERS):
            await self._link.tell(TextDelta(self._message, text[start : start + MAX_PIECE_CHARACTERS], self._kind))
