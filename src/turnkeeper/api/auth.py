"""API keys at the door: `Authorization: Bearer tk_…` (contract 1 and 2.9).

Answers for who is calling. The secret is never stored or logged, only its SHA-256; looking that up is the comparison,
so no timing tells anything about a secret.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request

from turnkeeper.api.deps import Deps
from turnkeeper.api.problems import RequestRefused
from turnkeeper.turns.model import ApiKey, CanceledBy

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
    """The key that the request shows. Raises `RequestRefused` (`key_invalid`)."""
    header = request.headers.get("Authorization")
    if header is None:
        raise _without_key(request)
    scheme, _, secret = header.partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or _SECRET.match(secret) is None:
        raise RequestRefused(
            "key_invalid", "The Authorization header is not `Bearer` with a key secret.", param="Authorization"
        )
    key = await deps.store.key_by_secret(secret_sha256(secret))
    if key is None or key.revoked_at is not None:
        raise RequestRefused("key_invalid", "This API key is not known here or was revoked.", param="Authorization")
    return key


def canceled_by(key: ApiKey, reason: str | None = None) -> CanceledBy:
    """The key as the one who asked for an end."""
    return CanceledBy(type="api_key", id=key.id, reason=reason)


def _without_key(request: Request) -> RequestRefused:
    if "stream_token" in request.query_params:
        return RequestRefused(
            "not_supported_yet",
            "stream_token is not supported yet.",
            param="stream_token",
            hint="Open the stream with an Authorization header.",
        )
    return RequestRefused("key_invalid", "The request has no Authorization header.", param="Authorization")


Caller = Annotated[ApiKey, Depends(authenticate)]
