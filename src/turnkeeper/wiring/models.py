"""Joins the model gateway to a turn's ledger, and providers' names to providers. No rule of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pydantic import SecretStr

from turnkeeper.sandbox.gateway import GatewayHandle, ModelGateway
from turnkeeper.sandbox.gateway_calls import GatewayLimits
from turnkeeper.sandbox.local_model import CONTEXT_TOKENS, LocalModel
from turnkeeper.sandbox.metering import BudgetExhausted, CallOutcome, CallUsage, Grant, Retry
from turnkeeper.sandbox.protocol import ModelWire, OutputMode, ToolCalling
from turnkeeper.sandbox.providers import ModelSpec, Provider, ProviderLimits, anthropic_provider, openai_provider
from turnkeeper.sandbox.upstream import UpstreamLimits
from turnkeeper.settings import GatewaySettings, ProviderSettings
from turnkeeper.turns.box_ports import TurnMeter
from turnkeeper.turns.model import CallRecord, ModelChoice
from turnkeeper.turns.ports import BudgetSpent, NotFound

ProviderSource: TypeAlias = Callable[[], Awaitable[Provider]]
"""Makes a provider usable: at once for an address, by starting a server for a local model."""


class WorkerGateway:
    """`turns.box_ports.Gateway` over the model gateway."""

    def __init__(
        self,
        gateway: ModelGateway,
        providers: Mapping[str, ProviderSource],
        aliases: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._gateway = gateway
        self._providers = providers
        self._aliases = aliases or {}

    async def open(self, socket_dir: Path, model: ModelChoice, meter: TurnMeter) -> GatewayHandle:
        """A turn's model socket. Raises `NotFound` for a provider that was taken out of the settings."""
        source = self._providers.get(model.provider)
        if source is None:
            raise NotFound(f"there is no provider {model.provider!r} in the settings any more")
        spec = ModelSpec(await source(), model.id, model.params, self._aliases.get(model.provider, ()))

        async def retrying(retry: Retry) -> None:
            await meter.retrying(model, status=retry.failure.status, delay_ms=retry.delay_ms, try_number=retry.tries)

        return await self._gateway.open(socket_dir, spec, LedgerMeter(meter), on_retry=retrying)


class LedgerMeter:
    """`sandbox.metering.Meter` over a turn's ledger."""

    def __init__(self, meter: TurnMeter) -> None:
        self._meter = meter

    async def reserve(self, *, input_tokens: int, max_output_tokens: int) -> Grant:
        """A reservation. Raises `BudgetExhausted`."""
        try:
            grant = await self._meter.reserve(input_tokens=input_tokens, max_output_tokens=max_output_tokens)
        except BudgetSpent as spent:
            raise BudgetExhausted(spent.message) from spent
        return Grant(grant.call, grant.max_output_tokens)

    async def settle(self, call: int, usage: CallUsage, outcome: CallOutcome) -> None:
        """Ends a reservation."""
        await self._meter.settle(
            CallRecord(
                call=call,
                provider=outcome.provider,
                model=outcome.model,
                accepted=outcome.accepted,
                input_tokens=usage.input_tokens,
                cached_input_tokens=usage.cached_input_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                output_tokens=usage.output_tokens,
                reasoning_tokens=usage.reasoning_tokens,
                estimated=usage.estimated,
                latency_ms=outcome.latency_ms,
                first_token_ms=outcome.first_token_ms,
                finish_reason=outcome.finish_reason,
                retries=outcome.retries,
            )
        )


class SharedLocalModel:
    """One local model for everybody who asks: started by the first, waited for by the rest."""

    def __init__(self, name: str) -> None:
        self._model = LocalModel(name)
        self._starting = asyncio.Lock()

    async def provider(self) -> Provider:
        """The running model. Raises `LocalModelUnavailable`."""
        async with self._starting:
            return await self._model.start()

    async def stop(self) -> None:
        """Returns when its process is gone."""
        await self._model.stop()


def provider_sources(
    stack: AsyncExitStack, settings: Mapping[str, ProviderSettings], secrets: Mapping[str, SecretStr]
) -> dict[str, ProviderSource]:
    """The providers of the settings by name; a local model that was started ends with the stack."""
    sources: dict[str, ProviderSource] = {}
    for name, provider in settings.items():
        if provider.base_url is None:
            model = SharedLocalModel(name)
            stack.push_async_callback(model.stop)
            sources[name] = model.provider
        else:
            make = anthropic_provider if provider.kind == "anthropic" else openai_provider
            sources[name] = _remote(make(name, provider.base_url, secrets.get(name), limits=_limits_of(provider)))
    return sources


def gateway_limits(settings: GatewaySettings) -> GatewayLimits:
    """The settings of the gateway in its own terms."""
    return GatewayLimits(
        max_request_bytes=settings.max_request_bytes,
        call_timeout_ms=settings.call_timeout_ms,
        max_calls_per_minute=settings.max_calls_per_minute,
        max_calls_at_once=settings.max_calls_at_once,
        upstream=UpstreamLimits(
            max_response_bytes=settings.max_response_bytes,
            max_stream_bytes=settings.max_stream_bytes,
            max_retries=settings.max_retries,
        ),
    )


def _limits_of(provider: ProviderSettings) -> ProviderLimits:
    return ProviderLimits(
        max_calls_at_once=provider.max_calls_at_once,
        max_calls_per_minute=provider.max_calls_per_minute,
        max_wait_ms=provider.max_wait_ms,
        connect_timeout_ms=provider.connect_timeout_ms,
        read_timeout_ms=provider.read_timeout_ms,
    )


def _remote(provider: Provider) -> ProviderSource:
    async def source() -> Provider:
        return provider

    return source


@dataclass(frozen=True, slots=True)
class OutputModes:
    """How a model is asked for a structured result: in the schema's form where its server can force that."""

    providers: Mapping[str, ProviderSettings]

    def __call__(self, model: ModelChoice) -> OutputMode:
        provider = self.providers.get(model.provider)
        if provider is None:
            return "tool"
        forces = provider.kind == "local" if provider.json_schema is None else provider.json_schema
        return "native" if forces else "tool"


@dataclass(frozen=True, slots=True)
class ToolCallings:
    """How a model calls tools: as its provider's settings say, small local ones in what they write."""

    providers: Mapping[str, ProviderSettings]

    def __call__(self, model: ModelChoice) -> ToolCalling:
        provider = self.providers.get(model.provider)
        if provider is None:
            return "native"
        return provider.tool_calling or ("prompted" if provider.kind == "local" else "native")


@dataclass(frozen=True, slots=True)
class ContextWindows:
    """How many tokens a model takes in, as far as the settings say; 0 where they do not."""

    providers: Mapping[str, ProviderSettings]

    def __call__(self, model: ModelChoice) -> int:
        provider = self.providers.get(model.provider)
        if provider is None:
            return 0
        return provider.context_tokens or (CONTEXT_TOKENS if provider.kind == "local" else 0)


@dataclass(frozen=True, slots=True)
class ModelWires:
    """In which protocol the built-in agent speaks to a model: the one of its provider."""

    providers: Mapping[str, ProviderSettings]

    def __call__(self, model: ModelChoice) -> ModelWire:
        provider = self.providers.get(model.provider)
        if provider is None:
            return "chat_completions"
        return "messages" if provider.kind == "anthropic" else provider.protocol
