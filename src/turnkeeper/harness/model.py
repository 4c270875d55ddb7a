"""The model as a harness sees it: the gateway's socket, behind pydantic-ai's Chat Completions client.

Adds no key and has none. Bounds and counts the turn's model calls, keeps what the model said last, and tells a spent
budget from a failed model. Its figures are only compared with the worker's ledger (contract, amendment 6).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, cast

import httpx2
from openai import APIError, AsyncOpenAI
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from turnkeeper.harness.speech import Speech, SpeechKind

BUDGET_STATUS: Final = 402
MAX_ERROR_CHARACTERS: Final = 500

# The name is never resolved: every connection goes to the socket.
_GATEWAY_URL: Final = "http://gateway/v1"
_NO_KEY: Final = "none"


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


def socket_transport(gateway_socket: str) -> httpx2.AsyncBaseTransport:
    """Every connection goes to this unix socket. Plain HTTP: a TLS context would only cost start-up time."""
    return httpx2.AsyncHTTPTransport(uds=gateway_socket, verify=False)


class TurnModel(OpenAIChatModel):
    """The turn's model. `said` is the text of the latest answer that had any."""

    def __init__(
        self, name: str, transport: httpx2.AsyncBaseTransport, *, max_calls: int, speech: Speech | None = None
    ) -> None:
        client = AsyncOpenAI(
            base_url=_GATEWAY_URL,
            api_key=_NO_KEY,
            http_client=httpx2.AsyncClient(transport=transport, timeout=None, trust_env=False),
            # The gateway repeats what may be repeated.
            max_retries=0,
        )
        super().__init__(name, provider=OpenAIProvider(openai_client=client), profile=_verbatim_profile())
        self.said = ""
        self.usage = SpentUsage()
        self._max_calls = max_calls
        self._speech = speech

    async def close(self) -> None:
        """Closes the connection to the gateway."""
        await self.client.close()

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """One call through the gateway. Raises `BudgetReached`, `ModelFailed`."""
        if self.usage.model_calls >= self._max_calls:
            raise BudgetReached
        try:
            response = await self._answer(messages, model_settings, model_request_parameters)
        except ModelHTTPError as error:
            if error.status_code == BUDGET_STATUS:
                raise BudgetReached from error
            raise ModelFailed(_gateway_words(error)) from error
        except (ModelAPIError, UnexpectedModelBehavior, IndexError, APIError) as error:
            # An answer without choices is an IndexError in the client, a stream that breaks off one of its own.
            raise ModelFailed(f"bad_answer: {str(error)[:MAX_ERROR_CHARACTERS]}") from error
        self._note(response)
        # An answer cut at its cap is odd output like any other, to be answered, not the end of the turn.
        return replace(response, finish_reason="stop") if response.finish_reason == "length" else response

    async def _answer(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """The answer as a whole; where the worker wants to hear it, streamed and told while it comes."""
        speech = self._speech
        if speech is None or not speech.wanted:
            return await super().request(messages, model_settings, model_request_parameters)
        speech.begin()
        async with super().request_stream(messages, model_settings, model_request_parameters) as streamed:
            async for event in streamed:
                for kind, text in _said_in(event):
                    await speech.say(kind, text)
            await speech.end()
            return streamed.get()

    def _note(self, response: ModelResponse) -> None:
        self.usage.model_calls += 1
        self.usage.add(response)
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        self.said = text or self.said


def _said_in(event: ModelResponseStreamEvent) -> Iterable[tuple[SpeechKind, str]]:
    if isinstance(event, PartStartEvent):
        if isinstance(event.part, TextPart):
            yield "message", event.part.content
        if isinstance(event.part, ThinkingPart):
            yield "reasoning", event.part.content
    if isinstance(event, PartDeltaEvent):
        if isinstance(event.delta, TextPartDelta):
            yield "message", event.delta.content_delta
        if isinstance(event.delta, ThinkingPartDelta):
            yield "reasoning", event.delta.content_delta or ""


def _verbatim_profile() -> OpenAIModelProfile:
    # Schemas are the worker's; they go out as they came, whatever the model is called.
    return OpenAIModelProfile(json_schema_transformer=None, openai_supports_strict_tool_definition=False)


def _gateway_words(error: ModelHTTPError) -> str:
    body = error.body
    members = cast("dict[str, object]", body) if isinstance(body, dict) else {}
    code, message = members.get("code", "model_error"), members.get("message", f"status {error.status_code}")
    return f"{code}: {message}"[:MAX_ERROR_CHARACTERS]
