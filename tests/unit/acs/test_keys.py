"""Secrets and session keys."""

import base64
import hashlib

import pytest
from tests.unit.acs.samples import KEYRING, SESSION_ID

from turnkeeper.acs import Keyring, KeyUnknown, SecretTooShort, read_secret
from turnkeeper.acs.keys import LabelDerived, check_label

SECRET = bytes(range(32))


def test_labels_and_sessions_have_keys_of_their_own() -> None:
    keys = {KEYRING.session_key(label, session).secret for label in ("label", "other") for session in ("a", "b")}
    assert len(keys) == 4
    assert {len(key) for key in keys} == {32}


def test_the_text_of_the_session_id_counts_not_its_meaning() -> None:
    upper = KEYRING.session_key("label", SESSION_ID.upper())
    assert upper.secret != KEYRING.session_key("label", SESSION_ID).secret


def test_an_unknown_label_has_no_key_and_no_fallback() -> None:
    with pytest.raises(KeyUnknown):
        KEYRING.session_key("default", SESSION_ID)


@pytest.mark.parametrize("session_id", ["s" * 64, "s" * 65, "\ud800"], ids=ascii)
def test_a_key_is_the_same_each_time_cached_or_not(session_id: str) -> None:
    assert KEYRING.session_key("label", session_id) == KEYRING.session_key("label", session_id)


def test_a_full_cache_still_gives_the_right_keys() -> None:
    small = Keyring({"label": bytes(range(32))}, cached_keys=1)
    for session in ("a", "b", "a"):
        assert small.session_key("label", session) == KEYRING.session_key("label", session)


def test_no_repr_shows_a_secret() -> None:
    key = KEYRING.session_key("label", SESSION_ID)
    assert repr(KEYRING) == "Keyring(['label', 'other'])"
    assert str(key.secret) not in repr(key)
    assert KEYRING.key_ids == {"label", "other"}


def test_a_key_file_is_read_without_one_trailing_newline() -> None:
    secret = b"s" * 31 + b"\n"
    assert read_secret(secret + b"\n") == secret
    assert read_secret(b"\r" * 32) == b"\r" * 32


@pytest.mark.parametrize("content", [b"", b"short", b"s" * 31 + b"\n"])
def test_a_short_secret_is_refused(content: bytes) -> None:
    with pytest.raises(SecretTooShort):
        read_secret(content)


def test_an_empty_secret_makes_no_keyring() -> None:
    with pytest.raises(SecretTooShort):
        Keyring({"label": b""})


@pytest.mark.parametrize(
    "label",
    [
        "s" * 8,
        "630dcd2966c43366",
        hashlib.sha512(SECRET).hexdigest()[5:20].upper(),
        base64.urlsafe_b64encode(hashlib.sha1(SECRET).digest()).decode()[:12],
        SECRET.hex()[:10],
    ],
)
def test_a_label_that_is_made_of_its_secret_is_refused(label: str) -> None:
    with pytest.raises(LabelDerived):
        check_label(label, SECRET if label != "s" * 8 else b"s" * 32)


@pytest.mark.parametrize("label", ["2026-10", "default", "platform", "agents-of-the-night-shift", "630dcd2"])
def test_a_label_that_says_nothing_of_its_secret_is_one(label: str) -> None:
    check_label(label, SECRET)
