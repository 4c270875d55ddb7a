"""The tool box of one turn: opened at its first call, used by all of them, gone before the turn's ending is written.

Answers for running one tool at a time and for saying `unknown` where nobody can know what a tool did. Whether a call
may run is not decided here.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from turnkeeper.acs import JsonValue
from turnkeeper.errors import TurnkeeperError
from turnkeeper.events import catalogue
from turnkeeper.events.catalogue import LossReason, ToolEnd
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns.box_ports import BoxEndReason, ToolBox, ToolOutcome
from turnkeeper.turns.egress import Egress
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.inputs import received_files
from turnkeeper.turns.model import BoxSize, Fence, Turn
from turnkeeper.turns.workbench import Workbench
from turnkeeper.turns.workspace_files import deliver

OPERATION_BYTES: Final = 131_072
"""What one operation of the box's agent may bring back."""

_END_TEXTS: Final[Mapping[BoxEndReason, str]] = {
    "oom": "the sandbox used up its memory and was ended, with everything that ran in it",
    "quota": "the workspace grew over its quota; the sandbox was ended, with everything that ran in it",
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool gave, cut to what may be told. `modified`: the Guardian put another text in its place.

    `by_platform`: the text is ours, whatever the status.
    """

    status: ToolEnd
    text: str
    truncated: bool
    duration_ms: int
    modified: bool = False
    by_platform: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether no tool said the text: nobody knows what it did, or it never ran."""
        return self.by_platform or self.status in {"unknown", "canceled"}


class ToolRuns:
    """The tool box of one turn. `released` are the events of boxes that are gone; `used`: there was one.

    `skills` makes the folder of loaded skills that a box has, where it has one.
    """

    def __init__(
        self,
        bench: Workbench,
        turn: Turn,
        fence: Callable[[], Fence],
        size: BoxSize,
        egress: Egress,
        *,
        skills: Callable[[], Awaitable[Path | None]],
    ) -> None:
        self._bench = bench
        self._size = size
        self._egress = egress
        self._skills = skills
        self._turn = turn
        self._fence = fence
        self._box: ToolBox | None = None
        self._box_since_ms = 0
        self._stands_still = False
        self.released: list[NewEvent] = []
        self.used = False

    @contextmanager
    def serving(self, party: Party) -> Generator[None]:
        """Who is at work in the box until the end of the block: what it wants to reach is asked as theirs."""
        before, self._egress.party = self._egress.party, party
        try:
            yield
        finally:
            self._egress.party = before

    async def run(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolOutput:
        """One executed call, counted in the ledger before it runs. Raises `StaleFence`, `BudgetSpent`."""
        await self._bench.store.tool_ran(self._fence())
        return await self._called(name, arguments)

    async def operate(self, operation: str, arguments: Mapping[str, object], *, timeout_ms: int) -> ToolOutcome:
        """Something that the box's agent does for the platform, and no model can ask for. No call of the turn's.

        Raises what a box raises that cannot be used any more, and is gone then.
        """
        try:
            box = await self._usable_box()
            return await box.call(operation, arguments, timeout_ms=timeout_ms, max_output_bytes=OPERATION_BYTES)
        except TurnkeeperError:
            await self.close()
            raise

    def masked(self, text: str) -> str:
        """A text from outside with the placeholders of secrets in their place."""
        return self._egress.masked(text)

    async def suspend(self) -> None:
        """Lets the box stand still while its turn waits, where there is one that can. Raises `StaleFence`."""
        if self._box is not None and await self._box.suspend():
            self._stands_still = True
            suspended = catalogue.sandbox_suspended(turn_id=self._turn.id, sandbox_id=self._box.sandbox_id)
            await self._bench.store.record(self._fence(), [suspended])

    async def resume(self) -> None:
        """Sets it going again. Raises `StaleFence`."""
        if self._box is None or not self._stands_still:
            return
        self._stands_still = False
        since_ms = self._bench.clock.monotonic_ms()
        await self._box.resume()
        resume_ms = self._bench.clock.monotonic_ms() - since_ms
        resumed = catalogue.sandbox_resumed(turn_id=self._turn.id, sandbox_id=self._box.sandbox_id, resume_ms=resume_ms)
        await self._bench.store.record(self._fence(), [resumed])

    async def close(self) -> None:
        """Ends the tool box; returns when its processes are gone."""
        if self._box is None:
            return
        box, self._box, self._stands_still = self._box, None, False
        reason = box.end_reason
        if reason is not None:
            loss: LossReason = "oom" if reason == "oom" else "killed"
            lost = catalogue.sandbox_lost(turn_id=self._turn.id, sandbox_id=box.sandbox_id, reason=loss)
            self.released.append(lost)
        try:
            await box.kill()
        except TurnkeeperError as error:
            _log.error("tool_box_not_gone", turn_id=self._turn.id, sandbox_id=box.sandbox_id, error=str(error))
            return
        finally:
            self.released += self._egress.untold()
        lifetime_ms = self._bench.clock.monotonic_ms() - self._box_since_ms
        self.released.append(
            catalogue.sandbox_released(turn_id=self._turn.id, sandbox_id=box.sandbox_id, lifetime_ms=lifetime_ms)
        )

    async def _called(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolOutput:
        settings = self._bench.settings
        since_ms = self._bench.clock.monotonic_ms()
        try:
            box = await self._usable_box()
            outcome = await box.call(
                name, arguments, timeout_ms=settings.tool_timeout_ms, max_output_bytes=settings.tool_output_bytes
            )
        except TurnkeeperError as error:
            # What the tool had done by then nobody knows; the next call gets a box of its own.
            _log.warning("tool_box_lost", turn_id=self._turn.id, tool=name, error=str(error))
            reason = None if self._box is None else self._box.end_reason
            await self.close()
            duration_ms = self._bench.clock.monotonic_ms() - since_ms
            if reason is not None:
                return ToolOutput("error", _END_TEXTS[reason], False, duration_ms, by_platform=True)
            return ToolOutput("unknown", "the tool's sandbox went away", False, duration_ms)
        text, cut = cut_text(self.masked(outcome.text), settings.tool_output_bytes)
        return ToolOutput(outcome.status, text, outcome.truncated or cut, outcome.duration_ms)

    async def _usable_box(self) -> ToolBox:
        if self._box is not None and self._box.end_reason is not None:
            await self.close()
        return self._box or await self._open_box()

    async def _open_box(self) -> ToolBox:
        workspace = self._bench.workspaces / self._turn.session_id
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        await deliver(workspace, await received_files(self._bench.store, self._turn), self._bench.contents)
        self._box = await self._bench.boxes.tool_box(
            workspace, self._size, await self._egress.order(), skills=await self._skills()
        )
        self._egress.sandbox_id = self._box.sandbox_id
        self.used = True
        self._box_since_ms = self._bench.clock.monotonic_ms()
        return self._box


def cut_text(text: str, limit_bytes: int) -> tuple[str, bool]:
    """The text, at most `limit_bytes` long in UTF-8, and whether it was cut; never inside a character."""
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text, False
    return encoded[:limit_bytes].decode(errors="ignore"), True
