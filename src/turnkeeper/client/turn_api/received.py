"""Webhooks on the receiving side: is this request what the server sent (Standard Webhooks; contract 12)?

Pure but for the time. Must never look into a body before a signature over its very bytes has been found right.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from turnkeeper.client.errors import ClientError
from turnkeeper.client.settings import SettingRefused
from turnkeeper.client.turn_api.documents import parse_document
from turnkeeper.client.turn_api.views import Event
from turnkeeper.clock import Clock, SystemClock, epoch_ms

SECRET_PREFIX: Final = "whsec_"  # noqa: S105  what a secret begins with, not one
TOLERANCE_S: Final = 300
_VERSION: Final = "v1,"


class WebhookRejected(ClientError):
    """The request is not, or is no longer, what the server sent. Answer 4xx and do nothing."""

    code = "webhook_rejected"


def verify_webhook(
    secrets: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_s: int = TOLERANCE_S,
    clock: Clock | None = None,
) -> Event:
    """The event that a genuine request carries. Raises `WebhookRejected`.

    `body` is the raw body, `headers` whatever mapping your framework has. Give both secrets while you rotate. Events
    can come more than once: keep the `id` of those you have handled.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    webhook_id, stamp = lower.get("webhook-id", ""), lower.get("webhook-timestamp", "")
    _check_time(stamp, tolerance_s, clock or SystemClock())
    signed = f"{webhook_id}.{stamp}.".encode() + body
    keys = [_key(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    if not _is_signed(keys, signed, lower.get("webhook-signature", "")):
        raise WebhookRejected("no signature of the request is right for the secret")
    event = Event(parse_document(body))
    if event.id != webhook_id:
        raise WebhookRejected("the request's id is not its event's")
    return event


def _check_time(stamp: str, tolerance_s: int, clock: Clock) -> None:
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 12):
        raise WebhookRejected("the request has no timestamp")
    if abs(epoch_ms(clock.now()) // 1_000 - int(stamp)) > tolerance_s:
        raise WebhookRejected(f"the request's timestamp is more than {tolerance_s} s away", hint="Compare the clocks.")


def _is_signed(keys: Sequence[bytes], signed: bytes, header: str) -> bool:
    given = [part.removeprefix(_VERSION).encode() for part in header.split(" ") if part.startswith(_VERSION)]
    wanted = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)) for key in keys]
    # Every pair is compared, so that the time taken does not tell which was right.
    return sum(hmac.compare_digest(one, other) for one in given for other in wanted) > 0


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise SettingRefused("a webhook secret is not `whsec_` and base64") from error
    if not key:
        raise SettingRefused("a webhook secret is empty")
    return key
