"""API keys at the door: `Authorization: Bearer tk_…` (contract 1, 2.9 and 13).

Answers for who is calling, whether the key may do this, and whether what the path names is there for it: another
project's things are 404 like those that never were, and so no route has to look. The secret is never stored or
logged, only its SHA-256; looking that up is the comparison, so no timing tells anything about a secret.
"""

import contextlib
import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final

from fastapi import Depends, Request

from turnkeeper.api.answers import IDEMPOTENCY_HEADER
from turnkeeper.api.deps import ApiDeps, Deps
from turnkeeper.api.problems import RequestRefused, not_found
from turnkeeper.api.scopes import scope_of
from turnkeeper.clock import render_time
from turnkeeper.errors import TurnkeeperError
from turnkeeper.ids import is_any_id
from turnkeeper.turns.access import (
    LAST_USED_STEP_MS,
    Named,
    RateLimited,
    SessionDeleted,
    check_agent,
    check_scope,
)
from turnkeeper.turns.idempotency import parse_key
from turnkeeper.turns.model import ApiKey, CanceledBy
from turnkeeper.turns.ports import StoreUnavailable
from turnkeeper.turns.retention import IdempotencyTurnDeleted

SECRET_PREFIX: Final = "tk_"  # noqa: S105 (what a secret begins with, not one)
SECRET_BYTES: Final = 32

_SECRET = re.compile(r"tk_[A-Za-z0-9_-]{43}\Z")


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A fresh key secret, to be shown once, and what is stored of it."""

    secret: str
    sha256: str

    def __repr__(self) -> str:
        return "NewSecret(***)"


def generate_secret() -> NewSecret:
    """A fresh secret of 32 random bytes."""
    secret = SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    return NewSecret(secret, secret_sha256(secret))


def secret_sha256(secret: str) -> str:
    """The form in which a secret is stored: SHA-256 in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


async def authenticate(request: Request, deps: Deps) -> ApiKey:
    """The key that the request shows, which may do what is asked with what the path names.

    Raises `RequestRefused` (`key_invalid`, `key_expired`, `not_found`, `session_deleted`), `AccessDenied`,
    `RateLimited`.
    """
    return await admit(request, deps, secret_sha256(_shown_secret(request)))


async def admit(request: Request, deps: ApiDeps, secret: str) -> ApiKey:
    """The key whose secret has this SHA-256; raises as `authenticate` does."""
    ids = {value for name, value in request.path_params.items() if name.endswith("_id") and is_any_id(value)}
    admission = await deps.access.admit(secret, ids)
    if admission is None or admission.key.revoked_at is not None:
        raise RequestRefused("key_invalid", "This API key is not known here or was revoked.", param="Authorization")
    key, now = admission.key, deps.clock.now()
    if key.expires_at is not None and key.expires_at <= now:
        raise RequestRefused(
            "key_expired", f"This API key expired at {render_time(key.expires_at)}.", param="Authorization"
        )
    await _count(request, deps, key)
    _check_scope(request, key)
    for named_id, named in admission.named.items():
        _check_named(key, named_id, named)
        if named is not None and named.deleted_at is not None:
            raise await _deleted(request, deps, key, named)
    if key.last_used_at is None or (now - key.last_used_at) >= timedelta(milliseconds=LAST_USED_STEP_MS):
        # A note that the database has no room for must not refuse what it could still answer.
        with contextlib.suppress(StoreUnavailable):
            await deps.access.used(key.id)
    return key


async def _count(request: Request, deps: ApiDeps, key: ApiKey) -> None:
    try:
        deps.rates.take(key)
    except RateLimited:
        # What comes with a key that was used before starts nothing, and is answered before limits (contract 9).
        shown = request.headers.get(IDEMPOTENCY_HEADER)
        if shown is None or not await deps.access.knows_request(key.project_id, parse_key(shown)):
            raise


def _check_scope(request: Request, key: ApiKey) -> None:
    scope = scope_of(request.method, request.scope["route"].path)
    if scope is not None:
        check_scope(key, scope)


def _check_named(key: ApiKey, named_id: str, named: Named | None) -> None:
    if named is None or named.project_id != key.project_id:
        raise not_found(f"such thing as {named_id}")
    if named.agent_id is not None:
        check_agent(key, named.agent_id)


async def _deleted(request: Request, deps: ApiDeps, key: ApiKey, named: Named) -> TurnkeeperError:
    deleted_at = None if named.deleted_at is None else render_time(named.deleted_at)
    detail = {"session_id": named.session_id, "deleted_at": deleted_at}
    shown = request.headers.get(IDEMPOTENCY_HEADER)
    if shown is not None and await deps.access.knows_request(key.project_id, parse_key(shown)):
        return IdempotencyTurnDeleted("the turn of this Idempotency-Key was deleted", detail=detail)
    return SessionDeleted(f"{named.session_id} was deleted", detail=detail)


def _shown_secret(request: Request) -> str:
    header = request.headers.get("Authorization")
    if header is None:
        raise _without_key(request)
    scheme, _, secret = header.partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or _SECRET.match(secret) is None:
        raise RequestRefused(
            "key_invalid", "The Authorization header is not `Bearer` with a key secret.", param="Authorization"
        )
    return secret


def canceled_by(key: ApiKey, reason: str | None = None) -> CanceledBy:
    """The key as the one who asked for an end."""
    return CanceledBy(type="api_key", id=key.id, reason=reason)


def _without_key(request: Request) -> RequestRefused:
    if "stream_token" in request.query_params:
        return RequestRefused(
            "key_invalid",
            "A stream_token opens streams and nothing else.",
            param="stream_token",
            hint="Send an Authorization header.",
        )
    return RequestRefused("key_invalid", "The request has no Authorization header.", param="Authorization")


Caller = Annotated[ApiKey, Depends(authenticate)]
