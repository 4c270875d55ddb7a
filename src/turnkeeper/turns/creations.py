"""Making things at most once (contract 2 and 9): the same request with the same key shows what the first one made.

A secret is shown by the request that makes it and never by a repeat: only a hash of a key's secret is kept, and an
endpoint's is not given out twice.
"""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from turnkeeper.events.webhooks.endpoints import Endpoint, NewEndpoint
from turnkeeper.turns.access import NewKey
from turnkeeper.turns.budget_accounts import Account, NewBudget
from turnkeeper.turns.idempotency import KeyedRequest
from turnkeeper.turns.model import Agent, ApiKey, Session
from turnkeeper.turns.ports import NewAgent, NewSession

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Created(Generic[T]):
    """What a request made, or what an earlier one with its key did: then it is `replayed`, and as it is now."""

    thing: T
    replayed: bool


class Creations(Protocol):
    """What the API makes. Each method is one transaction, the key in it.

    All raise `IdempotencyKeyReused`, `IdempotencyInProgress`, and what making the thing raises.
    """

    async def agent(self, new: NewAgent, request: KeyedRequest | None) -> Created[Agent]: ...

    async def session(self, new: NewSession, request: KeyedRequest | None) -> Created[Session]:
        """Raises `SessionDeleted` where the session of the key was deleted."""
        ...

    async def budget(self, new: NewBudget, request: KeyedRequest | None) -> Created[Account]: ...

    async def api_key(self, new: NewKey, request: KeyedRequest | None, *, actor: str) -> Created[ApiKey]: ...

    async def endpoint(self, new: NewEndpoint, request: KeyedRequest | None, *, secret: str) -> Created[Endpoint]:
        """Raises `IdempotencyResourceDeleted` where the endpoint of the key was deleted."""
        ...
