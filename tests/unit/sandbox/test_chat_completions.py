"""What the gateway passes on to a model, and what it lets back into a box."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from turnkeeper.sandbox.metering import CallUsage
from turnkeeper.sandbox.protocols.chat_completions import CHAT_COMPLETIONS, DEFAULT_MAX_OUTPUT_TOKENS, ChatReading
from turnkeeper.sandbox.protocols.wire import (
    LARGEST_MAX_OUTPUT_TOKENS,
    MAX_JSON_DEPTH,
    AnswerUnusable,
    CallRefused,
    ModelRequest,
    parse_answer,
)
from turnkeeper.sandbox.providers import ModelSpec, Provider, local_provider, openai_provider

KEY = "sk-0123456789abcdef0123"
STUB = openai_provider("stub", "http://127.0.0.1:9/v1", SecretStr(KEY))
MODEL = ModelSpec(STUB, "m1")
MESSAGES = [{"role": "user", "content": "hi"}]
TOOL: dict[str, object] = {"type": "function", "function": {"name": "t", "parameters": {}}}


def parse_request(raw: bytes, model: ModelSpec) -> ModelRequest:
    return CHAT_COMPLETIONS.parse_request(raw, model)


def render_request(request: ModelRequest, model: ModelSpec, max_output_tokens: int) -> bytes:
    return CHAT_COMPLETIONS.render_request(request, model, max_output_tokens)


def reading_of(model: ModelSpec = MODEL, **members: object) -> ChatReading:
    return CHAT_COMPLETIONS.reading(parse_request(body(**members), model), model)


def render_answer(document: dict[str, object], model: ModelSpec) -> bytes:
    return reading_of(model).whole(document)


def body(**members: object) -> bytes:
    return json.dumps({"model": "m1", "messages": MESSAGES, **members}).encode()


def code_of(raw: bytes, model: ModelSpec = MODEL) -> str:
    with pytest.raises(CallRefused) as refused:
        parse_request(raw, model)
    return refused.value.error_code


def answer(**members: object) -> dict[str, object]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "/models/w.gguf",
        "choices": [choice],
    } | members


def test_a_plain_request_is_passed_on_with_what_the_gateway_decides() -> None:
    request = parse_request(body(temperature=0.5, n=3, tools=[TOOL]), MODEL)

    sent = json.loads(render_request(request, MODEL, 300))

    assert sent == {
        "messages": MESSAGES,
        "temperature": 0.5,
        "tools": [TOOL],
        "model": "m1",
        "n": 1,
        "stream": False,
        "max_tokens": 300,
        "parallel_tool_calls": False,
    }


def test_a_stream_is_asked_for_with_its_count() -> None:
    sent = json.loads(render_request(parse_request(body(stream=True, stream_options={"x": 1}), MODEL), MODEL, 300))

    assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})


def test_tools_are_called_one_at_a_time_unless_the_client_says_otherwise() -> None:
    assert b"parallel_tool_calls" not in render_request(parse_request(body(), MODEL), MODEL, 300)
    request = parse_request(body(tools=[TOOL], parallel_tool_calls=True), MODEL)
    assert json.loads(render_request(request, MODEL, 300))["parallel_tool_calls"] is True


@given(st.dictionaries(st.text(min_size=1), st.integers() | st.text(min_size=1), max_size=5))
def test_a_parameter_that_is_not_listed_never_reaches_the_provider(members: dict[str, object]) -> None:
    listed = {
        "frequency_penalty", "max_completion_tokens", "max_tokens", "messages", "model", "n", "parallel_tool_calls",
        "presence_penalty", "prompt_cache_key", "reasoning_effort", "response_format", "seed", "stop", "stream",
        "stream_options", "temperature", "tool_choice", "tools", "top_p", "verbosity",
        "web_search_options", "functions", "audio",
    }  # fmt: skip
    strange = {name: value for name, value in members.items() if name not in listed}
    request = parse_request(body(**strange), MODEL)

    assert json.loads(render_request(request, MODEL, 9)).keys() == {"messages", "model", "n", "stream", "max_tokens"}
    assert request.dropped == tuple(name[:64] for name in sorted(strange))


def test_tools_that_would_run_at_the_provider_are_taken_out() -> None:
    request = parse_request(body(tools=[TOOL, {"type": "web_search"}], tool_choice="auto"), MODEL)
    without = parse_request(body(tools=[{"type": "web_search"}], tool_choice="auto"), MODEL)

    assert request.members["tools"] == [TOOL]
    assert request.dropped == ("tools[web_search]",)
    assert without.members == {"messages": MESSAGES}


def part(**members: object) -> bytes:
    return body(messages=[{"role": "user", "content": [members]}])


def test_what_the_provider_would_fetch_or_has_in_store_is_refused() -> None:
    inline = {"url": "data:image/png;base64,AA=="}

    assert code_of(part(type="image_url", image_url={"url": "http://10.0.0.1/?q=secret"})) == "remote_content_refused"
    assert code_of(part(type="file", file={"file_id": "file-1"})) == "remote_content_refused"
    assert parse_request(part(type="image_url", image_url=inline), MODEL).input_tokens > 5_000


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (body(model="m2"), "model_not_allowed"),
        (b'{"messages": [{"role": "user"}]}', "model_not_allowed"),
        (body(stream="yes"), "invalid_request"),
        (body(web_search_options={"x": 1}), "parameter_not_allowed"),
        (body(messages=[]), "invalid_request"),
        (body(messages="hi"), "invalid_request"),
        (body(messages=["hi"]), "invalid_request"),
        (body(tools={"a": 1}), "invalid_request"),
        (body(max_tokens=0), "invalid_request"),
        (body(max_tokens=True), "invalid_request"),
        (body(max_completion_tokens="9"), "invalid_request"),
        (b"", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'{"model": "m1", "model": "m1"}', "invalid_json"),
        (b'{"seed": NaN}', "invalid_json"),
        (b'{"stop": "\\ud800"}', "invalid_json"),
        (b"\xff", "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b'{"seed": ' + b"9" * 10_000 + b"}", "invalid_json"),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused_by_its_name(raw: bytes, code: str) -> None:
    assert code_of(raw) == code


def test_nesting_is_bounded() -> None:
    def nested(levels: int) -> bytes:
        return b'{"model":"m1","messages":[{"a":' + b"[" * levels + b"]" * levels + b"}]}"

    parse_request(nested(MAX_JSON_DEPTH - 3), MODEL)
    assert code_of(nested(MAX_JSON_DEPTH)) == "invalid_json"


def test_integers_of_any_size_are_no_accident() -> None:
    request = parse_request(body(tools=[TOOL | {"maximum": 10**40}]), MODEL)

    assert json.loads(render_request(request, MODEL, 300))["tools"] == [TOOL | {"maximum": 10**40}]


def test_a_provider_that_calls_no_tools_gets_none() -> None:
    local = ModelSpec(local_provider("local", "http://127.0.0.1:9/v1", SecretStr(KEY)), "m1")

    assert code_of(body(tools=[]), local) == "tools_not_supported"
    assert code_of(body(tool_choice="auto"), local) == "tools_not_supported"


def test_the_agents_own_parameters_win() -> None:
    model = ModelSpec(STUB, "m1", {"temperature": 0, "max_tokens": 500})
    request = parse_request(body(temperature=2, max_tokens=900, top_p=0.5), model)

    assert (request.members["temperature"], request.members["top_p"]) == (0, 0.5)
    assert request.max_output_tokens == 500


@pytest.mark.parametrize(
    ("members", "wanted"),
    [
        ({}, DEFAULT_MAX_OUTPUT_TOKENS),
        ({"max_tokens": 10}, 10),
        ({"max_completion_tokens": 10_000}, 10_000),
        ({"max_tokens": 10, "max_completion_tokens": 20}, 10),
        ({"max_tokens": 10**9}, LARGEST_MAX_OUTPUT_TOKENS),
        ({"max_tokens": None}, DEFAULT_MAX_OUTPUT_TOKENS),
    ],
)
def test_the_output_cap_is_the_smallest_that_was_named(members: dict[str, object], wanted: int) -> None:
    assert parse_request(body(**members), MODEL).max_output_tokens == wanted


def test_the_cap_goes_out_under_the_providers_own_name() -> None:
    provider = openai_provider("openai", "https://api.openai.com/v1", SecretStr(KEY))
    model = ModelSpec(provider, "m1")

    sent = json.loads(render_request(parse_request(body(max_tokens=9), model), model, 9))

    assert (sent.get("max_tokens"), sent["max_completion_tokens"]) == (None, 9)


def test_an_answer_shows_the_model_as_it_was_asked_for_and_only_known_members() -> None:
    raw = render_answer(answer(usage={"prompt_tokens": 1}, timings={"x": 1}, system_fingerprint="b1"), MODEL)

    assert json.loads(raw).keys() == {"id", "object", "created", "usage", "model", "choices"}
    assert json.loads(raw)["model"] == "m1"


def test_only_the_first_choice_comes_back() -> None:
    choice = {"message": {"content": "a"}}

    assert json.loads(render_answer(answer(choices=[choice, choice]), MODEL))["choices"] == [choice]


@pytest.mark.parametrize("choices", [None, [], {}, ["x"], [{}], [{"message": "hi"}], [{"delta": {}}]])
def test_an_answer_without_a_message_is_unusable(choices: object) -> None:
    reading = reading_of()

    with pytest.raises(AnswerUnusable):
        reading.whole(answer(choices=choices, usage={"prompt_tokens": 3, "completion_tokens": 4}))
    assert (reading.finish_reason, reading.complete) == (None, False)
    assert reading.usage == CallUsage(3, output_tokens=4)


@pytest.mark.parametrize("raw", [b"", b"<html>", b"[]", b'"text"', b"[" * 100_000])
def test_what_is_not_a_json_object_is_unusable(raw: bytes) -> None:
    with pytest.raises(AnswerUnusable):
        parse_answer(raw)


def test_half_a_surrogate_pair_does_not_break_the_answer() -> None:
    parsed = parse_answer(json.dumps(answer(choices=[{"message": {"content": "\ud83d"}}])).encode())

    assert json.loads(render_answer(parsed, MODEL))["choices"][0]["message"]["content"] == "?"


def test_an_answer_with_the_key_in_it_stays_outside() -> None:
    with pytest.raises(AnswerUnusable, match="key"):
        render_answer(answer(choices=[{"message": {"content": f"it is {KEY}"}}]), MODEL)


def test_a_key_that_is_a_common_word_is_not_looked_for() -> None:
    model = ModelSpec(Provider("stub", "openai", "http://127.0.0.1:9/v1", SecretStr("yes")), "m1")

    assert b"yes" in render_answer(answer(), model)
