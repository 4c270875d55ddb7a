"""Secrets of a project: named values that go out to named hosts and are never shown again (contract 2.13)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.creations import Created
from turnkeeper.turns.idempotency import KeyedRequest
from turnkeeper.turns.ports import Page, PageRequest

MAX_SECRETS: Final = 500
"""In one project."""
MIN_VALUE_CHARACTERS: Final = 8
"""A shorter value would be found, and masked, in what has nothing to do with it."""
MAX_VALUE_CHARACTERS: Final = 8_192
MAX_SECRET_HOSTS: Final = 20
MAX_SESSION_SECRETS: Final = 20


class SecretExists(TurnkeeperError):
    """The project has a secret of this name."""

    code = "secret_exists"


class TooManyStoredSecrets(TurnkeeperError):
    """The project has as many secrets as it may."""

    code = "secrets_full"


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret to be kept, already checked."""

    project_id: str
    name: str
    hosts: tuple[str, ...]
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret without its value."""

    id: str
    project_id: str
    name: str
    hosts: tuple[str, ...]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class OpenedSecret:
    """A value and the hosts it may go to."""

    hosts: tuple[str, ...]
    value: str = field(repr=False)


class Vault(Protocol):
    """What a worker needs."""

    async def opened(self, project_id: str, names: Collection[str]) -> Mapping[str, OpenedSecret]:
        """Those of the named secrets that there are and that can be opened."""
        ...


class SecretStore(Vault, Protocol):
    """What the API needs as well. Every method is one transaction."""

    def mark(self, value: str) -> str:
        """What stands for the value where requests are compared."""
        ...

    async def make(self, new: NewSecret, request: KeyedRequest | None) -> Created[Secret]:
        """Raises `SecretExists`, `TooManyStoredSecrets`, and what an Idempotency-Key raises."""
        ...

    async def secret(self, secret_id: str) -> Secret:
        """Raises `NotFound`."""
        ...

    async def secrets_of(self, project_id: str, page: PageRequest) -> Page[Secret]: ...

    async def known(self, project_id: str, names: Collection[str]) -> frozenset[str]:
        """Those of the names that the project has a secret of."""
        ...

    async def delete(self, secret_id: str) -> None:
        """The value is gone; sessions that name it get none from now on. Raises `NotFound`."""
        ...
