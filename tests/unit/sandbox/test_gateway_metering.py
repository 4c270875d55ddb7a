"""What a provider says it consumed, and what is made of it, per protocol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.sandbox.metering import CallUsage, estimated_usage
from turnkeeper.sandbox.protocols.anthropic import message_usage
from turnkeeper.sandbox.protocols.chat_completions import chat_usage
from turnkeeper.sandbox.protocols.responses import response_usage
from turnkeeper.sandbox.protocols.wire import IMAGE_TOKENS, estimate_tokens
from turnkeeper.sandbox.providers import BYTES_PER_TOKEN, size_bytes_of, tokens_in_bytes

NAMES = [
    "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details",
    "input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details", "cached_tokens",
    "reasoning_tokens", "cache_write_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
]  # fmt: skip
anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())
counts = st.one_of(st.integers(min_value=-5, max_value=10_000), anything)
details = st.dictionaries(st.sampled_from(NAMES), counts)
usages = st.one_of(anything, st.dictionaries(st.sampled_from(NAMES), counts | details))


def estimated(messages: object, **beside: object) -> int:
    members = {"messages": messages, **beside}
    return estimate_tokens(members, conversation=("messages",), beside=tuple(beside))


tokens = st.integers(min_value=0, max_value=10**12)


@given(usages)
def test_whatever_a_provider_says_the_invariants_of_usage_hold(reported: object) -> None:
    for usage in filter(None, (chat_usage(reported), response_usage(reported), message_usage(reported))):
        assert 0 <= usage.cached_input_tokens + usage.cache_write_tokens <= usage.input_tokens
        assert 0 <= usage.reasoning_tokens <= usage.output_tokens
        assert not usage.estimated


@given(fresh=tokens, read=tokens, written=tokens, generated=tokens)
def test_anthropics_input_is_the_sum_of_the_three(fresh: int, read: int, written: int, generated: int) -> None:
    usage = message_usage(
        {
            "input_tokens": fresh,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": generated,
        }
    )

    assert usage == CallUsage(fresh + read + written, read, written, generated, 0)


@given(sent=tokens, generated=tokens)
def test_openais_input_holds_what_was_cached_and_its_output_what_was_reasoned(sent: int, generated: int) -> None:
    cached, reasoned = sent // 2, generated // 3
    chat = {
        "prompt_tokens": sent,
        "completion_tokens": generated,
        "total_tokens": sent + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoned},
    }
    responses = {
        "input_tokens": sent,
        "output_tokens": generated,
        "total_tokens": sent + generated,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens_details": {"reasoning_tokens": reasoned},
    }

    assert chat_usage(chat) == response_usage(responses) == CallUsage(sent, cached, 0, generated, reasoned)


@given(sent=tokens, said=tokens, thought=tokens)
def test_what_only_a_total_holds_was_generated(sent: int, said: int, thought: int) -> None:
    usage = chat_usage({"prompt_tokens": sent, "completion_tokens": said, "total_tokens": sent + said + thought})

    assert usage == CallUsage(sent, output_tokens=said + thought)


@pytest.mark.parametrize("reported", [None, {}, {"prompt_tokens": 1}, {"prompt_tokens": -1, "completion_tokens": 2}])
def test_a_missing_or_impossible_count_is_none(reported: object) -> None:
    assert chat_usage(reported) is response_usage(reported) is message_usage(reported) is None


def test_an_estimate_says_that_it_is_one() -> None:
    assert estimated_usage(input_tokens=7, output_bytes=31) == CallUsage(7, output_tokens=11, estimated=True)


@given(st.text())
def test_the_input_estimate_counts_every_byte(text: str) -> None:
    estimate = estimated([{"role": "user", "content": text}])

    assert estimate * BYTES_PER_TOKEN >= len(text.encode(errors="replace"))


def test_an_image_counts_by_the_piece_however_it_is_written() -> None:
    data = "A" * 900_000
    blocks = (
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
    )

    for block in blocks:
        assert IMAGE_TOKENS < estimated([block]) < IMAGE_TOKENS + 100


def test_text_that_looks_like_an_image_counts_as_text() -> None:
    text = "data:image/png;base64," + "A" * 900_000

    assert estimated([{"role": "user", "content": text}]) > 300_000
    assert estimated([{"type": "text", "text": text}]) > 300_000
    assert estimated([], tools=[{"url": text}]) > 300_000


@given(st.integers(min_value=0, max_value=10**9))
def test_the_estimate_never_falls_when_there_is_more(size_bytes: int) -> None:
    assert tokens_in_bytes(size_bytes) <= tokens_in_bytes(size_bytes + 1)


def test_the_size_of_a_value_is_that_of_its_compact_text() -> None:
    assert size_bytes_of({"a": ["é", 1]}) == len('{"a":["é",1]}'.encode())
