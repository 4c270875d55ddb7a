"""The MCP servers of agents over the API (contract 2.1): shown as they were given, kept, and lent."""

from pathlib import Path

from tests.integration.api_door import AGENT, Api, Json, serve

from turnkeeper.api.deps import ApiSettings
from turnkeeper.destinations import parse_rules
from turnkeeper.turns.mcp_server import McpServer

LENT = ApiSettings(egress=parse_rules(["*.example.com"]))
STDIO: Json = {"name": "notes", "command": ["/usr/bin/python3", "x.py"], "env": {}, "tools": ["add", "read_resource"]}
HTTP: Json = {
    "name": "crm",
    "url": "https://mcp.example.com/mcp",
    "headers": {"x-api-key": "${CRM_KEY}"},
    "tools": None,
}
NETWORK = {"network": {"allow": ["mcp.example.com"]}}


def test_an_agent_shows_its_servers_and_its_next_version_keeps_them(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        made = await api.made("/v1/agents", {**AGENT, "mcp_servers": [STDIO, HTTP], "sandbox": NETWORK})
        assert made["mcp_servers"] == [STDIO, HTTP]
        changed = await api.made(f"/v1/agents/{made['id']}", {"instructions": "New.", "expected_version": 1})
        assert changed["mcp_servers"] == [STDIO, HTTP]
        await api.turn((await api.made("/v1/sessions", {"agent_id": made["id"]}))["id"])
        claim = await api.store.claim("worker", slot=True)
        assert claim is not None
        assert claim.agent.mcp_servers == (
            McpServer("notes", ("/usr/bin/python3", "x.py"), tools=("add", "read_resource")),
            McpServer("crm", url="https://mcp.example.com/mcp", headers={"x-api-key": "${CRM_KEY}"}),
        )

    serve(tmp_path, work, LENT)


def test_an_address_that_the_agents_network_does_not_allow_is_no_server(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        problem = await api.refused("POST", "/v1/agents", json={**AGENT, "mcp_servers": [HTTP]})
        assert (problem["status"], problem["code"]) == (422, "egress_not_lent")
        assert problem["param"] == "/mcp_servers/0/url"

    serve(tmp_path, work, LENT)


def test_a_client_that_brings_its_tools_takes_no_servers_and_an_app_no_name_of_theirs(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        tool = {"kind": "client", "name": "mcp__notes__add", "description": "x", "input_schema": {"type": "object"}}
        bodies: tuple[Json, ...] = (
            {"harness": {"kind": "codex"}, "tools": [], "mcp_servers": [STDIO]},
            {"tools": [tool]},
        )
        for body in bodies:
            problem = await api.refused("POST", "/v1/agents", json={**AGENT, **body})
            assert problem["status"] in {400, 422}

    serve(tmp_path, work, LENT)
