"""Hostile input on every door of a running server: no 5xx, no hang, no growing memory, and the next user is served.

A bounded corpus, over loopback. What a person would see is all that is asserted.
"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest
from tests.acceptance.outside_agent import OutsideAgent
from tests.acceptance.server import Json, Server
from tests.acceptance.stub import StubModel

ANSWER_TIMEOUT_S = 15.0
MAX_GROWTH_BYTES = 200 * 1024 * 1024
DEEP = 100_000
REGISTRY_CODES = {*range(-32007, -31999), -32600, -32601, -32602}

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(300)]

BODIES: dict[str, bytes] = {
    "empty": b"",
    "not json": b"{nope",
    "not an object": b"[1,2,3]",
    "nan": b'{"name": NaN}',
    "infinity": b'{"name": 1e999}',
    "huge integer": b'{"name": ' + b"9" * 5000 + b"}",
    "lone surrogate": b'{"name": "\\ud800"}',
    "not utf-8": b'{"name": "\xff\xfe"}',
    "nul": b'{"name": "a\\u0000b"}',
    "duplicate member": b'{"name": "a", "name": "b"}',
    "deep arrays": b'{"name": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep open": b"[" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "two mebibytes": b'{"name": "' + b"x" * (2 * 1024 * 1024) + b'"}',
    "wrong types": b'{"agent_id": 1, "input": {}, "metadata": [], "budget": "all", "output_schema": true}',
    "null everywhere": b'{"agent_id": null, "input": null, "metadata": null, "name": null, "model": null}',
    "prototype": b'{"__proto__": {"a": 1}, "constructor": 1}',
    "many keys": b"{" + b",".join(b'"k%d":1' % i for i in range(20_000)) + b"}",
}
PATHS = (
    "/v1/agents",
    "/v1/sessions",
    "/v1/sessions/ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB/turns",
    "/v1/sessions/ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB/close",
    "/v1/turns/trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB/cancel",
    "/acs",
)
QUERIES = (
    "/v1/sessions?limit=-1",
    "/v1/sessions?limit=99999999999999999999",
    "/v1/sessions?after=%00",
    "/v1/turns?after=%F0%9F%92%A9&order=sideways",
    "/v1/turns/not-an-id",
    "/v1/turns/trn_ZZZZZZZZZZZZZZZZZZZZZZZZZZ",
    "/v1/turns/" + "x" * 4000,
    "/v1/turns/trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB?wait_ms=1e9",
    "/v1/events/..%2f..%2fetc%2fpasswd",
    "/v1/sessions/ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB/events?after=-5&limit=0",
    "/v1/sessions/ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB/events/stream?after=99999999999999999999999",
    "/schemas/../../etc/passwd",
    "/schemas/2026-12-01/%2e%2e%2fusage.json",
)
SCHEMAS: dict[str, str] = {
    "remote reference": '{"$ref": "http://127.0.0.1:1/x.json"}',
    "file reference": '{"$ref": "file:///etc/passwd"}',
    "foreign dialect": '{"$schema": "http://json-schema.org/draft-04/schema#"}',
    "self reference": '{"$ref": "#"}',
    "mutual references": '{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}',
    "exponential": json.dumps(
        {
            "$defs": {
                f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(30)
            }
            | {"d30": {"type": "object"}},
            "$ref": "#/$defs/d0",
        }
    ),
    "evil pattern": '{"type": "string", "pattern": "^(a+)+$"}',
    "broken pattern": '{"type": "string", "pattern": "(["}',
    "deep": '{"not":' * 200 + "{}" + "}" * 200,
    "boolean": "false",
    "not a schema": '{"type": "banana"}',
    "huge bound": '{"type": "string", "minLength": 99999999999999999999}',
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the whole corpus, so that damage by one input shows in the next."""
    with (
        StubModel() as model,
        Server(tmp_path_factory.mktemp("hostile"), model.config(), environment={"STUB_KEY": "k"}) as running,
    ):
        yield running


def resident_bytes(server: Server) -> int:
    """The server's own memory."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("path", PATHS)
def test_a_hostile_body_gets_a_clear_refusal(server: Server, path: str, name: str) -> None:
    """4xx with a problem that has a code (or a JSON-RPC error at `/acs`), within a bounded time."""
    with server.client(timeout_s=ANSWER_TIMEOUT_S) as client:
        answer = client.post(path, content=BODIES[name], headers={"Content-Type": "application/json"})
    if path == "/acs":
        assert answer.status_code in {200, 413}
        document = answer.json()
        for each in cast("list[Json]", document if isinstance(document, list) else [document]):
            assert each["error"]["code"] in {-32700, -32600}
        return
    assert 400 <= answer.status_code < 500, answer.text[:300]
    problem = answer.json()
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert problem["code"]
    assert problem["detail"]
    assert problem["request_id"] == answer.headers["request-id"]


@pytest.mark.parametrize("path", QUERIES)
def test_a_hostile_path_or_query_gets_a_clear_refusal(server: Server, path: str) -> None:
    """4xx, never a stack trace and never a file."""
    with server.client(timeout_s=ANSWER_TIMEOUT_S) as client:
        answer = client.get(path)
    assert 400 <= answer.status_code < 500, answer.text[:300]
    assert "root:" not in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_hostile_output_schema_is_refused_or_harmless(server: Server, name: str) -> None:
    """202 or 422 in bounded time; a turn that was accepted still ends."""
    agent = server.post("/v1/agents", {"name": "a", "model": {"provider": "stub", "id": "m"}, "instructions": "x"})
    session = server.post("/v1/sessions", {"agent_id": agent["id"]})
    body = f'{{"input": "text=hi", "output_schema": {SCHEMAS[name]}}}'
    with server.client(timeout_s=ANSWER_TIMEOUT_S) as client:
        answer = client.post(
            f"/v1/sessions/{session['id']}/turns", content=body, headers={"Content-Type": "application/json"}
        )
    assert answer.status_code in {202, 400, 422}, answer.text[:300]
    if answer.status_code == 202:
        assert server.ended(answer.json()["id"])["status"] in {"completed", "failed"}


def test_raw_sockets_that_stall_or_lie_do_not_stop_the_next_user(server: Server) -> None:
    """Half requests, endless headers and false lengths are held while another user is served."""
    openings = (
        b"POST /acs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{",
        b"POST /v1/agents HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/agents HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n",
        b"GET / HTTP/1.1\r\n" + b"X-A: " + b"a" * 100_000 + b"\r\n",
        b"\x00\x01\x02\x03\x04",
    )
    held = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in openings]
    for connection, opening in zip(held, openings, strict=True):
        connection.sendall(opening)
    assert httpx.get(f"{server.url}/healthz", timeout=ANSWER_TIMEOUT_S, trust_env=False).status_code == 200
    for connection in held:
        connection.close()


def test_an_authenticated_outsider_with_odd_payloads_gets_decisions_or_registry_codes(server: Server) -> None:
    """Signed nonsense: nothing outside the registry, and the session goes on."""
    agent = OutsideAgent(f"{server.url}/acs", server.data_dir / "guardian" / "default.key")
    agent.hello()
    odd: list[tuple[str, dict[str, object]]] = [
        ("steps/toolCallRequest", {}),
        ("steps/toolCallRequest", {"tool": {"name": "x" * 50_000}, "arguments": {}}),
        ("steps/toolCallRequest", {"tool": {"name": "shell"}, "arguments": {"a": 1}}),
        ("steps/turnEnd", {"turn_id": "", "outcome": "won"}),
        ("steps/nothing", {}),
        ("trace/x", {}),
        ("protocols/MCP/tools/call", {}),
        ("wrapped:mcp-2025-06-18/tools/call", {}),
    ]
    for method, payload in odd:
        request_id, body = agent.signed(method, payload)
        answer = httpx.post(f"{server.url}/acs", content=body, timeout=ANSWER_TIMEOUT_S, trust_env=False)
        assert answer.status_code == 200, (request_id, method)
        document = answer.json()
        assert "result" in document or document["error"]["code"] in set(range(-32007, -31999)) | {
            -32601,
            -32602,
            -32600,
        }
    assert agent.call_tool(None) in {"allow", "deny"}


def test_memory_stays_bounded_over_the_corpus(server: Server) -> None:
    """Ten rounds of the largest bodies leave the server about as large as it was."""
    before = resident_bytes(server)
    with server.client(timeout_s=ANSWER_TIMEOUT_S) as client:
        for _ in range(10):
            for name in ("two mebibytes", "deep arrays", "deep objects", "many keys"):
                client.post("/v1/agents", content=BODIES[name], headers={"Content-Type": "application/json"})
                client.post("/acs", content=BODIES[name])
    assert resident_bytes(server) - before < MAX_GROWTH_BYTES
