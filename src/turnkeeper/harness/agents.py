"""An agent as pydantic-ai runs it, and why its run stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pydantic_ai import Agent
from pydantic_ai.exceptions import ContentFilterError

from turnkeeper.harness.model import BudgetReached, ModelFailed, TurnModel
from turnkeeper.harness.tools import ProposedTool, ProposedTools

MAX_ERROR_CHARACTERS: Final = 500

# The bound on model calls is the one that counts.
_MAX_RETRIES: Final = 1_000_000

TurnAgent: TypeAlias = Agent[object, str | None]
StopReason: TypeAlias = Literal["end_turn", "budget_reached", "agent_error", "model_error"]


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the agent stopped."""

    reason: StopReason
    error: str | None = None


def turn_agent(model: TurnModel, instructions: str, tools: Sequence[ProposedTool]) -> TurnAgent:
    """An agent that answers in text, or not at all, and may propose these tools."""
    return Agent(
        model,
        output_type=[str, type(None)],
        instructions=instructions or None,
        toolsets=[ProposedTools(tools)] if tools else [],
        retries=_MAX_RETRIES,
    )


def stop_for(error: Exception) -> Stop:
    """Why a run that raised this stopped."""
    if isinstance(error, BudgetReached):
        return Stop("budget_reached")
    if isinstance(error, ModelFailed):
        return Stop("model_error", str(error))
    if isinstance(error, ContentFilterError):
        return Stop("model_error", "content_filter: the provider withheld the answer")
    return Stop("agent_error", f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARACTERS])
