"""A subagent's loop inside the loop of its agent: a history of its own, the tools it was given, the same model.

Proposes everything and decides nothing, as its agent does. It knows nothing of the conversation around it, and answers
once.
"""

from collections.abc import Callable
from typing import Final

from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from turnkeeper.harness.agents import stop_for, turn_agent
from turnkeeper.harness.channel import WorkerGone, WorkerLink
from turnkeeper.harness.model import TurnModel
from turnkeeper.harness.tools import worker_tool
from turnkeeper.sandbox.protocol import (
    MAX_FRAME_BYTES,
    HarnessProtocolError,
    SubagentReport,
    SubagentTask,
)

MAX_TEXT_CHARACTERS: Final = MAX_FRAME_BYTES // 8
"""However a text is escaped, its report is one frame."""


class SubagentRuns:
    """Runs the subagents of a turn with its model, whose bound on calls is one for all of them."""

    def __init__(self, model: TurnModel, link: WorkerLink, settings: Callable[[], ModelSettings]) -> None:
        self._model = model
        self._link = link
        self._settings = settings

    async def run(self, task: SubagentTask) -> SubagentReport:
        """What became of a task. Raises `WorkerGone`, `HarnessProtocolError`."""
        with self._model.apart():
            try:
                text = await self._answer(task)
            except (WorkerGone, HarnessProtocolError):
                raise
            except Exception as error:  # noqa: BLE001 - the turn: whatever a subagent's loop raises is reported
                stop = stop_for(error)
                return SubagentReport(task.thread_id, stop.reason, self._model.said[:MAX_TEXT_CHARACTERS], stop.error)
        return SubagentReport(task.thread_id, "end_turn", text[:MAX_TEXT_CHARACTERS])

    async def _answer(self, task: SubagentTask) -> str:
        tools = [worker_tool(spec, self._link, self._model.usage) for spec in task.tools]
        agent = turn_agent(self._model, task.instructions, tools)
        result = await agent.run(
            task.task, model_settings=self._settings(), usage_limits=UsageLimits(request_limit=None)
        )
        return result.output or ""
