"""Timestamps on the wire (RFC 3339 date-time, ledger section 14 and 23.24).

Answers for turning a timestamp's text into an aware time. Must never guess a zone: a naive time is refused. Pure.
"""

import re
from datetime import UTC, datetime, timedelta, timezone

from turnkeeper.errors import TurnkeeperError

_SHOWN_CHARACTERS = 64
_LEAP_SECOND = 60
_DATE_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]{1,6})[0-9]*)?(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))"
)
# What nearly every client writes, which the runtime reads in a third of the time.
_USUAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3}|\.[0-9]{6})?Z")


class TimestampMalformed(TurnkeeperError):
    """The text is not an RFC 3339 date-time with a zone."""

    code = "timestamp_malformed"


def parse_timestamp(text: str) -> datetime:
    """The time a text names, aware, in UTC, cut to microseconds.

    A fraction may have any length. A leap second counts as the second after. Raises `TimestampMalformed`.
    """
    if _USUAL.fullmatch(text) is not None:
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            # A leap second, or no day of any month: whoever reads each part knows which.
            pass
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        raise _malformed(text)
    year, month, day, hour, minute, second = (int(part) for part in found.group(1, 2, 3, 4, 5, 6))
    microsecond = int((found[7] or "").ljust(6, "0"))
    leap = second == _LEAP_SECOND
    try:
        local = datetime(
            year, month, day, hour, minute, second - leap, microsecond, timezone(_offset(found))
        ) + timedelta(seconds=leap)
        return local.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _malformed(text) from error


def _offset(found: re.Match[str]) -> timedelta:
    if found[8] is not None:
        return timedelta(0)
    hours, minutes = int(found[10]), int(found[11])
    if hours > 23 or minutes > 59:
        raise ValueError("the offset is longer than a day")
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if found[9] == "-" else offset


def _malformed(text: str) -> TimestampMalformed:
    return TimestampMalformed(f"{text[:_SHOWN_CHARACTERS]!r} is not an RFC 3339 date-time with a zone")
