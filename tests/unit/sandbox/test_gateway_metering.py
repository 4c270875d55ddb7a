"""What a provider says it consumed, and what is made of it."""

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.sandbox.metering import CallUsage, usage_of
from turnkeeper.sandbox.providers import BYTES_PER_TOKEN, count_input_tokens, size_bytes_of, tokens_in_bytes

anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())
counts = st.one_of(st.integers(min_value=-5, max_value=10_000), anything)
details = st.one_of(anything, st.dictionaries(st.sampled_from(["cached_tokens", "reasoning_tokens"]), counts))
usages = st.one_of(
    anything,
    st.fixed_dictionaries(
        {},
        optional={
            "prompt_tokens": counts,
            "completion_tokens": counts,
            "prompt_tokens_details": details,
            "completion_tokens_details": details,
        },
    ),
)


@given(usages)
def test_whatever_a_provider_says_the_invariants_of_usage_hold(reported: object) -> None:
    usage = usage_of({"usage": reported}, input_estimate=7, output_bytes=30)

    assert 0 <= usage.cached_input_tokens + usage.cache_write_tokens <= usage.input_tokens
    assert 0 <= usage.reasoning_tokens <= usage.output_tokens


def test_the_providers_own_count_is_taken() -> None:
    reported = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }

    usage = usage_of({"usage": reported}, input_estimate=1, output_bytes=1)

    assert usage == CallUsage(100, 64, 0, 20, 5, estimated=False)


def test_a_missing_count_is_estimated_and_says_so() -> None:
    usage = usage_of({}, input_estimate=7, output_bytes=31)

    assert usage == CallUsage(input_tokens=7, output_tokens=11, estimated=True)


@given(st.text())
def test_the_input_estimate_counts_every_byte(text: str) -> None:
    estimate = count_input_tokens({"messages": [{"role": "user", "content": text}], "temperature": 1})

    assert estimate * BYTES_PER_TOKEN >= len(text.encode(errors="replace"))


@given(st.integers(min_value=0, max_value=10**9))
def test_the_estimate_never_falls_when_there_is_more(size_bytes: int) -> None:
    assert tokens_in_bytes(size_bytes) <= tokens_in_bytes(size_bytes + 1)


def test_tools_and_the_result_form_are_part_of_the_input() -> None:
    bare = count_input_tokens({"messages": []})

    assert count_input_tokens({"messages": [], "tools": [{"name": "x" * 300}]}) >= bare + 100
    assert count_input_tokens({"messages": [], "response_format": {"name": "x" * 300}}) >= bare + 100


def test_the_size_of_a_value_is_that_of_its_compact_text() -> None:
    assert size_bytes_of({"a": ["é", 1]}) == len('{"a":["é",1]}'.encode())
