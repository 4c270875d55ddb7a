import base64
import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from turnkeeper.events.webhooks.endpoints import WebhookInvalid
from turnkeeper.events.webhooks.signing import headers, render_secret, sign

EVENT, DELIVERY = (f"{prefix}_01KBC3Y5M8Q2V7R9T4W6X1Z0AB" for prefix in ("evt", "whd"))
NEW, OLD = render_secret(b"n" * 32), render_secret(b"o" * 32)


def now_s() -> int:
    # The library compares with its own clock and takes no other.
    return int(datetime.datetime.now(tz=datetime.UTC).timestamp())


def sent(body: bytes, *secrets: str) -> dict[str, str]:
    return headers(secrets, event_id=EVENT, delivery_id=DELIVERY, attempt=2, timestamp_s=now_s(), body=body)


@pytest.mark.parametrize("secret", [NEW, OLD])
def test_during_a_rotation_receivers_with_either_secret_accept_the_signature(secret: str) -> None:
    body = b'{"type":"turn.completed","data":{"a":1.0}}'
    assert Webhook(secret).verify(body, sent(body, NEW, OLD)) == json.loads(body)


def test_a_receiver_with_a_secret_that_has_ended_refuses() -> None:
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(b"{}", sent(b"{}", NEW))


@given(body=st.binary(min_size=1, max_size=200), at=st.integers(min_value=0), bit=st.integers(0, 7))
def test_one_changed_bit_of_the_body_breaks_the_signature(body: bytes, at: int, bit: int) -> None:
    changed = bytearray(body)
    changed[at % len(body)] ^= 1 << bit
    signed = sign([NEW], webhook_id=EVENT, timestamp_s=1, body=body)
    assert sign([NEW], webhook_id=EVENT, timestamp_s=1, body=bytes(changed)) != signed


def test_the_headers_name_event_attempt_and_delivery() -> None:
    given_headers = sent(b"{}", NEW)
    assert given_headers["webhook-id"] == EVENT
    assert given_headers["webhook-attempt"] == "2"
    assert given_headers["webhook-delivery"] == DELIVERY


def test_a_secret_is_its_prefix_and_base64_of_32_bytes() -> None:
    assert base64.b64decode(NEW.removeprefix("whsec_")) == b"n" * 32


def test_a_secret_that_is_no_base64_is_refused_and_not_shown() -> None:
    with pytest.raises(WebhookInvalid) as refused:
        sign(["whsec_***"], webhook_id=EVENT, timestamp_s=1, body=b"")
    assert "***" not in refused.value.message
