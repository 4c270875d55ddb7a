"""Prompted tool calling: tools described in words, calls read from what the model writes.

For models and servers without tool calls of their own. Answers for a model that sees only texts, for calls that are
forced into their form where the server can do that (`constrained`), and for a call that cannot be read being said so
to the model a bounded number of times. Must never call anything itself: what it reads goes the way of every call.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, cast

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from turnkeeper.harness.spoken import BROKEN_CALL, spoken_messages
from turnkeeper.harness.written_calls import read_calls

MAX_REPAIRS: Final = 2
"""Unreadable calls in a row that are answered; the next one is taken for the agent's words."""

REFUSED_STATUS: Final = 400
REFUSED_CODE: Final = "provider_rejected"
"""What the gateway says of a request that the server did not take, a form of answer it cannot force included."""

_ANSWER: Final = "answer"
_NOT_FORCED: Final = frozenset({"pattern", "format", "$schema", "$id"})
_LITERALS: Final = frozenset({"const", "enum", "default", "examples"})
_NAMED_SCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_FORM_NAME: Final = "step"
_CALL_FORM: Final = '{"tool": "<name>", "arguments": {...}}'
_CLOSINGS: Final = ("", '"}', "}")


class PromptedModel(WrapperModel):
    """A model that is told of its tools in words. `constrained`: its server can force a JSON Schema's form."""

    def __init__(self, wrapped: Model, *, constrained: bool) -> None:
        super().__init__(wrapped)
        self._constrained = constrained

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """One call. Raises what the wrapped model raises."""
        tools = model_request_parameters.function_tools
        if not tools:
            return await self.wrapped.request(spoken_messages(messages), model_settings, model_request_parameters)
        if self._constrained:
            try:
                form = _in_form(model_settings, [] if _repeats_itself(messages) else tools)
                forced = await self._asked(messages, form, model_request_parameters, forced=True)
                return _read(forced, messages, forced=True)
            except ModelHTTPError as error:
                if error.status_code != REFUSED_STATUS or _code_of(error) != REFUSED_CODE:
                    raise
                # A tool's schema may be more than the server can force; its model still knows the words.
                self._constrained = False
        return _read(await self._asked(messages, model_settings, model_request_parameters, forced=False), messages)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """One call without tools, told as it comes. With tools, nobody knows before its end what is a call."""
        spoken = spoken_messages(messages)
        async with self.wrapped.request_stream(spoken, model_settings, model_request_parameters, run_context) as stream:
            yield stream

    async def _asked(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        *,
        forced: bool,
    ) -> ModelResponse:
        # As one text: many a chat template knows a single system message.
        instructions = [part.content for part in parameters.instruction_parts or ()]
        manual = "\n\n".join([*instructions, manual_of(parameters.function_tools, forced=forced)])
        told = replace(parameters, function_tools=[], instruction_parts=[InstructionPart(content=manual)])
        return await self.wrapped.request(spoken_messages(messages), settings, told)


def manual_of(tools: Sequence[ToolDefinition], *, forced: bool) -> str:
    """What a model is told about its tools and how to call them."""
    listed = "\n".join(
        f"- {tool.name}: {tool.description or ''}\n  arguments: {json.dumps(tool.parameters_json_schema)}"
        for tool in tools
    )
    otherwise = f'answer:\n{{"{_ANSWER}": "<your answer>"}}' if forced else "answer in words, without any JSON."
    return (
        f"You have these tools:\n{listed}\n\nTo call a tool, answer with one JSON object and nothing else:\n"
        f"{_CALL_FORM}\nYou are then told what it returned. When no tool is needed any more, {otherwise}"
    )


def form_of(tools: Sequence[ToolDefinition]) -> dict[str, object]:
    """The JSON Schema of one step: a call of one of the tools, or the answer.

    Without what grammars of servers are known to fail at; the arguments are checked again where they are used.
    """
    steps = [
        _closed(
            {"tool": {"const": tool.name}, "arguments": _relaxed(tool.parameters_json_schema or {"type": "object"})}
        )
        for tool in tools
    ]
    return {"anyOf": [*steps, _closed({_ANSWER: {"type": "string"}})]}


def _closed(properties: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _relaxed(schema: object) -> object:
    if isinstance(schema, list):
        return [_relaxed(item) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    members = cast("dict[str, object]", schema)
    return {
        name: value if name in _LITERALS else _relaxed_named(value) if name in _NAMED_SCHEMAS else _relaxed(value)
        for name, value in members.items()
        if name not in _NOT_FORCED
    }


def _relaxed_named(schemas: object) -> object:
    if not isinstance(schemas, dict):
        return schemas
    return {name: _relaxed(schema) for name, schema in cast("dict[str, object]", schemas).items()}


def _in_form(settings: ModelSettings | None, tools: Sequence[ToolDefinition]) -> ModelSettings:
    changed: ModelSettings = {**settings} if settings else {}
    body = cast("dict[str, object]", changed.get("extra_body") or {})
    schema = {"name": _FORM_NAME, "schema": form_of(tools)}
    changed["extra_body"] = {**body, "response_format": {"type": "json_schema", "json_schema": schema}}
    return changed


def _read(response: ModelResponse, messages: Sequence[ModelMessage], *, forced: bool = False) -> ModelResponse:
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    others = [part for part in response.parts if not isinstance(part, TextPart)]
    return replace(response, parts=[*others, *_parts_of(text, messages, forced=forced)])


def _parts_of(text: str, messages: Sequence[ModelMessage], *, forced: bool) -> list[ModelResponsePart]:
    answer = _answer_in(text) if forced else None
    if answer is not None:
        return [TextPart(content=answer)]
    written = read_calls(text)
    if written.broken and _repairs(messages) < MAX_REPAIRS:
        return [ToolCallPart(tool_name=BROKEN_CALL, args=text)]
    said = [TextPart(content=written.text)] if written.text else []
    return [*said, *(ToolCallPart(tool_name=call.name, args=call.arguments) for call in written.calls)]


def _answer_in(text: str) -> str | None:
    # An answer that was cut at its cap ends inside its string.
    for closing in _CLOSINGS:
        try:
            document = cast("object", json.loads(text + closing))
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            answer = cast("dict[str, object]", document).get(_ANSWER)
            return answer if isinstance(answer, str) else None
    return None


def _repairs(messages: Sequence[ModelMessage]) -> int:
    """How many of the latest answers in a row held an unreadable call."""
    found = 0
    for message in reversed(messages):
        if not isinstance(message, ModelResponse):
            continue
        if not any(isinstance(part, ToolCallPart) and part.tool_name == BROKEN_CALL for part in message.parts):
            break
        found += 1
    return found


def _repeats_itself(messages: Sequence[ModelMessage]) -> bool:
    """Whether the last two answers made the very same calls: a small model would do so for ever."""
    calls = [_calls_of(message) for message in messages if isinstance(message, ModelResponse)]
    return len(calls) > 1 and calls[-1] == calls[-2] != []


def _calls_of(answer: ModelResponse) -> list[tuple[str, object]]:
    return [(part.tool_name, part.args) for part in answer.parts if isinstance(part, ToolCallPart)]


def _code_of(error: ModelHTTPError) -> object:
    body = error.body
    return cast("dict[str, object]", body).get("code") if isinstance(body, dict) else None
