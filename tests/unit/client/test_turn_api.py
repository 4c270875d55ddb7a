"""The pure parts of the turn API's client: views, frames, places in a stream, retries, signatures."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook
from tests.unit.client.turn_api_half import AWAITING, blocking, target

from turnkeeper.client import AnswerUnreadable, Event, Retries, SettingRefused, StreamBroken, WebhookRejected
from turnkeeper.client import verify_webhook as verify
from turnkeeper.client.turn_api.bodies import path_of
from turnkeeper.client.turn_api.connection import check_base_url
from turnkeeper.client.turn_api.following import Closing, Follower
from turnkeeper.client.turn_api.frames import Frame, FrameReader
from turnkeeper.client.turn_api.retries import Call, may_repeat_answer
from turnkeeper.client.turn_api.views import TurnView
from turnkeeper.testing.fake_clock import FakeClock

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
NOW = datetime(2026, 12, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize("name", AWAITING)
def test_the_blocking_half_is_what_the_awaiting_one_makes(name: str) -> None:
    """Where this fails, run `python tests/unit/client/turn_api_half.py`."""
    assert target(name).read_text() == blocking(name)


def test_a_view_keeps_members_that_it_does_not_know() -> None:
    turn = TurnView({"id": "trn_1", "status": "completed", "brand_new": [1], "output": {"text": "hi", "more": 2}})
    assert turn.members["brand_new"] == [1]
    assert turn.output is not None
    assert turn.output.members["more"] == 2
    assert (turn.ended, turn.text, turn.pause) == (True, "hi", None)


@pytest.mark.parametrize("value", [None, 3, True, ["x"]])
def test_a_member_of_another_kind_is_said_when_it_is_read(value: Any) -> None:
    with pytest.raises(AnswerUnreadable, match="'id'"):
        _ = TurnView({"id": value}).id


def test_true_is_no_number_and_a_time_needs_its_offset() -> None:
    with pytest.raises(AnswerUnreadable):
        _ = TurnView({"attempt": True}).attempt
    with pytest.raises(AnswerUnreadable):
        _ = TurnView({"created_at": "2026-12-01T10:00:00"}).created_at
    assert TurnView({"created_at": "2026-12-01T10:00:00.123Z"}).created_at.microsecond == 123_000


def test_a_view_cannot_be_changed() -> None:
    turn = TurnView({"id": "trn_1"})
    with pytest.raises(AttributeError):
        turn.members = {}
    with pytest.raises(AttributeError):
        turn.status = "completed"  # pyright: ignore[reportAttributeAccessIssue]


def rendered(frames: list[Frame], end: str) -> bytes:
    """The frames on the wire, with a comment before each."""
    text = ""
    for frame in frames:
        text += f":hello{end}event: {frame.event}{end}"
        text += "".join(f"data: {line}{end}" for line in frame.data.split("\n"))
        text += (f"id: {frame.id}{end}" if frame.id is not None else "") + end
    return text.encode()


WORDS = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1, max_size=8)
FRAMES = st.lists(st.builds(Frame, event=WORDS, data=WORDS, id=st.none() | WORDS), max_size=4)


@given(FRAMES, st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_frames_are_the_same_wherever_the_bytes_are_cut(frames: list[Frame], end: str, sizes: list[int]) -> None:
    content = rendered(frames, end) + b":the end\n"
    reader, found, at = FrameReader(), list[Frame](), 0
    for number in range(len(content)):
        size = sizes[number % len(sizes)]
        found.extend(reader.feed(content[at : at + size]))
        at += size
    assert found == frames


def test_half_a_frame_is_none_and_one_without_end_is_refused() -> None:
    reader = FrameReader(max_frame_bytes=100)
    assert list(reader.feed(b"event: turn.completed\ndata: {}\n")) == []
    with pytest.raises(AnswerUnreadable):
        list(reader.feed(b"data: " + b"x" * 200))


def frame(sequence: int | None, event_type: str = "turn.started") -> Frame:
    """An event on the wire."""
    return Frame(event_type, json.dumps({"type": event_type, "sequence": sequence}), None)


@given(st.lists(st.integers(1, 30)), st.integers(0, 20))
def test_a_follower_hands_over_each_event_once_and_in_order(sequences: list[int], after: int) -> None:
    follower, seen = Follower(after, gapless=False), list[int]()
    for sequence in sequences:
        if isinstance(taken := follower.take(frame(sequence)), Event):
            seen.append(taken.sequence or 0)
    assert seen == sorted(set(seen))
    assert all(sequence > after for sequence in seen)
    assert follower.after == max([after, *seen])


def test_a_hole_is_found_where_there_must_be_none() -> None:
    follower = Follower(3, gapless=True)
    assert follower.take(frame(3)) is None
    with pytest.raises(StreamBroken, match="event 4 is missing"):
        follower.take(frame(5))
    assert follower.after == 3


def test_what_is_not_kept_and_what_is_not_known_is_passed_on() -> None:
    follower = Follower(3, gapless=True)
    delta = follower.take(frame(None, "message.delta"))
    assert isinstance(delta, Event)
    assert follower.after == 3
    new = follower.take(frame(4, "comet.sighted"))
    assert isinstance(new, Event)
    assert (new.type, new.ends_turn) == ("comet.sighted", False)
    assert follower.take(Frame("stream.weather", '{"rain": true}', None)) is None


def test_a_filtered_stream_goes_on_where_the_server_stopped_looking() -> None:
    closing = Frame("stream.closing", '{"reason": "max_age", "retry_ms": 5, "after": 9}', None)
    filtered, whole = Follower(3, gapless=False), Follower(3, gapless=True)
    assert filtered.take(closing) == whole.take(closing) == Closing("max_age", 5)
    assert (filtered.after, whole.after) == (9, 3)


def test_a_reader_from_the_beginning_is_let_in_at_the_oldest_event_that_is_kept() -> None:
    follower = Follower(0, gapless=True)
    follower.take(Frame("stream.ready", '{"after": 0, "oldest_sequence": 7}', None))
    assert isinstance(follower.take(frame(7)), Event)


@given(st.integers(1, 100), st.floats(0, 1), st.none() | st.integers(0, 60_000))
def test_pauses_stay_within_their_bounds(failures: int, chance: float, after_ms: int | None) -> None:
    retries = Retries()
    pause_ms = retries.pause_ms(failures, after_ms, chance)
    assert (after_ms or 0) <= pause_ms <= max(retries.max_backoff_ms, after_ms or 0)


@pytest.mark.parametrize(
    ("status", "code", "repeatable", "wanted"),
    [
        (503, "draining", False, True),
        (503, None, False, False),
        (503, None, True, True),
        (502, None, False, False),
        (502, None, True, True),
        (429, None, False, True),
        (409, "idempotency_in_progress", True, True),
        (409, "session_busy", True, False),
        (500, "internal_error", True, False),
        (400, "invalid_field", True, False),
    ],
)
def test_only_what_cannot_do_harm_is_repeated(status: int, code: str | None, repeatable: bool, wanted: bool) -> None:
    call = Call("POST", "/v1/agents", repeatable=repeatable)
    assert may_repeat_answer(call, status, code, None, Retries()) is wanted


def test_an_id_cannot_lead_to_another_path() -> None:
    assert path_of("turns", "a/../b?c") == "/v1/turns/a%2F..%2Fb%3Fc"
    for part in ("", ".", ".."):
        with pytest.raises(SettingRefused):
            path_of("turns", part)


def test_an_address_is_a_server() -> None:
    assert check_base_url("http://127.0.0.1:8080/v1/") == "http://127.0.0.1:8080"
    for wrong in ("127.0.0.1:8080", "ftp://host", "http://", "http://host?x=1"):
        with pytest.raises(SettingRefused):
            check_base_url(wrong)


def signed(body: bytes, *, webhook_id: str = "evt_1", secret: str = SECRET) -> dict[str, str]:
    """Headers as the reference library of Standard Webhooks signs them."""
    signature = Webhook(secret).sign(webhook_id, NOW, body.decode())
    stamp = str(int(NOW.timestamp()))
    return {"Webhook-Id": webhook_id, "Webhook-Timestamp": stamp, "Webhook-Signature": signature}


BODY = b'{"id": "evt_1", "type": "turn.completed", "sequence": 4}'


def test_a_genuine_webhook_is_its_event() -> None:
    event = verify(SECRET, signed(BODY), BODY, clock=FakeClock(NOW))
    assert (event.id, event.ends_turn, event.sequence) == ("evt_1", True, 4)
    other = "whsec_" + base64.b64encode(b"o" * 32).decode()
    assert verify([other, SECRET], signed(BODY), BODY, clock=FakeClock(NOW)) == event


@given(st.integers(0, len(BODY) - 1), st.integers(0, 255))
def test_a_webhook_with_one_other_byte_is_rejected(at: int, byte: int) -> None:
    changed = BODY[:at] + bytes([byte]) + BODY[at + 1 :]
    if changed != BODY:
        with pytest.raises(WebhookRejected):
            verify(SECRET, signed(BODY), changed, clock=FakeClock(NOW))


def test_webhooks_of_another_time_id_or_secret_are_rejected() -> None:
    other = "whsec_" + base64.b64encode(b"o" * 32).decode()
    wrong = [
        signed(BODY) | {"Webhook-Timestamp": str(int(NOW.timestamp()) + 301)},
        signed(BODY) | {"Webhook-Timestamp": "now"},
        signed(BODY, webhook_id="evt_2"),
        signed(BODY, secret=other),
        signed(BODY) | {"Webhook-Signature": ""},
        {},
    ]
    for headers in wrong:
        with pytest.raises(WebhookRejected):
            verify(SECRET, headers, BODY, clock=FakeClock(NOW))


def test_an_empty_secret_verifies_nothing() -> None:
    for secret in ("whsec_", "", "whsec_*"):
        with pytest.raises(SettingRefused):
            verify(secret, signed(BODY), BODY, clock=FakeClock(NOW))
