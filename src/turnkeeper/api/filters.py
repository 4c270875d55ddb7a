"""What a list of sessions or turns may be narrowed by, from query values (contract 2.2 and 2.3)."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final, cast

import orjson

from turnkeeper.api.pages import Query
from turnkeeper.api.problems import RequestRefused
from turnkeeper.turns.model import Reach, StopReason, TurnStatus
from turnkeeper.turns.ports import SessionFilter, SessionView, TurnFilter

SESSION_VIEWS: Final[tuple[SessionView, ...]] = ("idle", "busy", "paused", "closing", "closed")
SESSION_FILTERS: Final = ("status", "created_after", "created_before")
TURN_FILTERS: Final = ("status", "stop_reason", "created_after", "created_before")


def session_filter(values: Query, reach: Reach) -> SessionFilter:
    """The sessions that are wanted, of those within reach. Raises `RequestRefused`."""
    status = _one_of(values, "status", SESSION_VIEWS)
    return SessionFilter(reach, cast("SessionView | None", status), *_made(values), values.metadata())


def turn_filter(values: Query, reach: Reach) -> TurnFilter:
    """The turns that are wanted, of those within reach. Raises `RequestRefused`."""
    status, reason = _one_of(values, "status", list(TurnStatus)), _one_of(values, "stop_reason", list(StopReason))
    return TurnFilter(
        reach,
        None if status is None else TurnStatus(status),
        None if reason is None else StopReason(reason),
        *_made(values),
        values.metadata(),
    )


def given(values: Query, names: Collection[str]) -> Mapping[str, str | None]:
    """The filters as they were given, for the cursor that is bound to them."""
    metadata = values.metadata()
    bound = {"metadata": orjson.dumps(metadata).decode()} if metadata else {}
    return {name: values.text(name) for name in names} | bound


def _made(values: Query) -> tuple[datetime | None, datetime | None]:
    return time_of(values, "created_after"), time_of(values, "created_before")


def _one_of(values: Query, name: str, options: Collection[str]) -> str | None:
    text = values.text(name)
    return None if text is None else values.choice(name, tuple(options), text)


def time_of(values: Query, name: str) -> datetime | None:
    """A time with its offset, in UTC. Raises `RequestRefused`."""
    text = values.text(name)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise RequestRefused(
            "invalid_field", f"{name} is not a time with its offset, such as 2026-12-01T10:00:00Z.", param=name
        )
    return at.astimezone(UTC)
