"""A conversation in words: calls and their results as texts of two speakers, for models that know nothing else.

Pure. What a model of prompted tool calling is shown, and what a summary is made from.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from turnkeeper.harness.written_calls import render_call

BROKEN_CALL: Final = "unreadable_call"
"""The name under which an answer stands that holds a call nobody can read."""
REPAIR: Final = (
    "Your answer holds a tool call that could not be read, so nothing was called. Write the call again as one complete "
    "JSON object and nothing else, or answer in words without any JSON."
)

Speaker: TypeAlias = Literal["user", "agent"]


def in_words(messages: Sequence[ModelMessage]) -> list[tuple[Speaker, str]]:
    """Who said what, oldest first; what one speaker says in a row is one text."""
    said: list[tuple[Speaker, list[str]]] = []
    for message in messages:
        speaker: Speaker = "user" if isinstance(message, ModelRequest) else "agent"
        for text in _texts(message):
            if not said or said[-1][0] != speaker:
                said.append((speaker, []))
            said[-1][1].append(text)
    return [(speaker, "\n\n".join(texts)) for speaker, texts in said]


def spoken_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The same conversation without calls and results: texts alone."""
    spoken: list[ModelMessage] = []
    for speaker, text in in_words(messages):
        if speaker == "user":
            spoken.append(ModelRequest(parts=[UserPromptPart(content=text)]))
        else:
            spoken.append(ModelResponse(parts=[TextPart(content=text)]))
    return spoken


def summary_words(summary: str) -> str:
    """How a model is told of a summary that stands for the conversation before."""
    return f"This is a summary of the conversation so far:\n\n{summary}"


def _arguments(call: ToolCallPart) -> str:
    return call.args if isinstance(call.args, str) else json.dumps(call.args or {}, ensure_ascii=False)


def _texts(message: ModelMessage) -> Iterator[str]:
    for part in message.parts:
        match part:
            case UserPromptPart(content=str(content)) | TextPart(content=content) if content:
                yield content
            case ToolCallPart(tool_name=name):
                written = _arguments(part)
                yield written if name == BROKEN_CALL else render_call(name, written)
            case ToolReturnPart(tool_name=name):
                told = REPAIR if name == BROKEN_CALL else part.model_response_str(wrap_if_error=False)
                yield told if name == BROKEN_CALL else f"{name} returned:\n{told}"
            case RetryFeedbackPart(content=str(content)):
                yield content
            case _:
                pass
