"""Time and replay (ACS 10.3, ledger section 14).

Answers for the timestamp window and for a memory of used ids. Whoever stores that memory durably keeps the same
rules: an id is remembered for two windows, a full memory refuses new work and never forgets an id early. Pure.
"""

from collections import deque
from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import Final

from turnkeeper.acs.errors import AcsError, AcsErrorCode

DEFAULT_SKEW_WINDOW_MS: Final = 300_000
DEFAULT_CAPACITY: Final = 100_000
# An id accepted at the future edge of the window stays fresh for two windows.
RETAINED_WINDOWS: Final = 2

_MILLISECOND = timedelta(milliseconds=1)


class TimestampOutOfWindow(AcsError):
    """The request's time is further from ours than the negotiated window (-32006)."""

    def __init__(self, skew_window_ms: int) -> None:
        super().__init__(
            AcsErrorCode.TIMESTAMP_OUT_OF_WINDOW,
            "timestamp_out_of_window",
            f"the timestamp is more than {skew_window_ms} ms away from the Guardian's clock",
            {"skew_window_ms": skew_window_ms},
        )


class ReplayDetected(AcsError):
    """A request_id or nonce was used before in this session (-32005). `member` names which."""

    def __init__(self, member: str) -> None:
        super().__init__(AcsErrorCode.REPLAY_DETECTED, "replay_detected", f"{member} was already used in this session")
        self.member = member


class ReplayMemoryFull(AcsError):
    """The memory is full: new requests are refused, old ones are still recognized."""

    def __init__(self) -> None:
        super().__init__(
            AcsErrorCode.SESSION_REFUSED, "store_full", "no further request can be remembered at the moment"
        )


def check_window(timestamp: datetime, now: datetime, skew_window_ms: int) -> None:
    """Returns where the two times differ by the window or less. Raises `TimestampOutOfWindow`."""
    if abs(timestamp - now) > skew_window_ms * _MILLISECOND:
        raise TimestampOutOfWindow(skew_window_ms)


class ReplayWindow:
    """Used request_ids and nonces, per session, for two skew windows, bounded."""

    def __init__(self, *, skew_window_ms: int = DEFAULT_SKEW_WINDOW_MS, capacity: int = DEFAULT_CAPACITY) -> None:
        self._retention_ms = RETAINED_WINDOWS * skew_window_ms
        self._capacity = capacity
        self._used: set[Hashable] = set()
        self._oldest: deque[tuple[int, tuple[Hashable, ...]]] = deque()

    def __len__(self) -> int:
        return len(self._oldest)

    def reserve(self, session_id: str, request_id: str, nonce: str | None, now_ms: int) -> None:
        """Remembers a request once it is fresh and authenticated; first request_id is compared, then nonce.

        Raises `ReplayDetected`, `ReplayMemoryFull`. `now_ms` never goes back.
        """
        self._forget_until(now_ms - self._retention_ms)
        identity = ("request_id", session_id, request_id)
        if identity in self._used:
            raise ReplayDetected("request_id")
        once = ("nonce", session_id, nonce)
        if nonce is not None and once in self._used:
            raise ReplayDetected("nonce")
        if len(self._oldest) >= self._capacity:
            raise ReplayMemoryFull
        keys = (identity,) if nonce is None else (identity, once)
        self._used.update(keys)
        self._oldest.append((now_ms, keys))

    def _forget_until(self, limit_ms: int) -> None:
        while self._oldest and self._oldest[0][0] < limit_ms:
            _, keys = self._oldest.popleft()
            self._used.difference_update(keys)
