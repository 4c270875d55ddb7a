"""The loop that delivers goes on whatever one round of it meets."""

import asyncio

from turnkeeper.clock import SystemClock
from turnkeeper.events.webhooks.delivery import Deliveries, DeliverySettings


class BrokenStore:
    """A store in which something nobody thought of happens on every claim."""

    def __init__(self) -> None:
        self.claims = 0
        self.again = asyncio.Event()

    async def claim_deliveries(self, owner: str, *, limit: int, lease_ms: int) -> tuple[()]:
        self.claims += 1
        if self.claims == 3:
            self.again.set()
        raise RuntimeError(f"{owner} {limit} {lease_ms}")


class NoBell:
    """Rings at once, so that every round follows the one before."""

    async def wait(self, *, timeout_ms: int) -> bool:
        await asyncio.sleep(0)
        return timeout_ms > 0


def test_a_claim_that_fails_in_an_unknown_way_does_not_end_all_deliveries() -> None:
    async def scenario() -> None:
        store = BrokenStore()
        deliveries = Deliveries(
            "one",
            store,  # pyright: ignore[reportArgumentType]  only the claim is reached
            None,  # pyright: ignore[reportArgumentType]  nothing is ever sent
            bell=NoBell(),
            clock=SystemClock(),
            chance=lambda: 0.5,
            settings=DeliverySettings(poll_ms=1),
        )
        running = asyncio.create_task(deliveries.run())
        async with asyncio.timeout(10):
            await store.again.wait()
            deliveries.drain()
            await running

    asyncio.run(scenario())
