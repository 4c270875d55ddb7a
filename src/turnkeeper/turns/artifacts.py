"""What one turn leaves, as artifacts (contract 2.6 and 14): long outputs of tools, a long answer, files.

Answers for an artifact that holds what was allowed and nothing else (amendment 7): its event is written with the answer
that allowed it. Media types are guessed from names and promise nothing.
"""

import hashlib
import mimetypes
from collections import Counter
from collections.abc import Sequence
from typing import Final

from turnkeeper.events.envelope import NewEvent
from turnkeeper.events.files import artifact_created
from turnkeeper.turns.files import DEFAULT_MEDIA_TYPE, TEXT_MEDIA_TYPE, ArtifactKind
from turnkeeper.turns.model import Turn
from turnkeeper.turns.turn_files import shown_name
from turnkeeper.turns.workbench import Workbench
from turnkeeper.turns.workspace_files import Collected, Output, OutputLimits, collect

# Of the library's own list alone: what a machine has in /etc must not decide what an event says.
_MEDIA_TYPES: Final = mimetypes.MimeTypes(filenames=())


class Artifacts:
    """The artifacts of one turn."""

    def __init__(self, bench: Workbench, turn: Turn, project_id: str) -> None:
        self._bench = bench
        self._turn = turn
        self._project_id = project_id

    async def has_room(self, size_bytes: int) -> bool:
        """Whether the project may keep so much more."""
        return await self._bench.files.room(self._project_id) >= size_bytes

    async def outputs(self) -> Collected:
        """The files that lie in the output folder and are new, or changed, since an earlier turn left them."""
        workspace, settings = self._bench.workspaces / self._turn.session_id, self._bench.settings
        if not workspace.is_dir():
            return Collected()
        published = await self._bench.files.known_outputs(self._turn.session_id)
        room = await self._bench.files.room(self._project_id)
        limits = OutputLimits(settings.output_files, settings.output_file_bytes, min(settings.output_total_bytes, room))
        return await collect(
            workspace,
            self._bench.contents,
            limits,
            lambda path, sha256: not published.isdisjoint({(path, sha256), (None, sha256)}),
        )

    def of_outputs(self, outputs: Sequence[Output]) -> list[NewEvent]:
        """The events of files."""
        return [
            artifact_created(
                turn_id=self._turn.id,
                attempt=self._turn.attempt,
                artifact_id=self._bench.ids.new("art"),
                name=shown_name(output.path),
                path=output.path,
                media_type=media_type_of(output.path),
                size_bytes=output.size_bytes,
                sha256=output.sha256,
                kind="output",
            )
            for output in outputs
        ]

    def of_text(self, kind: ArtifactKind, name: str, text: str) -> tuple[str, NewEvent]:
        """The id and the event of a text that is too long to stand where it belongs."""
        artifact_id, encoded = self._bench.ids.new("art"), text.encode()
        event = artifact_created(
            turn_id=self._turn.id,
            attempt=self._turn.attempt,
            artifact_id=artifact_id,
            name=name,
            path=None,
            media_type=TEXT_MEDIA_TYPE,
            size_bytes=len(encoded),
            sha256=hashlib.sha256(encoded).hexdigest(),
            kind=kind,
            content=text,
        )
        return artifact_id, event


def media_type_of(path: str) -> str:
    """What the name of a file says that it is."""
    guessed, encoding = _MEDIA_TYPES.guess_type(path)
    return guessed if guessed is not None and encoding is None else DEFAULT_MEDIA_TYPE


def told(skipped: Counter[str]) -> str:
    """Why what was left was not all taken."""
    return "not kept of the outputs: " + ", ".join(f"{count} {why}" for why, count in sorted(skipped.items()))
