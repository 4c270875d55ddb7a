"""What a client of Responses may ask: the shape of a real client's request goes through, doors stay shut."""

import json

import pytest
from pydantic import SecretStr

from turnkeeper.sandbox.protocols.responses import DEFAULT_MAX_OUTPUT_TOKENS, RESPONSES
from turnkeeper.sandbox.protocols.wire import CallRefused
from turnkeeper.sandbox.providers import ModelSpec, openai_provider

MODEL = ModelSpec(openai_provider("stub", "http://127.0.0.1:9/v1", SecretStr("sk-0123456789abcdef")), "m1")
SAID = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
SHELL: dict[str, object] = {"type": "function", "name": "exec_command", "parameters": {"type": "object"}}
CODEX: dict[str, object] = {
    "model": "m1",
    "instructions": "You are a coding agent.",
    "input": [
        SAID,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "function_call", "call_id": "c1", "name": "exec_command", "arguments": '{"file_id": "x"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    ],
    "tools": [SHELL, {"type": "custom", "name": "apply_patch"}, {"type": "web_search", "external_web_access": False}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": True,
    "stream": True,
    "include": ["reasoning.encrypted_content", "file_search_call.results"],
    "prompt_cache_key": "0199",
    "text": {"verbosity": "low"},
    "service_tier": "priority",
    "client_metadata": {"x": "y"},
}


def code_of(**members: object) -> str:
    with pytest.raises(CallRefused) as refused:
        RESPONSES.parse_request(json.dumps(CODEX | members).encode(), MODEL)
    return refused.value.error_code


def test_what_codex_sends_goes_out_without_what_reaches_the_account() -> None:
    request = RESPONSES.parse_request(json.dumps(CODEX).encode(), MODEL)

    sent = json.loads(RESPONSES.render_request(request, MODEL, 700))

    gone = {"service_tier", "client_metadata"}
    assert sent.keys() == CODEX.keys() - gone | {"max_output_tokens"}
    assert (sent["store"], sent["include"], sent["max_output_tokens"]) == (False, ["reasoning.encrypted_content"], 700)
    assert [tool["type"] for tool in sent["tools"]] == ["function", "custom"]
    assert request.dropped == ("client_metadata", "service_tier", "tools[web_search]")
    assert (request.stream, request.max_output_tokens) == (True, DEFAULT_MAX_OUTPUT_TOKENS)


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"model": "m2"}, "model_not_allowed"),
        ({"input": []}, "invalid_request"),
        ({"input": None}, "invalid_request"),
        ({"tools": {}}, "invalid_request"),
        ({"max_output_tokens": 0}, "invalid_request"),
        ({"background": True}, "parameter_not_allowed"),
        ({"previous_response_id": "resp_1"}, "parameter_not_allowed"),
        ({"conversation": "conv_1"}, "parameter_not_allowed"),
        ({"prompt": {"id": "pmpt_1"}}, "parameter_not_allowed"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "remote_content_refused"),
        ({"input": [SAID | {"content": [{"type": "input_file", "file_id": "f"}]}]}, "remote_content_refused"),
        ({"input": [SAID | {"content": [{"type": "input_file", "file_url": "http://x"}]}]}, "remote_content_refused"),
        ({"input": [SAID | {"content": [{"type": "input_image", "image_url": "http://x"}]}]}, "remote_content_refused"),
    ],
)
def test_a_request_that_reaches_further_is_refused_by_its_name(members: dict[str, object], code: str) -> None:
    assert code_of(**members) == code


@pytest.mark.parametrize(
    ("tool", "kept"),
    [
        ({"type": "local_shell"}, True),
        ({"type": "shell", "environment": {"type": "local"}}, True),
        ({"type": "shell", "environment": {"type": "container_auto"}}, False),
        ({"type": "shell"}, False),
        ({"type": "tool_search", "execution": "client"}, True),
        ({"type": "tool_search"}, False),
        ({"type": "mcp", "server_url": "http://x"}, False),
        ({"type": "code_interpreter"}, False),
        ({"type": "a_tool_of_next_year"}, False),
        ({}, False),
    ],
)
def test_only_tools_that_run_in_the_box_are_offered(tool: dict[str, object], kept: bool) -> None:
    request = RESPONSES.parse_request(json.dumps(CODEX | {"tools": [tool]}).encode(), MODEL)

    assert ("tools" in request.members, "tool_choice" in request.members) == (kept, kept)


def test_the_agents_own_parameters_win_in_this_protocols_words() -> None:
    params = {"temperature": 0, "reasoning_effort": "high", "max_tokens": 900, "seed": 7}
    request = RESPONSES.parse_request(
        json.dumps(CODEX | {"temperature": 2}).encode(), ModelSpec(MODEL.provider, "m1", params)
    )

    assert (request.members["temperature"], request.max_output_tokens) == (0, 900)
    assert request.members["reasoning"] == {"effort": "high", "summary": "auto"}
    assert "seed" not in request.members
