"""Stream tokens: signed, bound to a session, a key and a time."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.events.cursors import render_cursor
from turnkeeper.events.stream_tokens import (
    MAX_TOKEN_CHARACTERS,
    StreamToken,
    StreamTokenInvalid,
    render_stream_token,
    verify_stream_token,
)

SECRET = b"s" * 32
NOW = datetime(2026, 12, 1, 10, tzinfo=UTC)
TOKEN = StreamToken("ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB", "key_01KBC3Y5M8Q2V7R9T4W6X1Z0AC", NOW + timedelta(seconds=5))


def test_a_token_says_what_it_was_made_of_until_its_time_is_over() -> None:
    text = render_stream_token(TOKEN, SECRET)
    assert len(text) <= MAX_TOKEN_CHARACTERS
    assert verify_stream_token(text, SECRET, NOW) == TOKEN
    with pytest.raises(StreamTokenInvalid, match="expired"):
        verify_stream_token(text, SECRET, TOKEN.expires_at)


@given(st.data())
def test_a_token_with_one_other_character_is_none(data: st.DataObject) -> None:
    text = render_stream_token(TOKEN, SECRET)
    # The last character has two bits that stand for nothing.
    at = data.draw(st.integers(0, len(text) - 2))
    other = data.draw(st.sampled_from("ABCxyz019-_.=/ ").filter(lambda character: character != text[at]))
    with pytest.raises(StreamTokenInvalid):
        verify_stream_token(text[:at] + other + text[at + 1 :], SECRET, NOW)


@given(st.text(max_size=300))
def test_no_text_that_we_did_not_sign_is_a_token(text: str) -> None:
    with pytest.raises(StreamTokenInvalid):
        verify_stream_token(text, SECRET, NOW)


def test_neither_another_secret_nor_a_list_cursor_makes_a_token() -> None:
    with pytest.raises(StreamTokenInvalid):
        verify_stream_token(render_stream_token(TOKEN, b"t" * 32), SECRET, NOW)
    cursor = render_cursor(f"{TOKEN.session_id}.{TOKEN.key_id}.99999999999999", {}, SECRET)
    with pytest.raises(StreamTokenInvalid):
        verify_stream_token(f"stk_{cursor}", SECRET, NOW)
