"""Joins webhooks to the store, the network and the news of this process. No rule of its own."""

import asyncio
import random
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import httpx

from turnkeeper.events.webhooks.addresses import parse_networks
from turnkeeper.events.webhooks.delivery import Deliveries, DeliverySettings
from turnkeeper.events.webhooks.sender import HttpSender
from turnkeeper.store.fanout import WEBHOOK_TOPIC
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.metrics import MeasuredSender, Metrics


@asynccontextmanager
async def delivering(base: Base, store: SqlTurnStore, owner: str, metrics: Metrics) -> AsyncGenerator[None, None]:
    """Delivers until the end of the block; what is being tried then is let end."""
    chosen = base.settings.webhooks
    limits = httpx.Limits(max_connections=chosen.concurrency, max_keepalive_connections=chosen.concurrency)
    async with httpx.AsyncClient(trust_env=False, limits=limits) as client:
        networks = parse_networks(chosen.networks)
        sender = HttpSender(client, resolve, allow_http=chosen.allow_http, allowed=networks)
        with base.wakeups.watch(WEBHOOK_TOPIC) as bell:
            deliveries = Deliveries(
                owner,
                store.webhooks(),
                MeasuredSender(sender, metrics),
                bell=bell,
                clock=base.clock,
                chance=random.random,
                settings=DeliverySettings(concurrency=chosen.concurrency, poll_ms=chosen.poll_ms),
            )
            running = asyncio.create_task(deliveries.run())
            try:
                yield
            finally:
                deliveries.drain()
                await running


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host as the system finds them. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
