"""An agent's MCP servers: names that make names of tools, addresses that are lent, headers without secrets."""

import pytest

from turnkeeper.acs.strictjson import JsonObject, JsonValue
from turnkeeper.api.agent_mcp import mcp_server_document, parse_mcp_servers
from turnkeeper.api.fields import Fields
from turnkeeper.api.problems import RequestRefused
from turnkeeper.destinations import parse_rules
from turnkeeper.turns.mcp_server import McpServer, server_of, tool_name
from turnkeeper.turns.model import Network

LENT = parse_rules(["*.example.com", "other.test"])
NETWORK = Network(("mcp.example.com",))
STDIO: JsonObject = {"name": "notes", "command": ["/usr/bin/python3", "notes.py"], "env": {"A": "1"}}
HTTP: JsonObject = {
    "name": "crm-2",
    "url": "https://mcp.example.com/mcp",
    "headers": {"Authorization": "Bearer ${CRM_TOKEN}", "X-Tenant": "blue"},
    "tools": ["find"],
}


def parsed(*servers: JsonValue) -> tuple[McpServer, ...]:
    fields = Fields({"mcp_servers": list(servers)})
    found = parse_mcp_servers(fields, LENT, NETWORK)
    fields.finish()
    return found


def test_servers_are_programs_or_addresses() -> None:
    assert parsed(STDIO, HTTP) == (
        McpServer("notes", ("/usr/bin/python3", "notes.py"), {"A": "1"}),
        McpServer(
            "crm-2",
            url="https://mcp.example.com/mcp",
            headers={"authorization": "Bearer ${CRM_TOKEN}", "x-tenant": "blue"},
            tools=("find",),
        ),
    )


def test_what_is_shown_can_be_sent_again() -> None:
    servers = parsed(STDIO, HTTP)
    assert parsed(*map(mcp_server_document, servers)) == servers


@pytest.mark.parametrize(
    ("server", "param", "code"),
    [
        ({**STDIO, "name": "No"}, "/name", "invalid_field"),
        ({**STDIO, "name": "a_b"}, "/name", "invalid_field"),
        ({**STDIO, "name": "x" * 25}, "/name", "invalid_field"),
        ({**STDIO, "command": []}, "/command", "invalid_field"),
        ({**STDIO, "command": ["a\0"]}, "/command", "invalid_field"),
        ({**STDIO, "env": {"A B": "x"}}, "/env", "invalid_field"),
        ({**STDIO, "env": {"A": 1}}, "/env", "invalid_field"),
        ({**STDIO, "headers": {"a": "b"}, "command": ["x"]}, "/headers", "invalid_field"),
        ({**STDIO, "url": "https://mcp.example.com/"}, "", "invalid_field"),
        ({"name": "none"}, "", "invalid_field"),
        ({**HTTP, "url": "ftp://mcp.example.com/"}, "/url", "invalid_field"),
        ({**HTTP, "url": "https://mcp.example.com/?key=x"}, "/url", "invalid_field"),
        ({**HTTP, "url": "https://me:pw@mcp.example.com/"}, "/url", "invalid_field"),
        ({**HTTP, "url": "https://elsewhere.test/"}, "/url", "egress_not_lent"),
        ({**HTTP, "url": "https://other.test/"}, "/url", "egress_not_lent"),
        ({**HTTP, "headers": {"Authorization": "Bearer abc"}}, "/headers", "invalid_field"),
        ({**HTTP, "headers": {"Host": "other.test"}}, "/headers", "invalid_field"),
        ({**HTTP, "headers": {"X-A": "a\r\nb"}}, "/headers", "invalid_field"),
        ({**HTTP, "oauth": {}}, "/oauth", "unknown_field"),
    ],
)
def test_what_is_wrong_with_a_server_is_named(server: JsonObject, param: str, code: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        parsed(server)
    issues = [(issue.pointer, issue.code) for issue in refused.value.issues]
    assert (f"/mcp_servers/0{param}", code) in issues


def test_a_name_stands_for_one_server() -> None:
    with pytest.raises(RequestRefused):
        parsed(STDIO, STDIO)


def test_the_name_of_a_tool_says_whose_it_is() -> None:
    assert tool_name("notes", "add__note") == "mcp__notes__add__note"
    assert server_of("mcp__notes__add__note") == "notes"
    assert [server_of(name) for name in ("shell", "mcp__", "mcp__notes", "mcp__No__x", "mcp____x")] == [None] * 5
