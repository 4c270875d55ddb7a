"""The tool calls of a client that brings its own tools: ruled on before, and again before its agent reads the output.

Answers for the same questions, events and approvals as a call that we run ourselves (contract 16.3). What it cannot
answer for is that the client obeys: the call happens in the client's own box, and what holds there is the box.
"""

import json
from typing import Final

from turnkeeper.clock import Clock
from turnkeeper.events.catalogue import ToolEnd
from turnkeeper.events.envelope import NewEvent
from turnkeeper.sandbox.protocol import ToolAsked, ToolRan, ToolResult, ToolRuled
from turnkeeper.turns.tool_runs import ToolOutput, cut_text
from turnkeeper.turns.tool_step import OpenCall, RunsInside, ToolSteps

MAX_NAME_CHARACTERS: Final = 200
MAX_OPEN_CALLS: Final = 64
"""Calls that a client may have begun and not told the output of; further ones are refused."""


class ClientSteps:
    """The calls of one turn that its client carries out."""

    def __init__(self, tools: ToolSteps, clock: Clock, *, output_bytes: int) -> None:
        self._tools = tools
        self._clock = clock
        self._output_bytes = output_bytes
        self._running: dict[str, OpenCall] = {}

    async def rule(self, asked: ToolAsked) -> ToolRuled:
        """Whether it may be made. Raises `StaleFence`, `Parked`, `NotContinued`."""
        if asked.call_id in self._running or len(self._running) >= MAX_OPEN_CALLS:
            return ToolRuled(asked.call_id, allowed=False, reason="too many calls are open, or this one is")
        if not asked.name or len(asked.name) > MAX_NAME_CHARACTERS:
            return ToolRuled(asked.call_id, allowed=False, reason="no tool has such a name")
        try:
            output = await self._tools.asked(asked.name, asked.arguments)
        except RunsInside as inside:
            self._tools.take_open()
            self._running[asked.call_id] = OpenCall(inside.call, self._clock.monotonic_ms())
            return ToolRuled(asked.call_id, allowed=True, arguments=json.dumps(inside.arguments, ensure_ascii=False))
        self._tools.take_open()
        return ToolRuled(asked.call_id, allowed=False, reason=output.text)

    async def ran(self, told: ToolRan) -> ToolResult:
        """What the agent may read. A call that was never allowed has no output. Raises `StaleFence`."""
        opened = self._running.pop(told.call_id, None)
        if opened is None:
            return ToolResult(told.call_id, "denied", "denied: nobody had asked about this call")
        text, cut = cut_text(told.content, self._output_bytes)
        duration_ms = self._clock.monotonic_ms() - opened.since_ms
        output = await self._tools.returned(opened, ToolOutput(told.status, text, cut, duration_ms))
        return ToolResult(told.call_id, output.status, output.text)

    def closing_events(self, status: ToolEnd) -> list[NewEvent]:
        """Closes the calls whose output nobody told."""
        running, self._running = self._running, {}
        return [self._tools.closed(opened, status) for opened in running.values()]
