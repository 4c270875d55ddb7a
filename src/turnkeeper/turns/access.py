"""What an API key may do, where, how much and until when (contract 1 and 2.9).

Pure. Answers for the list of scopes and for who may hand which of them on. A secret never comes here.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.model import ApiKey, KeyLimits
from turnkeeper.turns.ports import Page, PageRequest

ALL_SCOPES: Final = "*"
SCOPES: Final = (
    "agents:read",
    "agents:write",
    "sessions:read",
    "sessions:write",
    "turns:read",
    "turns:write",
    "events:read",
    "approvals:read",
    "approvals:decide",
    "files:read",
    "files:write",
    "budgets:read",
    "budgets:write",
    "usage:read",
    "secrets:write",
    "webhooks:read",
    "webhooks:write",
    "keys:write",
    "admin",
)
MAX_KEY_NAME_CHARACTERS: Final = 200
MAX_KEY_AGENTS: Final = 100
MAX_OVERLAP_HOURS: Final = 72
DEFAULT_OVERLAP_HOURS: Final = 24
MAX_LIMIT: Final = 1_000_000
LAST_USED_STEP_MS: Final = 60_000
"""`last_used_at` is true to this: a request writes nothing where an earlier one has just done so."""


class AccessDenied(TurnkeeperError):
    """The key is good, and not for this. `code` is `scope_missing` or `agent_not_allowed`."""

    code = "scope_missing"


class RateLimited(TurnkeeperError):
    """The key has reached one of its limits; `detail` names it, with how long until another request may pass."""

    code = "rate_limited"


class SessionDeleted(TurnkeeperError):
    """The session was deleted, and what was in it."""

    code = "session_deleted"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to be made, already checked. `scopes` may be `*`: every scope there is and will be."""

    name: str
    secret_sha256: str
    project_id: str
    scopes: tuple[str, ...] = (ALL_SCOPES,)
    agent_ids: tuple[str, ...] = ()
    limits: KeyLimits = field(default_factory=KeyLimits)
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What changes of a key; `None` leaves a member as it is."""

    name: str | None = None
    scopes: tuple[str, ...] | None = None
    agent_ids: tuple[str, ...] | None = None
    limits: KeyLimits | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """Whose a thing is. `deleted_at` is when its session was deleted, with the `session_id` then."""

    project_id: str
    agent_id: str | None = None
    session_id: str | None = None
    deleted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """The key with a secret, as it is, and the things that its request names, by their ids."""

    key: ApiKey
    named: Mapping[str, "Named | None"]


class AccessStore(Protocol):
    """What the door and the key endpoints need. Every method is one transaction."""

    async def admit(self, secret_sha256: str, ids: Collection[str]) -> Admission | None:
        """The key that has this secret, revoked and expired ones too, and whose the `ids` are; `None` for no key."""
        ...

    async def knows_request(self, project_id: str, idempotency_key: str) -> bool:
        """Whether the project has used this Idempotency-Key: what comes with it again starts nothing."""
        ...

    async def used(self, key_id: str) -> None:
        """Notes that the key was used now."""
        ...

    async def make_key(self, new: NewKey, *, actor: str | None) -> ApiKey:
        """The key with its `api_key.created`; `actor` is the id of the key that asked."""
        ...

    async def key(self, key_id: str) -> ApiKey: ...
    async def keys_of(self, project_id: str, page: PageRequest) -> Page[ApiKey]: ...
    async def change_key(self, key_id: str, change: KeyChange) -> ApiKey: ...

    async def rotate_key(self, key_id: str, *, secret_sha256: str, overlap_hours: int, actor: str | None) -> ApiKey:
        """The key with another secret; the one it had works for `overlap_hours` more, any older one no more.

        Raises `NotFound` for a key that is not there or was revoked.
        """
        ...

    async def end_key(self, key_id: str, *, actor: str | None) -> ApiKey:
        """The key, unusable from now on, with its `api_key.revoked`. Raises `NotFound`."""
        ...


def check_scope(key: ApiKey, scope: str) -> None:
    """Raises `AccessDenied` (`scope_missing`) unless the key has the scope."""
    if ALL_SCOPES not in key.scopes and scope not in key.scopes:
        raise AccessDenied(
            f"this API key does not have the scope {scope}",
            detail={"scope": scope},
            hint=f"Use a key with {scope}, or give this one the scope.",
        )


def check_agent(key: ApiKey, agent_id: str) -> None:
    """Raises `AccessDenied` (`agent_not_allowed`) unless the key may work with the agent."""
    if key.agent_ids and agent_id not in key.agent_ids:
        raise AccessDenied(
            f"this API key may not work with {agent_id}",
            code="agent_not_allowed",
            detail={"agent_id": agent_id},
            hint="Use a key that names this agent, or one that names none.",
        )


def check_queued(waiting: int, limits: KeyLimits) -> None:
    """Raises `RateLimited` where as many of the key's turns wait as may."""
    _check_count("queued_turns", waiting, limits.queued_turns)


def check_concurrent(fronts: int, limits: KeyLimits) -> None:
    """Raises `RateLimited` where as many of the key's turns are at the front of their sessions as may."""
    _check_count("concurrent_turns", fronts, limits.concurrent_turns)


def check_grant(giver: ApiKey, scopes: Collection[str], agent_ids: Collection[str]) -> None:
    """Raises `AccessDenied` where a key would hand on more than it has itself."""
    for scope in SCOPES if ALL_SCOPES in scopes else scopes:
        check_scope(giver, scope)
    if giver.agent_ids and not agent_ids:
        raise AccessDenied("this API key is for some agents and cannot make one for all", code="agent_not_allowed")
    for agent_id in agent_ids:
        check_agent(giver, agent_id)


def _check_count(name: str, count: int, limit: int | None) -> None:
    if limit is not None and count >= limit:
        raise RateLimited(
            f"{count} turns of this API key are there, and its {name} are {limit}",
            detail={"limit": limit, "limit_name": name, "count": count},
            hint="Post the turn again when one of them has ended.",
        )
