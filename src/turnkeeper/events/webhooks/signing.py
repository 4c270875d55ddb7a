"""Signatures of webhooks as Standard Webhooks define them (contract 12).

Pure. Signs `id.timestamp.body` with HMAC-SHA256, once per active secret. INVARIANT: the bytes that are signed are the
bytes that are sent.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from turnkeeper.events.webhooks.endpoints import WebhookInvalid

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 (what a secret begins with, not one)
SECRET_BYTES: Final = 32
VERSION: Final = "v1"


def render_secret(raw: bytes) -> str:
    """A secret as it is shown once: `whsec_` and base64 of its bytes."""
    return SECRET_PREFIX + base64.b64encode(raw).decode()


def sign(secrets: Sequence[str], *, webhook_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature`: one `v1,…` per secret, newest first. Raises `WebhookInvalid`."""
    content = f"{webhook_id}.{timestamp_s}.".encode() + body
    return " ".join(f"{VERSION},{_digest(secret, content)}" for secret in secrets)


def headers(
    secrets: Sequence[str], *, event_id: str, delivery_id: str, attempt: int, timestamp_s: int, body: bytes
) -> dict[str, str]:
    """The headers of one attempt. `webhook-id` is the event's id, the same on every attempt and channel."""
    return {
        "content-type": "application/json",
        "user-agent": "turnkeeper-webhooks",
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": sign(secrets, webhook_id=event_id, timestamp_s=timestamp_s, body=body),
        "webhook-attempt": str(attempt),
        "webhook-delivery": delivery_id,
    }


def _digest(secret: str, content: bytes) -> str:
    return base64.b64encode(hmac.digest(_key(secret), content, hashlib.sha256)).decode()


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise WebhookInvalid("a webhook secret is not `whsec_` and base64") from error
