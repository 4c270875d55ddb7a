"""Server-sent events come out the same however the bytes were cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.sandbox.sse import EventTooLarge, SseDecoder, SseEvent, render_event

STREAM = b'event: a\ndata: {"x": 1}\n\n: comment\r\n\r\ndata:one\rdata: two\r\revent: b\r\n\r\nid: 7\ndata\n\n'
EVENTS = [SseEvent("a", b'{"x": 1}'), SseEvent(None, b"one\ntwo"), SseEvent(None, b"")]


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=8))
def test_the_cuts_between_chunks_do_not_matter(cuts: list[int]) -> None:
    decoder, events = SseDecoder(1_000), list[SseEvent]()
    edges = [0, *sorted(cuts), len(STREAM)]

    for start, end in pairwise(edges):
        events += decoder.feed(STREAM[start:end])

    assert events == EVENTS


@given(st.text("abc ").map(str.encode), st.none() | st.text("xyz", min_size=1))
def test_what_is_rendered_is_read_back(data: bytes, name: str | None) -> None:
    assert SseDecoder(1_000).feed(render_event(name, data)) == [SseEvent(name, data)]


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 40 + b"\n", b"x" * 40])
def test_an_event_that_does_not_end_is_not_held(piece: bytes) -> None:
    decoder = SseDecoder(100)
    decoder.feed(piece)
    decoder.feed(piece)

    with pytest.raises(EventTooLarge):
        decoder.feed(piece)
