"""The types that users of the client see. The checker reads this file; running it shows that the names are there."""

from datetime import datetime
from typing import Any, assert_type

from turnkeeper.client import (
    Approval,
    AsyncEventStream,
    AsyncTurn,
    AsyncTurnkeeper,
    Event,
    EventStream,
    Turn,
    Turnkeeper,
    Usage,
)


def blocking(turnkeeper: Turnkeeper) -> None:
    """What a blocking app meets."""
    session = turnkeeper.sessions.create("agt_1")
    turn = session.post_turn("hi")
    assert_type(turn, Turn)
    assert_type(turn.wait(1_000), Turn)
    assert_type(turn.stream(), EventStream)
    assert_type(turn.status, str)
    assert_type(turn.stop_reason, str | None)
    assert_type(turn.created_at, datetime)
    assert_type(turn.usage, Usage | None)
    assert_type(turn.result, Any)
    for event in turn.stream():
        assert_type(event, Event)
    for approval in turnkeeper.approvals.list():
        assert_type(turnkeeper.approvals.approve(approval), Approval)


async def awaiting(turnkeeper: AsyncTurnkeeper) -> None:
    """What an awaiting app meets."""
    session = await turnkeeper.sessions.create("agt_1")
    turn = await session.post_turn("hi")
    assert_type(await turn.wait(), AsyncTurn)
    assert_type(turn.stream(), AsyncEventStream)
    async for event in session.stream(after=0):
        assert_type(event.sequence, int | None)


def test_the_names_that_users_see_are_there() -> None:
    """What they are is the checker's business."""
    assert blocking.__annotations__["turnkeeper"] is Turnkeeper
    assert awaiting.__annotations__["turnkeeper"] is AsyncTurnkeeper
