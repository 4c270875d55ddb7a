"""Earlier turns as messages."""

from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart

from turnkeeper.harness.history import messages_of
from turnkeeper.sandbox.protocol import HistoryItem


def test_what_was_said_becomes_a_request_and_a_response() -> None:
    asked, answered = messages_of([HistoryItem("user", "hi"), HistoryItem("agent", "hello")])

    assert isinstance(asked, ModelRequest)
    assert isinstance(answered, ModelResponse)
    assert isinstance(asked.parts[0], UserPromptPart)
    assert asked.parts[0].content == "hi"
    assert answered.parts == [TextPart(content="hello")]


def test_a_tool_call_becomes_the_call_and_what_came_back() -> None:
    item = HistoryItem("tool", "a.txt", call_id="c1", name="shell", arguments='{"command": "ls"}')

    called, returned = messages_of([item])

    assert called.parts == [ToolCallPart("shell", '{"command": "ls"}', tool_call_id="c1")]
    part = returned.parts[0]
    assert isinstance(part, ToolReturnPart)
    assert (part.tool_name, part.content, part.tool_call_id) == ("shell", "a.txt", "c1")


def test_no_history_is_no_messages() -> None:
    assert messages_of([]) == []
