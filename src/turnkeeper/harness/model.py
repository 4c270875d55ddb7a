"""The model as a harness sees it: the gateway's socket, behind pydantic-ai's client for its protocol.

Adds no key and has none. Bounds and counts the turn's model calls, keeps what the model said last, and tells a spent
budget from a failed model. Its figures are only compared with the worker's ledger (contract, amendment 6).
"""

import json
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias, cast

import httpx2
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from turnkeeper.harness.prompted import PromptedModel
from turnkeeper.harness.wires import wired_model
from turnkeeper.sandbox.protocol import ModelWire, ToolCalling

BUDGET_CODE: Final = "budget_reached"
MAX_ERROR_CHARACTERS: Final = 500

SpokenKind: TypeAlias = Literal["message", "reasoning"]


class Speaker(Protocol):
    """Where what the model writes is told while it is written, if it is `wanted`."""

    wanted: bool

    def begin(self) -> None:
        """Another answer of the model begins."""
        ...

    async def say(self, kind: SpokenKind, text: str) -> None:
        """A piece of the answer."""
        ...

    async def end(self) -> None:
        """The answer is whole."""
        ...


Writer: TypeAlias = Callable[[str], Awaitable[str]]
"""What the model writes on a request that stands outside of the conversation. Raises `ModelFailed`, `BudgetReached`."""


class Context(Protocol):
    """What of the conversation the model is shown."""

    async def fitted(self, messages: Sequence[ModelMessage], beside_bytes: int, write: Writer) -> list[ModelMessage]:
        """The conversation as it goes out, with so many bytes beside it."""
        ...

    def count(self, messages: Sequence[ModelMessage], usage: RequestUsage) -> None:
        """A call with this conversation was answered."""
        ...


class BudgetReached(Exception):
    """No further model call is paid for, or the turn's bound on calls is reached."""


class ModelFailed(Exception):
    """A model call failed for good; the text names the gateway's code."""


@dataclass(slots=True)
class SpentUsage:
    """The harness's own figures of a turn, under the names of usage.json."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0

    def add(self, response: ModelResponse) -> None:
        """Counts one answer."""
        usage = response.usage
        self.input_tokens += usage.input_tokens
        self.cached_input_tokens += usage.cache_read_tokens
        self.cache_write_tokens += usage.cache_write_tokens
        self.output_tokens += usage.output_tokens
        self.reasoning_tokens += usage.details.get("reasoning_tokens", 0)


class TurnModel(WrapperModel):
    """The turn's model. `said` is the text of the latest answer that had any; `speech` is told of it as it comes."""

    def __init__(
        self,
        name: str,
        transport: httpx2.AsyncBaseTransport,
        *,
        max_calls: int,
        wire: ModelWire = "chat_completions",
        calling: ToolCalling = "native",
        constrained: bool = False,
        speech: Speaker | None = None,
        context: Context | None = None,
    ) -> None:
        wired = wired_model(wire, name, transport)
        prompted = calling == "prompted"
        super().__init__(PromptedModel(wired.model, constrained=constrained) if prompted else wired.model)
        self.said = ""
        self.usage = SpentUsage()
        self.wire: ModelWire = wire
        self._http = wired.http
        self._client_errors = wired.client_errors
        self._max_calls = max_calls
        self._speech = speech
        self._context = context
        self._prompted = prompted

    async def close(self) -> None:
        """Closes the connection to the gateway."""
        await self._http.aclose()

    @contextmanager
    def apart(self) -> Generator[None]:
        """What is said within the block is a subagent's: nobody follows it, and the turn did not say it."""
        said, speech, context = self.said, self._speech, self._context
        self.said, self._speech, self._context = "", None, None
        try:
            yield
        finally:
            self.said, self._speech, self._context = said, speech, context

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """One call through the gateway, and one more where the context is summarized before.

        Raises `BudgetReached`, `ModelFailed`.
        """
        if self._context is None:
            return await self._conversed(messages, model_settings, model_request_parameters)
        shown = await self._context.fitted(messages, _beside_bytes(model_request_parameters), self._aside)
        response = await self._conversed(shown, model_settings, model_request_parameters)
        self._context.count(messages, response.usage)
        return response

    async def _conversed(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        response = await self._called(lambda: self._answer(messages, settings, parameters))
        self.said = _text_of(response) or self.said
        # An answer cut at its cap is odd output like any other, to be answered, not the end of the turn.
        return replace(response, finish_reason="stop") if response.finish_reason == "length" else response

    async def _aside(self, prompt: str) -> str:
        asked: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(content=prompt)])]
        return _text_of(await self._called(lambda: self.wrapped.request(asked, None, ModelRequestParameters())))

    async def _called(self, call: Callable[[], Awaitable[ModelResponse]]) -> ModelResponse:
        if self.usage.model_calls >= self._max_calls:
            raise BudgetReached
        try:
            response = await call()
        except ModelHTTPError as error:
            if _error_of(error).get("code") == BUDGET_CODE:
                raise BudgetReached from error
            raise ModelFailed(_gateway_words(error)) from error
        except (ModelAPIError, UnexpectedModelBehavior, IndexError, *self._client_errors) as error:
            # An answer without choices is an IndexError in the client.
            raise ModelFailed(f"bad_answer: {str(error)[:MAX_ERROR_CHARACTERS]}") from error
        self.usage.model_calls += 1
        self.usage.add(response)
        return response

    async def _answer(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        written_calls = self._prompted and bool(parameters.function_tools)
        if self._speech is None or not self._speech.wanted or written_calls:
            return await self.wrapped.request(messages, settings, parameters)
        self._speech.begin()
        async with self.wrapped.request_stream(messages, settings, parameters) as stream:
            async for event in stream:
                kind, text = _spoken(event)
                await self._speech.say(kind, text)
        await self._speech.end()
        return stream.get()


def _text_of(response: ModelResponse) -> str:
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def _beside_bytes(parameters: ModelRequestParameters) -> int:
    tools = sum(
        len(tool.name) + len(tool.description or "") + len(json.dumps(tool.parameters_json_schema))
        for tool in parameters.function_tools
    )
    return tools + sum(len(part.content) for part in parameters.instruction_parts or ())


def _spoken(event: ModelResponseStreamEvent) -> tuple[SpokenKind, str]:
    piece = (
        event.part if isinstance(event, PartStartEvent) else event.delta if isinstance(event, PartDeltaEvent) else None
    )
    if isinstance(piece, ThinkingPart):
        return "reasoning", piece.content
    if isinstance(piece, ThinkingPartDelta):
        return "reasoning", piece.content_delta or ""
    if isinstance(piece, TextPart):
        return "message", piece.content
    return "message", piece.content_delta if isinstance(piece, TextPartDelta) else ""


def _error_of(error: ModelHTTPError) -> dict[str, object]:
    # OpenAI's client takes the envelope off, Anthropic's leaves it on.
    body = _object(error.body)
    return _object(body.get("error")) or body


def _object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _gateway_words(error: ModelHTTPError) -> str:
    members = _error_of(error)
    code, message = members.get("code", "model_error"), members.get("message", f"status {error.status_code}")
    return f"{code}: {message}"[:MAX_ERROR_CHARACTERS]
