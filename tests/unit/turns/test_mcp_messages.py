"""MCP messages and what is made of them: one meaning, a signature that covers them, text for a model."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.acs import JsonObject, JsonValue, canonicalize
from turnkeeper.turns.mcp_messages import (
    MAX_MESSAGE_BYTES,
    McpMessageInvalid,
    answer,
    failure,
    notification,
    parse_message,
    render,
    request,
)
from turnkeeper.turns.mcp_server import McpServer, server_of, tool_name
from turnkeeper.turns.mcp_tools import features_of, read_tools, text_of

SERVER = McpServer("notes", ("x",))
SCHEMA: JsonObject = {"type": "object"}
texts = st.text(max_size=20)
params = st.dictionaries(texts, st.none() | st.booleans() | st.integers(-9, 9) | texts, max_size=4)


@given(texts, texts, params)
def test_what_is_written_is_read_as_it_was_meant(message_id: str, method: str, members: dict[str, object]) -> None:
    written = {
        "request": request(message_id, method, members),
        "notification": notification(method, members),
        "response": answer(message_id, members),
    }
    for kind, document in written.items():
        message = parse_message(render(document))
        assert (message.kind, message.document) == (kind, document)
    assert parse_message(render(failure(message_id, -1, method))).error == (-1, method)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_bytes_of_any_kind_are_a_message_or_refused(line: bytes) -> None:
    try:
        assert canonicalize(parse_message(line).document)
    except McpMessageInvalid:
        return


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"jsonrpc":"1.0","method":"a"}',
        '{"jsonrpc":"2.0"}',
        '{"jsonrpc":"2.0","method":1}',
        '{"jsonrpc":"2.0","method":"a","params":[]}',
        '{"jsonrpc":"2.0","method":"a","id":null}',
        '{"jsonrpc":"2.0","method":"a","id":true}',
        '{"jsonrpc":"2.0","id":1}',
        '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}',
        '{"jsonrpc":"2.0","id":1,"result":[]}',
        '{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":""}}',
        '{"jsonrpc":"2.0","id":1,"id":2,"result":{}}',
        '{"jsonrpc":"2.0","id":1,"result":{"n":12345678901234567891}}',
        '{"jsonrpc":"2.0","id":1,"result":{"n":NaN}}',
    ],
)
def test_what_has_no_one_meaning_is_refused(text: str) -> None:
    with pytest.raises(McpMessageInvalid):
        parse_message(text.encode())


def test_a_message_has_an_end() -> None:
    with pytest.raises(McpMessageInvalid):
        parse_message(render(notification("a", {"x": "y" * MAX_MESSAGE_BYTES})))


@given(st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,22}[a-z0-9])?", fullmatch=True), st.text("abZ09_-", min_size=1))
def test_the_name_of_a_tool_leads_back_to_its_server(server: str, tool: str) -> None:
    name = tool_name(server, tool)
    assert name is None or (server_of(name) == server and len(name) <= 64)


@given(st.lists(st.none() | st.booleans() | texts | st.dictionaries(texts, texts | st.just(SCHEMA)), max_size=5))
def test_a_list_of_anything_is_tools_or_left_out(listed: list[JsonValue]) -> None:
    tools, left_out = read_tools(SERVER, listed)
    assert len(tools) + len(left_out) == len(listed)


def test_everything_that_a_tool_says_is_in_its_digest() -> None:
    said: JsonObject = {"name": "a", "description": "b", "inputSchema": SCHEMA}
    variants: list[JsonObject] = [
        said,
        {**said, "description": "c"},
        {**said, "inputSchema": {"type": "object", "properties": {}}},
        {**said, "annotations": {"readOnlyHint": True}},
        {**said, "_meta": {"x": 1}},
    ]
    assert len({read_tools(SERVER, [variant])[0][0].digest for variant in variants}) == len(variants)


def test_an_allow_list_goes_for_resources_and_prompts_too() -> None:
    capable: JsonObject = {"resources": {}, "prompts": {}}
    some = McpServer("notes", ("x",), tools=("read_resource",))
    assert [tool.own_name for tool in features_of(some, capable)] == ["read_resource"]
    assert len(features_of(SERVER, capable)) == 4
    assert features_of(SERVER, {}) == []


@pytest.mark.parametrize(
    ("method", "result", "text"),
    [
        ("tools/call", {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ("tools/call", {"content": [], "structuredContent": {"n": 1}}, '{"n":1}'),
        (
            "tools/call",
            {"content": [{"type": "image", "mimeType": "image/png"}]},
            "[image of type image/png, left out]",
        ),
        ("tools/call", {"content": "x"}, ""),
        ("tools/call", {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "t"}}]}, "t"),
        ("tools/call", {"content": [{"type": "resource_link", "uri": "a:b"}]}, "[a resource: a:b]"),
        ("resources/read", {"contents": [{"uri": "a:b", "blob": "AA=="}]}, "[a:b: None, left out]"),
        ("prompts/get", {"messages": [{"role": "user", "content": {"type": "text", "text": "t"}}]}, "user: t"),
        ("resources/list", {"resources": [], "_meta": {}}, '{"resources":[]}'),
    ],
)
def test_a_result_is_text_for_a_model(method: str, result: JsonObject, text: str) -> None:
    assert text_of(method, result) == (text, False)


def test_a_tool_may_say_that_it_failed() -> None:
    failed: JsonObject = orjson.loads('{"content":[{"type":"text","text":"no"}],"isError":true}')
    assert text_of("tools/call", failed) == ("no", True)
