"""Turns that are posted with a session of their own, and turns that are posted again (contract 2.3).

Values only, and what a store must give.
"""

from dataclasses import dataclass
from typing import Protocol

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.model import Budget
from turnkeeper.turns.ports import Accepted, NewSession, NewTurn


class TurnNotTerminal(TurnkeeperError):
    """The turn has not ended, so that there is nothing to do again."""

    code = "turn_not_terminal"


@dataclass(frozen=True, slots=True)
class NewRetry:
    """A turn to be done again as a new one. What is `None` is as it was the first time."""

    turn_id: str
    metadata_json: str | None
    budget: Budget | None
    idempotency_key: str | None
    fingerprint: str | None
    api_key_id: str | None = None


class TurnPosts(Protocol):
    """What the API posts beside a turn in a session that is there. A replay is answered before anything is made."""

    async def accept_alone(self, session: NewSession, new: NewTurn) -> Accepted:
        """A turn in a session of its own that takes no other one, in one transaction.

        `new.session_id` says nothing here. Raises `NotFound` for the agent, `QueueFull`, `IdempotencyKeyReused`.
        """
        ...

    async def retry_turn(self, new: NewRetry) -> Accepted:
        """A new turn with the input of one that has ended, in its session; in one of its own if that one was.

        Raises `NotFound`, `TurnNotTerminal`, `SessionClosed`, `QueueFull`, `IdempotencyKeyReused`.
        """
        ...
