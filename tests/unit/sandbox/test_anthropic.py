"""What a client of Messages may ask: the shape of a real client's request goes through, doors stay shut."""

import json

import pytest
from pydantic import SecretStr

from turnkeeper.sandbox.protocols.anthropic import ANTHROPIC, count_tokens
from turnkeeper.sandbox.protocols.wire import CallRefused, Refusal
from turnkeeper.sandbox.providers import ModelSpec, anthropic_provider

MODEL = ModelSpec(anthropic_provider("stub", "http://127.0.0.1:9/v1", SecretStr("sk-0123456789abcdef")), "m1")
BASH: dict[str, object] = {"name": "Bash", "description": "Runs a command.", "input_schema": {"type": "object"}}
CLAUDE_CODE: dict[str, object] = {
    "model": "m1",
    "max_tokens": 32_000,
    "system": [{"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Read", "input": {"type": "image"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
    ],
    "tools": [BASH, {"type": "web_search_20250305", "name": "web_search"}],
    "metadata": {"user_id": "u"},
    "thinking": {"type": "enabled", "budget_tokens": 31_999},
    "context_management": {"edits": []},
    "stream": True,
    "service_tier": "auto",
    "temperature": 1,
}


def code_of(**members: object) -> str:
    with pytest.raises(CallRefused) as refused:
        ANTHROPIC.parse_request(json.dumps(CLAUDE_CODE | members).encode(), MODEL)
    return refused.value.error_code


def test_what_claude_code_sends_goes_out_without_what_reaches_the_account() -> None:
    request = ANTHROPIC.parse_request(json.dumps(CLAUDE_CODE).encode(), MODEL)

    sent = json.loads(ANTHROPIC.render_request(request, MODEL, 32_000))

    assert sent.keys() == CLAUDE_CODE.keys() - {"metadata", "service_tier"}
    assert sent["tools"] == [BASH]
    assert request.dropped == ("metadata", "service_tier", "tools[web_search_20250305]")
    assert (sent["thinking"], sent["max_tokens"]) == (CLAUDE_CODE["thinking"], 32_000)


@pytest.mark.parametrize(
    ("cap", "thinking"),
    [
        (5_000, {"type": "enabled", "budget_tokens": 4_999}),
        (1_025, {"type": "enabled", "budget_tokens": 1_024}),
        (1_024, {"type": "disabled"}),
        (256, {"type": "disabled"}),
    ],
)
def test_thinking_fits_below_a_cap_that_was_lowered(cap: int, thinking: dict[str, object]) -> None:
    request = ANTHROPIC.parse_request(json.dumps(CLAUDE_CODE).encode(), MODEL)

    assert json.loads(ANTHROPIC.render_request(request, MODEL, cap))["thinking"] == thinking


def picture(**source: object) -> list[object]:
    return [{"role": "user", "content": [{"type": "image", "source": source}]}]


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"model": "m2"}, "model_not_allowed"),
        ({"messages": []}, "invalid_request"),
        ({"stream": "yes"}, "invalid_request"),
        ({"max_tokens": 0}, "invalid_request"),
        ({"container": "container_1"}, "parameter_not_allowed"),
        ({"mcp_servers": [{"type": "url", "url": "http://x"}]}, "parameter_not_allowed"),
        ({"messages": picture(type="url", url="http://x")}, "remote_content_refused"),
        ({"messages": picture(type="file", file_id="f")}, "remote_content_refused"),
        ({"messages": [{"role": "user", "content": [{"type": "container_upload"}]}]}, "remote_content_refused"),
    ],
)
def test_a_request_that_reaches_further_is_refused_by_its_name(members: dict[str, object], code: str) -> None:
    assert code_of(**members) == code


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("custom", True),
        ("bash_20250124", True),
        ("text_editor_20250728", True),
        ("web_fetch_20250910", False),
        ("code_execution_20250825", False),
        ("mcp_toolset", False),
        (7, False),
    ],
)
def test_only_tools_that_run_in_the_box_are_offered(kind: object, kept: bool) -> None:
    tools = [{"type": kind, "name": "t"}]
    request = ANTHROPIC.parse_request(json.dumps(CLAUDE_CODE | {"tools": tools}).encode(), MODEL)

    assert ("tools" in request.members) is kept


def test_the_agents_own_parameters_win_in_this_protocols_words() -> None:
    params = {"temperature": 0, "stop": "END", "reasoning_effort": "low", "max_completion_tokens": 700, "seed": 7}
    model = ModelSpec(MODEL.provider, "m1", params)

    request = ANTHROPIC.parse_request(json.dumps(CLAUDE_CODE).encode(), model)

    assert (request.members["temperature"], request.members["stop_sequences"]) == (0, ["END"])
    assert (request.members["output_config"], request.max_output_tokens) == ({"effort": "low"}, 700)
    assert "seed" not in request.members


def test_the_count_of_tokens_is_the_estimate_that_is_reserved() -> None:
    request = ANTHROPIC.parse_request(json.dumps(CLAUDE_CODE | {"tools": [BASH]}).encode(), MODEL)

    assert count_tokens(json.dumps(CLAUDE_CODE | {"tools": [BASH]}).encode(), MODEL) == request.input_tokens


def test_a_context_that_is_too_long_is_said_in_the_words_that_claude_code_shortens_it_for() -> None:
    refusal = Refusal(400, "context_length_exceeded", "the context is longer than the model's")

    error = json.loads(ANTHROPIC.render_error(refusal))["error"]

    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    assert error["message"].startswith("prompt is too long: ")
