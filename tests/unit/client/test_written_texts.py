"""Text put together from a stream's events (contract 11)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.client import Event, Written, WrittenTexts


def event(event_type: str, **data: Any) -> Event:
    return Event({"type": event_type, "data": {"turn_id": "trn_1", "message_id": "msg_1", **data}})


def delta(offset: int, text: str) -> Event:
    return event("message.delta", offset=offset, text=text)


@given(st.lists(st.text(max_size=4), max_size=8), st.data())
def test_pieces_and_wholes_in_their_order_are_the_text(pieces: list[str], data: st.DataObject) -> None:
    texts, so_far = WrittenTexts(), ""
    for piece in pieces:
        if data.draw(st.booleans()):
            shown = texts.take(delta(len(so_far), piece))
        else:
            whole = so_far + piece
            shown = texts.take(event("message.snapshot", offset=len(whole), text=whole))
        so_far += piece
        assert shown == Written("msg_1", so_far, completed=False)


def test_the_completed_message_is_the_authority() -> None:
    texts = WrittenTexts()
    texts.take(delta(0, "my password is"))

    assert texts.take(event("message.completed", text="[redacted]")) == Written("msg_1", "[redacted]", completed=True)


def test_a_piece_behind_a_gap_is_passed_over_until_a_whole_comes() -> None:
    texts = WrittenTexts()
    assert texts.take(delta(0, "Hel")) == Written("msg_1", "Hel", completed=False)
    assert texts.take(delta(9, "!")) == Written("msg_1", "Hel", completed=False)
    assert texts.take(event("message.snapshot", offset=5, text="Hello")) == Written("msg_1", "Hello", completed=False)


def test_other_events_are_no_text() -> None:
    texts = WrittenTexts()
    assert texts.take(Event({"type": "tool.started", "data": {"turn_id": "trn_1"}})) is None
    assert texts.take(event("reasoning.delta", offset=0, text="hm")) is None
    assert event("reasoning.delta", offset=0, text="hm").piece is not None
