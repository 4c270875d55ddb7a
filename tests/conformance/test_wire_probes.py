"""The probes that Guardians are tried with from outside (issue 184 of the standard, and the external harness).

Every one runs over the HTTP door's own application.
"""

import asyncio
import base64
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import orjson
import pytest
from tests.vectors.reading import read_vectors

from turnkeeper.acs import Keyring, SessionKey, build_client_hello, build_request, sign_request, verify_response
from turnkeeper.clock import render_time
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.http import guardian_app
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.shipped import default_rules
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.testing.fake_clock import FakeClock

PROBES = read_vectors("wire-probes")["probes"]
KEYRING = Keyring({"conformance": b"c" * 32})
METHODS = ("steps/sessionStart", "steps/toolCallRequest", "steps/agentResponse", "steps/sessionEnd", "system/ping")
CONTENT = {"content": [{"type": "text", "value": "hello"}]}
STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("steps/toolCallRequest", {"tool": {"name": "shell"}, "arguments": {"command": {"value": "ls"}}}),
    "deny_tool": ("steps/toolCallRequest", {"tool": {"name": "teleport"}, "arguments": {}}),
    "broken_tool": ("steps/toolCallRequest", {"tool": {"name": "shell"}}),
    "user": ("steps/userMessage", CONTENT),
    "response": ("steps/agentResponse", CONTENT),
    "start": ("steps/sessionStart", {}),
    "end": ("steps/sessionEnd", {"reason": "completed"}),
    "ping": ("system/ping", {}),
    "wrapped": (
        "protocols/MCP/tools/call",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "shell", "arguments": {"command": "ls"}},
        },
    ),
}


@dataclass
class Prober:
    """Sends what a probe says, and keeps bytes and answers."""

    folder: Path
    methods: tuple[str, ...]
    session_id: str = field(default_factory=lambda: str(uuid4()))
    clock: FakeClock = field(default_factory=FakeClock)
    bodies: list[bytes] = field(default_factory=list[bytes])
    documents: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    answers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def key(self) -> SessionKey:
        return KEYRING.session_key("conformance", self.session_id)

    async def start(self) -> None:
        """Starts a Guardian over the folder."""
        self.guardian = Guardian(
            store=SqliteGuardianStore(self.folder / "guardian.db"),
            engine=CelEngine(default_rules()),
            clock=self.clock,
        )
        await self.guardian.start()
        app = guardian_app(self.guardian, Door("http", KEYRING), max_body_bytes=1_048_576)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://guardian")

    async def stop(self) -> None:
        """Stops the Guardian."""
        await self.client.aclose()
        await self.guardian.stop()

    async def send(self, spec: dict[str, Any]) -> None:
        """Makes one send of a probe."""
        if spec.get("do") == "restart":
            await self.stop()
            await self.start()
            return
        body = self.bodies[int(spec["again"])] if "again" in spec else self.body(spec)
        response = await self.client.post("/acs", content=body)
        assert response.status_code == 200
        self.bodies.append(body)
        self.answers.append(response.json())

    def body(self, spec: dict[str, Any]) -> bytes:
        """The bytes of a send."""
        method, payload = self.hello(spec) if spec["do"] == "hello" else STEPS[spec["do"]]
        bend = spec.get("with")
        document = build_request(
            method=method,
            rpc_id=str(uuid4()),
            request_id=self.earlier(spec, "request_id") or str(uuid4()),
            timestamp=render_time(self.clock.now() + timedelta(seconds=spec.get("offset_s", 0))),
            nonce=self.earlier(spec, "nonce") or str(uuid4()),
            agent_id="prober",
            session_id="s" * 1_025 if bend == "long_session_id" else self.session_id,
            payload=payload,
            chain_hash="0" * 64 if bend == "wrong_head" else None,
        )
        document |= {"jsonrpc": "1.0"} if bend == "jsonrpc_1" else {}
        self.documents.append(document)
        return bent(sign_request(document, self.key), bend)

    def hello(self, spec: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        payload = build_client_hello(methods=self.methods, transports=spec.get("transports", ["http"]))
        wrapped = [{"protocol": "MCP", "version": "2025-06-18"}]
        claims = {"acs_versions_supported": spec.get("versions", ["0.1.0"]), "wrapped_protocols": wrapped}
        return "handshake/hello", payload | claims

    def earlier(self, spec: dict[str, Any], member: str) -> str | None:
        return self.documents[-1]["params"][member] if spec.get("same") == member else None


def bent(document: dict[str, Any], bend: str | None) -> bytes:
    """A signed request, broken as a probe wants it."""
    params: dict[str, Any] = document["params"]
    if bend == "no_signature":
        del params["signature"]
    elif bend == "inverted_signature":
        raw = base64.b64decode(params["signature"]["value"])
        params["signature"]["value"] = base64.b64encode(bytes(byte ^ 0xFF for byte in raw)).decode()
    elif bend == "partial_signature":
        params["tenant_id"] = "added after signing"
    elif bend == "deep_payload":
        text = orjson.dumps(document).decode()
        return text.replace('"value":"ls"', '"value":' + "[" * 5_000 + "]" * 5_000).encode()
    return orjson.dumps(document)


async def probed(folder: Path, probe: dict[str, Any]) -> Prober:
    prober = Prober(folder, (*METHODS, *probe.get("methods", ())))
    await prober.start()
    try:
        if not probe.get("no_hello"):
            await prober.send({"do": "hello"})
            prober.bodies.clear()
            prober.answers.clear()
        for spec in probe["sends"]:
            await prober.send(spec)
    finally:
        await prober.stop()
    return prober


def check(prober: Prober, expected: dict[str, Any]) -> None:
    answer = prober.answers[-1]
    if expected.get("signed", True) and "s" * 9 not in prober.documents[-1]["params"]["metadata"]["session_id"]:
        verify_response(answer, prober.key)
    if "error" in expected:
        assert answer["error"]["code"] == expected["error"]
        assert {"reason", "message", *expected.get("data", ())} <= answer["error"]["data"].keys()
        assert ("signature" in answer["error"]) is expected.get("signed", "signature" in answer["error"])
        return
    result = answer["result"]
    if "hello" in expected:
        assert set(expected["hello"]) <= result.keys()
        return
    assert result["decision"] == expected["decision"]
    assert set(expected.get("reason_codes", ())) <= set(result.get("reason_codes", ()))
    if expected.get("chained"):
        heads = [earlier["result"]["chain_hash"] for earlier in prober.answers]
        assert len(set(heads)) == len(heads)


@pytest.mark.parametrize("probe", [pytest.param(probe, id=probe["id"]) for probe in PROBES])
def test_a_guardian_answers_a_probe_as_it_should(probe: dict[str, Any], tmp_path: Path) -> None:
    check(asyncio.run(probed(tmp_path, probe)), probe["expect"])


def test_every_probe_of_the_founding_list_is_here_or_has_a_reason() -> None:
    founding = Path(__file__).parents[2].parent / "shared" / "acs" / "vectors" / "wire-probes.json"
    if not founding.exists():
        pytest.skip("the founding vectors are not beside this repository")
    listed = orjson.loads(founding.read_bytes())
    wanted = {probe["id"] for probe in listed["probes"]}
    wanted |= {f"H{probe['n']}" for probe in listed["external_guardian_harness"]["probes"]}
    ours = {probe["id"].removesuffix("-step").removesuffix("-hello") for probe in PROBES}
    assert wanted == ours
