"""An MCP server on a socket, reached by the worker through the admission that its boxes have."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11
import orjson
from tests.integration.egress_parts import LOOPBACK, Names, run, serving
from tests.integration.mcp_parts import ALLOW, Played, play

from turnkeeper.addresses import parse_networks
from turnkeeper.destinations import parse_rules, parse_secret_host
from turnkeeper.sandbox.egress_admission import Admission, EgressLimits, EgressPolicy
from turnkeeper.sandbox.egress_exchange import NO_VAULT, Vault
from turnkeeper.sandbox.egress_secrets import BoxSecret, BoxSecrets
from turnkeeper.sandbox.web import Web
from turnkeeper.turns.box_ports import NetworkOrder
from turnkeeper.turns.mcp_server import McpServer

ACT = ("mcp__crm__act", {"who": "you"})
DENY_EGRESS = b"""
version: 1
name: test
default: allow
rules:
  - id: never
    hooks: [toolCallRequest]
    tools: [egress]
    decision: deny
    reasoning: Not there.
"""


@dataclass
class Crm:
    """A server; `streams` says whether it answers with a stream of events. `heads` is what it was sent."""

    streams: bool = False
    status: int = 200
    echoes: str = ""
    port: int = 0
    heads: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])
    methods: list[str] = field(default_factory=list[str])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state = h11.Connection(h11.SERVER)
        head, body = await _received(state, reader)
        self.heads.append({name.decode(): value.decode() for name, value in head.headers} | {"": head.method.decode()})
        writer.write(self._answer(state, body))
        await writer.drain()

    def _answer(self, state: h11.Connection, body: bytes) -> bytes:
        message: Mapping[str, Any] = orjson.loads(body) if body else {}
        self.methods.append(message.get("method", ""))
        if "id" not in message or self.status != 200:
            return _rendered(state, 202 if self.status == 200 else self.status, "application/json", b"")
        reply = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": self._result(message)})
        if not self.streams:
            return _rendered(state, 200, "application/json", reply)
        note = orjson.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "hm"}})
        return _rendered(state, 200, "text/event-stream", b"data: " + note + b"\n\ndata: " + reply + b"\n\n")

    def _result(self, message: Mapping[str, object]) -> Mapping[str, object]:
        if message["method"] == "initialize":
            return {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": {"name": "crm"}}
        if message["method"] == "tools/list":
            return {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]}
        return {"content": [{"type": "text", "text": f"acted{self.echoes}"}]}


async def _received(state: h11.Connection, reader: asyncio.StreamReader) -> tuple[h11.Request, bytes]:
    head, body = h11.Request(method="GET", target="/", headers=[("host", "x")]), b""
    while not isinstance(event := state.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            state.receive_data(await reader.read(65_536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
    return head, body


def _rendered(state: h11.Connection, status: int, kind: str, body: bytes) -> bytes:
    headers = [("content-type", kind), ("content-length", str(len(body))), ("mcp-session-id", "s-1")]
    events = (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage())
    return b"".join(state.send(event) or b"" for event in events)


@contextlib.asynccontextmanager
async def crm(server: Crm) -> AsyncGenerator[Crm]:
    async with serving(server.serve) as server.port:
        yield server


async def played(
    folder: Path,
    server: Crm,
    *,
    allow: str = "crm.test",
    address: str = "127.0.0.1",
    headers: Mapping[str, str] | None = None,
    vault: Vault = NO_VAULT,
    rules: bytes = ALLOW,
) -> Played:
    """A turn with one call of the server's tool, the agent's network being this."""
    names = Names()
    names.know("crm.test", [address])

    def web(network: NetworkOrder) -> Web:
        policy = EgressPolicy(tuple(map(parse_rules, network.lists)), parse_networks([LOOPBACK]))
        return Web(Admission(policy, network.gate, names, EgressLimits()), EgressLimits(), vault)

    url = f"http://crm.test:{server.port}/mcp"
    return await play(
        folder,
        McpServer("crm", url=url, headers=headers or {}),
        ACT,
        allow=(f"{allow}:{server.port}",),
        web=web,
        rules=rules,
    )


def test_a_server_at_an_address_is_used_and_left(tmp_path: Path) -> None:
    async def main() -> None:
        async with crm(Crm()) as server:
            result = (await played(tmp_path, server)).results[0]
        assert (result.status, result.content) == ("ok", "acted")
        assert server.methods == ["initialize", "notifications/initialized", "tools/list", "tools/call", ""]
        assert [head.get("mcp-session-id") for head in server.heads] == [None, *["s-1"] * 4]
        assert [head.get("mcp-protocol-version") for head in server.heads] == [None, *["2025-03-26"] * 4]
        assert server.heads[-1][""] == "DELETE"

    run(main())


def test_an_answer_may_be_a_stream_with_word_in_between(tmp_path: Path) -> None:
    async def main() -> None:
        async with crm(Crm(streams=True)) as server:
            seen = await played(tmp_path, server)
        assert seen.results[0].content == "acted"
        assert len(seen.payloads("protocols/MCP/notifications/message")) == 3

    run(main())


def test_the_guardian_is_asked_about_the_address_and_may_refuse_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with crm(Crm()) as server:
            seen = await played(tmp_path, server, rules=DENY_EGRESS)
        (asked,) = seen.payloads("steps/toolCallRequest")
        assert (asked["tool"], asked["operation"]) == ({"name": "egress", "provider": "turnkeeper"}, "mcp")
        assert (seen.names, server.methods) == ([], [])

    run(main())


def test_what_the_agents_network_does_not_list_is_not_spoken_to(tmp_path: Path) -> None:
    async def main() -> None:
        async with crm(Crm()) as server:
            seen = await played(tmp_path, server, allow="other.test")
        assert (seen.names, server.methods) == ([], [])
        assert "sandbox.egress_denied" in [kind for kind, _ in seen.events]

    run(main())


def test_a_name_that_leads_into_a_private_network_is_not_spoken_to(tmp_path: Path) -> None:
    async def main() -> None:
        async with crm(Crm()) as server:
            seen = await played(tmp_path, server, address="10.0.0.1")
        assert (seen.names, server.methods) == ([], [])

    run(main())


def test_a_status_that_is_no_answer_costs_the_tools_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with crm(Crm(status=500)) as server:
            seen = await played(tmp_path, server)
        assert (seen.names, server.methods) == ([], ["initialize"])

    run(main())


def test_a_secret_goes_out_in_a_header_and_does_not_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with crm(Crm(echoes=" with s3cret-value")) as server:
            host = parse_secret_host(f"crm.test:{server.port}")
            secret = BoxSecret("CRM_TOKEN", "tkp_placeholder", (host,), "s3cret-value")
            seen = await played(
                tmp_path,
                server,
                headers={"authorization": "Bearer tkp_placeholder"},
                vault=Vault(BoxSecrets([secret])),
            )
        assert {head["authorization"] for head in server.heads} == {"Bearer s3cret-value"}
        assert seen.results[0].content == "acted with tkp_placeholder"

    run(main())


def test_a_header_that_names_a_secret_the_session_has_not_is_no_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with crm(Crm()) as server:
            seen = await played(tmp_path, server, headers={"authorization": "Bearer ${NOBODYS}"})
        assert (seen.names, server.heads) == ([], [])

    run(main())
