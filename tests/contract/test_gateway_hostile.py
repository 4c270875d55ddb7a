"""A box that does not play by the rules: what it sends is refused, costs nothing and shows nothing."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.gateway_rig import BODY, KEY, LIMITS, Rig, anthropic_stub, gateway_rig, stub_provider

from turnkeeper.testing.scripted_model import Script, ScriptedAnswer

YES = ScriptedAnswer(text="yes")
DEADLINE_S = 20
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\n"

Body = Callable[[Rig], Coroutine[Any, Any, None]]


def run(folder: Path, script: Script, body: Body, **options: Any) -> Rig:
    async def main() -> Rig:
        async with gateway_rig(folder, script, **options) as rig:
            await body(rig)
        return rig

    return asyncio.run(main())


async def exchanged(rig: Rig, *pieces: bytes, ends: bool = True) -> bytes:
    """What comes back for these bytes, until the gateway closes."""
    reader, writer = await asyncio.open_unix_connection(rig.handle.path)
    for piece in pieces:
        writer.write(piece)
    if ends:
        writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
    writer.close()
    return answer


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n-1\r\n",
        HEAD + b"x" * 20_000 + b": y\r\n\r\n",
        HEAD + b"a: b\r\n" * 9_000 + b"\r\n",
        HEAD + b"a : b\r\n\r\n",
        HEAD + b"a: b\x00c\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\n\r\n",
        b"POST /" + b"x" * 20_000 + b" HTTP/1.1\r\nhost: gateway\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_closed(tmp_path: Path, raw: bytes) -> None:
    async def body(rig: Rig) -> None:
        assert (await exchanged(rig, raw)).startswith((b"HTTP/1.1 4", b"HTTP/1.1 501"))
        assert (await rig.ask()).status_code == 200

    assert len(run(tmp_path, [YES], body).model.requests) == 1


@pytest.mark.parametrize("target", [b"http://api.example/v1/chat/completions", b"*", b"api.example:443"])
@pytest.mark.parametrize("method", [b"POST", b"GET", b"OPTIONS", b"CONNECT"])
def test_the_gateway_is_no_proxy(tmp_path: Path, method: bytes, target: bytes) -> None:
    async def body(rig: Rig) -> None:
        answer = await exchanged(rig, method + b" " + target + b" HTTP/1.1\r\nhost: gateway\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 4")

    assert run(tmp_path, [YES], body).model.requests == []


@pytest.mark.parametrize("host", ["api.openai.com", "127.0.0.1.evil.example", "gateway.", "169.254.169.254", ""])
def test_a_request_for_another_host_is_misdirected(tmp_path: Path, host: str) -> None:
    async def body(rig: Rig) -> None:
        answer = await rig.client.post("/v1/chat/completions", json=BODY, headers={"host": host})
        assert (answer.status_code, answer.json()["error"]["code"]) == (421, "misdirected_request")

    assert run(tmp_path, [YES], body).meter.reservations == []


@pytest.mark.parametrize(
    "target",
    [
        "/v1/chat/completions/../files",
        "//v1/chat/completions",
        "/v1/chat/completions%2f",
        "/v1/chat/completions?beta=true",
        "/v1/chat/completions#x",
        "/v1/files",
        "/v1/responses/resp_1",
        "/v1/messages/batches",
        "/v1/organizations/usage",
    ],
)
@pytest.mark.parametrize("provider", [stub_provider, anthropic_stub])
def test_nothing_else_of_the_account_is_here(tmp_path: Path, target: str, provider: Any) -> None:
    async def body(rig: Rig) -> None:
        raw = f"POST {target} HTTP/1.1\r\nhost: gateway\r\ncontent-length: 0\r\n\r\n".encode()
        assert (await exchanged(rig, raw)).startswith(b"HTTP/1.1 404 ")

    assert run(tmp_path, [YES], body, provider_for=provider).model.requests == []


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        answer = await exchanged(rig, HEAD + b"content-length: 9\r\n\r\n{", ends=False)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"request_timeout" in answer

    run(tmp_path, [], body, limits=replace(LIMITS, request_timeout_ms=50))


def test_requests_sent_ahead_are_answered_in_order(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        raw = b'{"model": "m1", "messages": [{"role": "user"}]}'
        one = HEAD + b"content-length: " + str(len(raw)).encode() + b"\r\n\r\n" + raw
        reader, writer = await asyncio.open_unix_connection(rig.handle.path)
        writer.write(one * 2)
        for word in (b'"one"', b'"two"'):
            assert word in await asyncio.wait_for(reader.readuntil(word), DEADLINE_S)
        writer.close()

    run(tmp_path, [ScriptedAnswer(text="one"), ScriptedAnswer(text="two")], body)


def test_a_box_that_sends_ahead_without_end_loses_its_call(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        raw = b'{"model": "m1", "messages": [{"role": "user"}]}'
        one = HEAD + b"content-length: " + str(len(raw)).encode() + b"\r\n\r\n" + raw
        assert await exchanged(rig, one, b"x" * 200_000, ends=False) == b""
        await rig.meter.wait_until(lambda: len(rig.meter.settlements) == 1)

    run(tmp_path, [ScriptedAnswer(text="late", delay_ms=60_000)], body)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.binary(min_size=1, max_size=300) | st.sampled_from([HEAD, b"\r\n\r\n", b"{}", b"0\r\n"]), max_size=6)
)
def test_no_bytes_break_the_gateway_or_reach_the_provider(tmp_path: Path, pieces: list[bytes]) -> None:
    async def body(rig: Rig) -> None:
        answer = await exchanged(rig, *pieces)
        assert not answer or answer.startswith(b"HTTP/1.1 4")

    rig = run(tmp_path, [], body)

    assert (rig.model.requests, rig.meter.open_calls) == ([], 0)


@pytest.mark.parametrize("provider", [stub_provider, anthropic_stub])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        ScriptedAnswer(text=f"the key is {KEY} indeed"),
        ScriptedAnswer(status=401, error_code=f"bad {KEY}", headers={"x-key": KEY, "www-authenticate": KEY}),
        ScriptedAnswer(status=400, raw=f'{{"error": {{"message": "{KEY}", "code": "{KEY}"}}}}'.encode()),
        ScriptedAnswer(raw=f"<html>{KEY}".encode(), headers={"content-type": f"text/{KEY}"}),
        ScriptedAnswer(text="fine", headers={"set-cookie": KEY, "x-request-id": KEY, "server": KEY}),
        ScriptedAnswer(text="a b", stream_error=KEY),
    ],
)
def test_nothing_that_a_box_can_read_has_the_key_in_it(
    tmp_path: Path, provider: Any, stream: bool, answer: ScriptedAnswer
) -> None:
    async def body(rig: Rig) -> None:
        path = "/v1/messages" if provider is anthropic_stub else "/v1/chat/completions"
        asked = BODY | {"max_tokens": 300, "stream": stream}
        response = await rig.client.post(path, json=asked, headers={"authorization": "Bearer mine"})
        models = await rig.client.get("/v1/models")
        readable = [response.text, str(response.headers), models.text, str(models.headers), *_texts_in(tmp_path)]
        assert not [text for text in readable if KEY in text or KEY[3:-3] in text]

    seen = run(tmp_path, [answer] * 3, body, provider_for=provider).model.requests[0]

    assert KEY in str(seen.headers)
    assert "mine" not in str(seen.headers)


def _texts_in(folder: Path) -> list[str]:
    return [path.name + (path.read_text() if path.is_file() else "") for path in folder.rglob("*")]


def test_connections_over_the_cap_do_not_hinder_those_within(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        idle = [await asyncio.open_unix_connection(rig.handle.path) for _ in range(LIMITS.max_connections - 1)]
        assert (await rig.ask()).status_code == 200
        with pytest.raises(httpx.TransportError):
            async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(rig.handle.path))) as other:
                await other.get("http://gateway/v1/models")
        for _, writer in idle:
            writer.close()

    run(tmp_path, [YES], body)
