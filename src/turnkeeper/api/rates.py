"""How many requests a key may make (contract 2.9): a bucket per key that fills evenly over a minute.

Counts in this process alone: behind several API processes a key has its rate in each.
"""

import math
from dataclasses import dataclass
from typing import Final

from turnkeeper.clock import Clock
from turnkeeper.turns.access import RateLimited
from turnkeeper.turns.model import ApiKey

MINUTE_MS: Final = 60_000
MAX_BUCKETS: Final = 10_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at_ms: int


class RequestRates:
    """The buckets of one application, in one event loop."""

    def __init__(self, clock: Clock, *, max_buckets: int = MAX_BUCKETS) -> None:
        self._clock = clock
        self._max_buckets = max_buckets
        self._buckets: dict[str, _Bucket] = {}

    def take(self, key: ApiKey) -> None:
        """Counts one request. Raises `RateLimited`, and then it was not counted."""
        limit = key.limits.requests_per_minute
        if limit is None:
            return
        bucket = self._filled(key.id, limit)
        if bucket.left < 1:
            wait_ms = math.ceil((1 - bucket.left) * MINUTE_MS / limit)
            raise RateLimited(
                f"this API key may make {limit} requests a minute",
                detail={"limit": limit, "limit_name": "requests_per_minute", "retry_after_ms": wait_ms},
            )
        bucket.left -= 1

    def _filled(self, key_id: str, limit: int) -> _Bucket:
        now_ms = self._clock.monotonic_ms()
        bucket = self._buckets.pop(key_id, None) or _Bucket(limit, now_ms)
        bucket.left = min(limit, bucket.left + (now_ms - bucket.at_ms) * limit / MINUTE_MS)
        bucket.at_ms = now_ms
        # The one that was used last goes last, so what is dropped for room is the one used longest ago.
        while len(self._buckets) >= self._max_buckets:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[key_id] = bucket
        return bucket
