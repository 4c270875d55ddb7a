"""Earlier turns as messages: rebuilt by the worker from allowed events, put into the model's terms here."""

from collections.abc import Sequence

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from turnkeeper.harness.spoken import summary_words
from turnkeeper.sandbox.protocol import HistoryItem


def messages_of(history: Sequence[HistoryItem]) -> list[ModelMessage]:
    """The conversation before this turn, oldest first."""
    return [message for item in history for message in _messages(item)]


def pending_call(item: HistoryItem) -> ModelMessage:
    """A call that was made and has no answer: going on from here means asking for it again."""
    return ModelResponse(parts=[_call(item)])


def _messages(item: HistoryItem) -> list[ModelMessage]:
    if item.kind == "user":
        return [ModelRequest(parts=[UserPromptPart(content=item.text)])]
    if item.kind == "summary":
        return [ModelRequest(parts=[UserPromptPart(content=summary_words(item.text))])]
    if item.kind == "agent":
        return [ModelResponse(parts=[TextPart(content=item.text)])]
    answer = ToolReturnPart(tool_name=item.name, content=item.text, tool_call_id=item.call_id)
    return [ModelResponse(parts=[_call(item)]), ModelRequest(parts=[answer])]


def _call(item: HistoryItem) -> ToolCallPart:
    return ToolCallPart(tool_name=item.name, args=item.arguments, tool_call_id=item.call_id)
