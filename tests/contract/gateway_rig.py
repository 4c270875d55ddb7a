"""A gateway on a real socket, a scripted model behind it, a client in front of it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from pydantic import SecretStr

from turnkeeper.sandbox.gateway import GatewayHandle, GatewayLimits, Meter, ModelGateway, ModelSpec, Retry
from turnkeeper.sandbox.providers import Provider, anthropic_provider, openai_provider
from turnkeeper.sandbox.upstream import UpstreamLimits
from turnkeeper.testing.memory_meter import MemoryMeter
from turnkeeper.testing.scripted_model import Script, ScriptedModel

KEY = "sk-0123456789abcdef0123"
BODY: dict[str, object] = {"model": "m1", "messages": [{"role": "user", "content": "hi"}]}
FAST = UpstreamLimits(retry_backoff_ms=1, max_retry_delay_ms=5, max_response_bytes=20_000)
LIMITS = GatewayLimits(max_request_bytes=50_000, upstream=FAST)


@dataclass(slots=True)
class Rig:
    """What a test of the gateway holds in its hands."""

    model: ScriptedModel
    gateway: ModelGateway
    handle: GatewayHandle
    meter: MemoryMeter
    client: httpx.AsyncClient
    retries: list[Retry] = field(default_factory=list[Retry])

    async def ask(self, **members: object) -> httpx.Response:
        """One completion request."""
        return await self.client.post("/v1/chat/completions", json=BODY | members)


@asynccontextmanager
async def gateway_rig(
    folder: Path,
    script: Script,
    *,
    meter: MemoryMeter | None = None,
    limits: GatewayLimits = LIMITS,
    provider_for: Callable[[str], Provider] | None = None,
    params: dict[str, object] | None = None,
    aliases: tuple[str, ...] = (),
) -> AsyncGenerator[Rig]:
    """Opens everything and closes it again."""
    meter = meter or MemoryMeter()
    async with ScriptedModel(script, api_key=KEY) as model:
        make = provider_for or stub_provider
        gateway = ModelGateway(limits=limits)
        retries: list[Retry] = []

        async def on_retry(retry: Retry) -> None:
            retries.append(retry)

        spec = ModelSpec(make(model.base_url), "m1", params or {}, aliases)
        handle = await gateway.open(folder, spec, meter, on_retry=on_retry)
        try:
            async with client_of(handle) as client:
                yield Rig(model, gateway, handle, meter, client, retries)
        finally:
            await handle.close()
            await gateway.close()


def stub_provider(base_url: str) -> Provider:
    """The scripted model as a provider."""
    return openai_provider("stub", base_url, SecretStr(KEY))


def anthropic_stub(base_url: str) -> Provider:
    """The scripted model as a provider that speaks Anthropic's Messages."""
    return anthropic_provider("stub", base_url, SecretStr(KEY))


def client_of(handle: GatewayHandle) -> httpx.AsyncClient:
    """A client inside the box."""
    transport = httpx.AsyncHTTPTransport(uds=str(handle.path))
    return httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=20)


@asynccontextmanager
async def raw_provider(answer: bytes) -> AsyncGenerator[str]:
    """A provider that reads a request's head, sends these bytes and hangs up. Gives its base URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


def as_meter(meter: MemoryMeter) -> Meter:
    """The shipped fake, seen as the port: a check by the type checker."""
    return meter
