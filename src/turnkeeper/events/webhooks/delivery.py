"""The loop that delivers: claims what is due, signs it, posts it, writes down what came of it (contract 12).

Answers for at least one delivery of each event that an endpoint wants: what a stopped or killed process had claimed is
claimed again when its lease is over. Must never let one endpoint hold another, and catches whatever a delivery raises:
it is one of the four places that do.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from turnkeeper.clock import Clock
from turnkeeper.errors import TurnkeeperError
from turnkeeper.events.webhooks import signing
from turnkeeper.events.webhooks.endpoints import Attempt, Claimed
from turnkeeper.events.webhooks.ports import Answer, Sender, WebhookStore
from turnkeeper.events.webhooks.schedule import judge, parse_retry_after

_log = structlog.get_logger(__name__)


class Bell(Protocol):
    """Rings when deliveries were written."""

    async def wait(self, *, timeout_ms: int) -> bool:
        """Whether it rang within the time."""
        ...


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """`concurrency` is over all endpoints; the lease must be longer than a try may take."""

    concurrency: int = 64
    lease_ms: int = 30_000
    poll_ms: int = 1_000


class Deliveries:
    """One process's share of the work; any number of processes may share it."""

    def __init__(
        self,
        owner: str,
        store: WebhookStore,
        sender: Sender,
        *,
        bell: Bell,
        clock: Clock,
        chance: Callable[[], float],
        settings: DeliverySettings | None = None,
    ) -> None:
        self._owner = owner
        self._store = store
        self._sender = sender
        self._bell = bell
        self._clock = clock
        self._chance = chance
        self._settings = settings or DeliverySettings()
        self._running: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Claims nothing more; `run` returns when what is being tried has ended."""
        self._draining.set()

    async def run(self) -> None:
        """Delivers until it is drained."""
        while not self._draining.is_set():
            claimed = await self._claim()
            for one in claimed:
                task = asyncio.create_task(self._deliver(one))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            if not claimed:
                await self._rest()
        if self._running:
            await asyncio.wait(self._running)

    async def _claim(self) -> tuple[Claimed, ...]:
        room = self._settings.concurrency - len(self._running)
        if room <= 0:
            return ()
        try:
            return await self._store.claim_deliveries(self._owner, limit=room, lease_ms=self._settings.lease_ms)
        except TurnkeeperError as error:
            _log.warning("webhooks_not_claimed", problem=error.message)
        except Exception:  # noqa: BLE001  one round of deliveries; nothing was claimed, and the next round comes
            _log.exception("webhooks_not_claimed")
        return ()

    async def _rest(self) -> None:
        rung = asyncio.create_task(self._bell.wait(timeout_ms=self._settings.poll_ms))
        drained = asyncio.create_task(self._draining.wait())
        # A try that has ended makes room, and may have freed the next delivery of its session.
        await asyncio.wait({rung, drained, *self._running}, return_when=asyncio.FIRST_COMPLETED)
        rung.cancel()
        drained.cancel()
        await asyncio.wait({rung, drained})

    async def _deliver(self, claimed: Claimed) -> None:
        try:
            await self._try(claimed)
        except TurnkeeperError as error:
            delivery = claimed.delivery
            _log.warning(
                "webhook_failed", delivery_id=delivery.id, endpoint_id=delivery.endpoint_id, problem=error.message
            )
        except Exception:  # noqa: BLE001  one webhook delivery; its lease ends and it is tried again
            _log.exception("webhook_failed", delivery_id=claimed.delivery.id, endpoint_id=claimed.endpoint.id)

    async def _try(self, claimed: Claimed) -> None:
        at = self._clock.now()
        since_ms = self._clock.monotonic_ms()
        delivery = claimed.delivery
        headers = signing.headers(
            claimed.secrets,
            event_id=delivery.event_id,
            delivery_id=delivery.id,
            attempt=delivery.attempts,
            timestamp_s=int(at.timestamp()),
            body=claimed.body,
        )
        answer = await self._sender.post(claimed.endpoint.url, headers, claimed.body)
        attempt = Attempt(
            number=delivery.attempts,
            at=at,
            duration_ms=self._clock.monotonic_ms() - since_ms,
            status=answer.status,
            error=answer.error,
            response_head=answer.head,
        )
        await self._record(claimed, attempt, answer)

    async def _record(self, claimed: Claimed, attempt: Attempt, answer: Answer) -> None:
        retry_after_ms = parse_retry_after(answer.retry_after, self._clock.now())
        outcome = judge(answer.status, claimed.tries, retry_after_ms=retry_after_ms, chance=self._chance())
        if not await self._store.record_attempt(claimed, attempt, outcome):
            _log.info("webhook_no_longer_ours", delivery_id=claimed.delivery.id)
