"""Which requests are sent again, and when (contract 9 and 13).

Pure. A request is repeated only when it cannot have been done, or when doing it twice is doing it once. Must never
repeat without bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from turnkeeper.client.settings import SettingRefused

Method: TypeAlias = Literal["GET", "POST", "PATCH", "PUT", "DELETE"]

IN_PROGRESS: Final = "idempotency_in_progress"
_ALWAYS_REFUSED: Final = frozenset({429, 503})
_FROM_BETWEEN: Final = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Retries:
    """How patient a client is. Times are in milliseconds.

    A request is sent `max_attempts` times at most, after pauses that double from `first_backoff_ms` up to
    `max_backoff_ms`, each up to a half shorter by chance; a `Retry-After` up to `max_retry_after_ms` is kept to, a
    longer one is not waited for. Waits and streams go on while the server is away for no longer than `outage_ms`.
    """

    max_attempts: int = 5
    first_backoff_ms: int = 200
    max_backoff_ms: int = 5_000
    max_retry_after_ms: int = 60_000
    outage_ms: int = 120_000

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or min(self.first_backoff_ms, self.max_backoff_ms, self.max_retry_after_ms) < 0:
            raise SettingRefused("a bound of the retries is below its minimum")

    def pause_ms(self, failures: int, retry_after_ms: int | None, chance: float) -> int:
        """How long to wait after so many failures in a row (at least 1); `chance` is from 0 to 1."""
        backoff_ms = min(self.max_backoff_ms, self.first_backoff_ms << min(failures - 1, 30))
        shortened_ms = int(backoff_ms * (1 - chance / 2))
        return max(shortened_ms, retry_after_ms or 0)


@dataclass(frozen=True, slots=True)
class Upload:
    """A form with one file, and the fields beside it."""

    name: str
    content: bytes
    media_type: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `repeatable`: done twice it is done once, by its key or by its meaning.

    An `upload` takes the place of the body. `raw`: the answer is bytes and no document.
    """

    method: Method
    path: str
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] | None = None
    idempotency_key: str | None = None
    repeatable: bool = False
    upload: Upload | None = None
    raw: bool = False


def may_repeat_answer(call: Call, status: int, code: str | None, retry_after_ms: int | None, retries: Retries) -> bool:
    """Whether a refused request is sent again. `code` is None where no problem document came."""
    if (retry_after_ms or 0) > retries.max_retry_after_ms:
        return False
    if code == IN_PROGRESS or (code is not None and status in _ALWAYS_REFUSED):
        return True
    # Without our own words in it the answer may come from between, and the request may have been done.
    return (call.repeatable and status in _FROM_BETWEEN) or status == 429


def parse_retry_after(header: str | None) -> int | None:
    """The milliseconds of a `Retry-After` in seconds; a date is not read, backoff counts then."""
    if header is None or not (header.isascii() and header.isdecimal() and len(header) <= 9):
        return None
    return int(header) * 1_000
