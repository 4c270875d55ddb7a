"""The scripted model says what its script says, to anybody who speaks Chat Completions."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from turnkeeper.testing.scripted_model import (
    ScriptedAnswer,
    ScriptedCall,
    ScriptedModel,
    ScriptedUsage,
    ScriptMalformed,
    SeenRequest,
    parse_script,
    running_scripted_model,
)

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def ask(model: ScriptedModel, **members: object) -> httpx.Response:
    return httpx.post(f"{model.base_url}/chat/completions", json=BODY | members, trust_env=False)


def message_of(response: httpx.Response) -> dict[str, object]:
    return response.json()["choices"][0]["message"]


def test_answers_come_in_order_and_then_no_more() -> None:
    with running_scripted_model([ScriptedAnswer(text="one"), ScriptedAnswer(text="two")]) as model:
        assert [message_of(ask(model))["content"] for _ in range(2)] == ["one", "two"]
        assert (ask(model).status_code, ask(model).json()["error"]["code"]) == (500, "script_used_up")
        assert [seen.index for seen in model.requests] == [0, 1, 2, 3]


def test_a_script_can_look_at_the_request() -> None:
    def echo(seen: SeenRequest) -> ScriptedAnswer:
        return ScriptedAnswer(text=f"{seen.index} {seen.messages[-1]['content']}")

    with running_scripted_model(echo) as model:
        assert message_of(ask(model))["content"] == "0 hi"


def test_tool_calls_usage_and_reason_are_as_scripted() -> None:
    answer = ScriptedAnswer(
        tool_calls=(ScriptedCall("shell", "{bad"), ScriptedCall("x", id="mine")), usage=ScriptedUsage(9, 8, 7, 6)
    )
    with running_scripted_model([answer]) as model:
        document = ask(model, tools=[{"type": "function", "function": {"name": "shell"}}]).json()

    calls = document["choices"][0]["message"]["tool_calls"]
    assert [(call["id"], call["function"]["arguments"]) for call in calls] == [("call_0_0", "{bad"), ("mine", "{}")]
    assert document["choices"][0]["finish_reason"] == "tool_calls"
    assert document["usage"]["prompt_tokens_details"] == {"cached_tokens": 7}
    assert model.requests[0].tool_names == ["shell"]


def test_usage_is_counted_unless_it_is_to_be_left_out() -> None:
    with running_scripted_model([ScriptedAnswer(text="a"), ScriptedAnswer(text="a", omit_usage=True)]) as model:
        assert ask(model).json()["usage"]["prompt_tokens"] > 0
        assert "usage" not in ask(model).json()


def test_statuses_headers_and_raw_bodies_are_as_scripted() -> None:
    script = [ScriptedAnswer(status=429, headers={"retry-after": "1"}), ScriptedAnswer(raw=b"<html>")]
    with running_scripted_model(script) as model:
        limited = ask(model)
        assert (limited.status_code, limited.headers["retry-after"]) == (429, "1")
        assert ask(model).text == "<html>"


def test_it_can_hang_up() -> None:
    with running_scripted_model([ScriptedAnswer(hang_up=True)]) as model, pytest.raises(httpx.RemoteProtocolError):
        ask(model)


def test_a_key_is_demanded_and_other_routes_are_not_there() -> None:
    with running_scripted_model([ScriptedAnswer(text="a")], api_key="k") as model:
        assert ask(model).status_code == 401
        assert httpx.get(f"{model.base_url}/models", trust_env=False).status_code == 404
        assert model.requests == []


@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages"])
def test_a_stream_says_word_by_word_what_the_whole_answer_says(path: str) -> None:
    answer = ScriptedAnswer(text="one two three", tool_calls=(ScriptedCall("shell", '{"a": 1}'),), reasoning="hm so")
    body = BODY | {"input": "hi"}
    with running_scripted_model([answer, answer]) as model:
        whole = httpx.post(model.base_url + path, json=body, trust_env=False).text
        stream = httpx.post(model.base_url + path, json=body | {"stream": True}, trust_env=False)

    assert stream.headers["content-type"] == "text/event-stream"
    assert all(f'"{word}"' in stream.text for word in ("one", " two", " three", "shell"))
    assert "one two three" in whole


def test_a_stream_can_break_off_or_fail_in_the_middle() -> None:
    script = [ScriptedAnswer(text="a b c", cut_after_events=2), ScriptedAnswer(text="a", stream_error="overloaded")]
    with running_scripted_model(script) as model:
        with pytest.raises(httpx.RemoteProtocolError):
            ask(model, stream=True)
        assert "scripted model: overloaded" in ask(model, stream=True).text


def test_a_script_sees_how_far_an_agent_has_come_in_every_protocol() -> None:
    seen: list[int] = []

    def script(request: SeenRequest) -> ScriptedAnswer:
        seen.append(request.tool_results)
        return ScriptedAnswer(text="ok")

    with running_scripted_model(script) as model:
        ask(model, messages=[{"role": "tool", "content": "x", "tool_call_id": "1"}])
        items = [{"type": "function_call_output", "call_id": "1", "output": "x"}]
        httpx.post(f"{model.base_url}/responses", json={"input": items}, trust_env=False)
        blocks = [{"type": "tool_result", "tool_use_id": "1", "content": "x"}]
        said = [{"role": "user", "content": blocks}]
        httpx.post(f"{model.base_url}/messages?beta=true", json={"messages": said}, trust_env=False)
    assert seen == [1, 1, 1]


def test_stopping_twice_is_fine() -> None:
    async def main() -> None:
        async with ScriptedModel([]) as model:
            await model.stop()

    asyncio.run(main())


def test_a_script_can_be_a_file() -> None:
    text = json.dumps(
        [
            {"tool_calls": [{"name": "shell", "arguments": {"command": "ls"}}, {"name": "x", "arguments": "{bad"}]},
            {"text": "done", "usage": {"prompt_tokens": 1, "completion_tokens": 2}, "delay_ms": 5},
        ]
    )

    first, second = parse_script(text)

    assert [call.arguments for call in first.tool_calls] == ['{"command": "ls"}', "{bad"]
    assert second == ScriptedAnswer(text="done", usage=ScriptedUsage(1, 2), delay_ms=5)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"words": "x"}]', '[{"tool_calls": [{}]}]', '[{"usage": {"a": 1}}]']
)
def test_a_script_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ScriptMalformed):
        parse_script(text)


def test_it_runs_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('[{"text": "from a file"}]')
    program = [sys.executable, "-m", "turnkeeper.testing.scripted_model", "--script", str(tmp_path / "script.json")]

    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        base_url = process.stdout.readline().strip()
        answer = httpx.post(f"{base_url}/chat/completions", json=BODY, trust_env=False)
        process.terminate()

    assert message_of(answer)["content"] == "from a file"
