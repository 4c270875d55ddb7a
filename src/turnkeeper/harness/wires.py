"""The gateway's socket behind pydantic-ai's model class for each protocol. No key: the gateway has it."""

from dataclasses import dataclass
from typing import Final

import httpx2
from openai import AsyncOpenAI, OpenAIError
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from turnkeeper.sandbox.protocol import ModelWire

# The name is never resolved: every connection goes to the socket.
_HOST: Final = "http://gateway"
_OPENAI_URL: Final = f"{_HOST}/v1"
_NO_KEY: Final = "none"


@dataclass(frozen=True, slots=True)
class WiredModel:
    """A model and what its client raises beside pydantic-ai's own errors. `http` is to be closed."""

    model: Model
    http: httpx2.AsyncClient
    client_errors: tuple[type[Exception], ...]


def socket_transport(gateway_socket: str) -> httpx2.AsyncBaseTransport:
    """Every connection goes to this unix socket. Plain HTTP: a TLS context would only cost start-up time."""
    return httpx2.AsyncHTTPTransport(uds=gateway_socket, verify=False)


def wired_model(wire: ModelWire, name: str, transport: httpx2.AsyncBaseTransport) -> WiredModel:
    """The model `name` in this protocol. No client repeats anything: the gateway repeats what may be repeated."""
    http = httpx2.AsyncClient(transport=transport, timeout=None, trust_env=False)
    if wire == "messages":
        return _anthropic(name, http)
    client = AsyncOpenAI(base_url=_OPENAI_URL, api_key=_NO_KEY, http_client=http, max_retries=0)
    kind = OpenAIChatModel if wire == "chat_completions" else OpenAIResponsesModel
    model = kind(name, provider=OpenAIProvider(openai_client=client), profile=_verbatim_profile())
    return WiredModel(model, http, (OpenAIError,))


def _anthropic(name: str, http: httpx2.AsyncClient) -> WiredModel:
    # The client takes 45 MB: only the boxes that speak to Anthropic pay for it.
    from anthropic import AnthropicError, AsyncAnthropic  # noqa: PLC0415
    from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415
    from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415

    client = AsyncAnthropic(base_url=_HOST, api_key=_NO_KEY, http_client=http, max_retries=0)
    model = AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))
    return WiredModel(model, http, (AnthropicError,))


def _verbatim_profile() -> OpenAIModelProfile:
    # Schemas are the worker's; they go out as they came, whatever the model is called.
    return OpenAIModelProfile(json_schema_transformer=None, openai_supports_strict_tool_definition=False)
