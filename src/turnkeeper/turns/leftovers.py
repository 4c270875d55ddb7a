"""What a turn leaves when it answers: the files of its output folder, and an answer too long for its ending.

Answers for files that the Guardian has heard of in the answer it allows, by name, length and hash, and for publishing
none that it took out of it. The files are read before it is asked, and what is published is what was read then.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from turnkeeper.events import catalogue
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns.applied import keeps_files
from turnkeeper.turns.artifacts import Artifacts, told
from turnkeeper.turns.model import Turn
from turnkeeper.turns.tool_runs import cut_text
from turnkeeper.turns.workbench import Workbench

_REFERENCE = ("artifact_id", "name", "path", "media_type", "bytes", "sha256")


@dataclass(frozen=True, slots=True)
class Left:
    """The files that an answer leaves, as their events, and the word of what was not taken."""

    created: Sequence[NewEvent] = ()
    passed_over: Sequence[NewEvent] = ()

    @property
    def references(self) -> list[Mapping[str, object]]:
        """What the Guardian sees of them."""
        documents = [orjson.loads(event.data) for event in self.created]
        return [{name: document[name] for name in _REFERENCE} for document in documents]

    def news(self, changed: Mapping[str, object] | None) -> list[NewEvent]:
        """What is told of them once the answer was allowed, as it is or as the Guardian `changed` it."""
        kept = self.created if changed is None or keeps_files(changed) else ()
        return [*kept, *self.passed_over]


class Leftovers:
    """Those of one turn."""

    def __init__(self, bench: Workbench, turn: Turn, project_id: str) -> None:
        self._turn = turn
        self._artifacts = Artifacts(bench, turn, project_id)
        self._text_bytes = bench.settings.text_bytes

    async def found(self, *, look: bool) -> Left:
        """What lies in the output folder now; nothing, where nobody was in the workspace and there is no `look`."""
        if not look:
            return Left()
        collected = await self._artifacts.outputs()
        return Left(self._artifacts.of_outputs(collected.outputs), self._passed_over(collected.skipped))

    async def of_answer(self, text: str) -> tuple[str, Sequence[NewEvent]]:
        """The text that fits into an ending, and what is told of the rest."""
        short, cut = cut_text(text, self._text_bytes)
        if not cut:
            return text, ()
        why = f"the text was cut to {self._text_bytes} bytes"
        if await self._artifacts.has_room(len(text.encode())):
            artifact_id, created = self._artifacts.of_text("final_text", "answer.txt", text)
            return short, (created, self._normalized("output.text", f"{why}; all of it is {artifact_id}"))
        return short, (self._normalized("output.text", f"{why}; the project has no room for all of it"),)

    def _passed_over(self, skipped: Counter[str]) -> Sequence[NewEvent]:
        return [self._normalized("outputs", told(skipped))] if skipped else []

    def _normalized(self, field: str, reason: str) -> NewEvent:
        turn = self._turn
        return catalogue.report_normalized(turn_id=turn.id, attempt=turn.attempt, fields=[field], reason=reason)
