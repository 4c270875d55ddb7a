"""A hostile corpus before every endpoint: a refusal that names the trouble, never an error of ours."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from tests.integration.api_door import AGENT, Api, serve

from turnkeeper.api.deps import ApiSettings

DEEP = 100_000
UNKNOWN = "01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
BODIES: dict[str, bytes] = {
    "empty": b"",
    "white space": b" \n",
    "not json": b"{nope",
    "list": b"[1,2,3]",
    "string": b'"x"',
    "null": b"null",
    "nan": b'{"name":NaN}',
    "infinity": b'{"name":-Infinity}',
    "too large a number": b'{"name":1e999}',
    "huge integer": b'{"name":' + b"9" * 5_000 + b"}",
    "integer of 300 digits": b'{"budget":{"max_model_calls":' + b"9" * 300 + b"}}",
    "lone surrogate": b'{"name":"\\ud800"}',
    "lone surrogate as a name": b'{"\\udc00":1}',
    "not utf-8": b'{"name":"\xff\xfe"}',
    "utf-16": '{"name":"a"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"name":"a"}',
    "nul": b'{"name":"a\\u0000b","title":"\\u0000","input":"\\u0000","reason":"\\u0000"}',
    "raw nul": b'{"name":"a\x00b"}',
    "duplicate member": b'{"name":"a","name":"b"}',
    "duplicate deep inside": b'{"metadata":{"a":{"b":1,"b":2}}}',
    "deep lists": b'{"metadata":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep and open": b'{"a":' * DEEP,
    "two mebibytes": b'{"name":"' + b"x" * (2 << 20) + b'"}',
    "many members": b"{" + b",".join(b'"k%d":1' % number for number in range(20_000)) + b"}",
    "long name": b'{"' + b"k" * 100_000 + b'":1}',
    "wrong types": b'{"agent_id":1,"input":{},"metadata":[],"budget":"all","output_schema":7,"model":[],"tools":{}}',
    "nulls": b'{"agent_id":null,"input":null,"metadata":null,"name":null,"model":null,"mode":null}',
    "wrong inside": b'{"model":{"provider":1,"id":[],"params":7},"limits":{"timeout_ms":"1"},"tools":[1]}',
    "parts": b'{"input":[null,{},{"type":7},{"type":"text","text":7},{"type":"json"}]}',
    "prototype": b'{"__proto__":{"a":1},"constructor":1}',
    "trailing": b'{"name":"a"}{"name":"b"}',
}
POSTS = (
    "/v1/agents",
    "/v1/sessions",
    "/v1/sessions/{session}/turns",
    "/v1/sessions/{session}/close",
    "/v1/turns/{turn}/cancel",
    f"/v1/sessions/ses_{UNKNOWN}/turns",
    f"/v1/turns/trn_{UNKNOWN}/cancel",
    "/v1/turns",
    "/v1/turns/{turn}/messages",
    "/v1/approvals/x/decision",
)
GETS = (
    "/v1/agents",
    "/v1/agents/{agent}",
    "/v1/sessions",
    "/v1/sessions/{session}",
    "/v1/sessions/{session}/turns",
    "/v1/sessions/{session}/events",
    "/v1/turns",
    "/v1/turns/{turn}",
    "/v1/turns/{turn}/submissions",
    "/v1/turns/{turn}/events",
    f"/v1/events/evt_{UNKNOWN}",
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/schemas/2026-12-01/usage.json",
)
STREAMS = ("/v1/sessions/{session}/events/stream", "/v1/turns/{turn}/events/stream")
VALUES = (
    "-1",
    "0",
    "1.5",
    "1e9",
    "9" * 30,
    "%00",
    "%ff",
    "%F0%9F%92%A9",
    "%D9%A1",
    "x" * 5_000,
    "",
    "' OR 1=1 --",
    "..%2f..%2fetc%2fpasswd",
    "{{7*7}}",
)
NAMES = ("limit", "after", "order", "wait_ms", "types", "turn_id", "agent_id", "deltas", "zz", "%00", "metadata[a")
SEGMENTS = ("%00", "..", "%2e%2e%2f", "x" * 4_000, "trn_" + "Z" * 26, "%F0%9F%92%A9", "ses_%0a", "'", "*", "trn_")
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"X-Correlation-Id", b"x" * 10_000),
    (b"X-Correlation-Id", b"\xff\xfe"),
    (b"Api-Version", b"\xff"),
    (b"Last-Event-ID", b"-1"),
    (b"Last-Event-ID", b"9" * 100),
    (b"Content-Length", b"-5"),
    (b"Content-Type", b"\xff" * 100),
    (b"Content-Encoding", b"br"),
    (b"Authorization", b"Bearer " + b"\xff" * 50),
    (b"Authorization", b"Bearer tk_" + b"a" * 100_000),
    (b"Idempotency-Key", b"\xff"),
    (b"Idempotency-Key", b"k" * 100_000),
    (b"Accept", b"application/cloudevents+json"),
    (b"Expect", b"nonsense"),
)


async def fill(api: Api) -> dict[str, str]:
    """What the corpus's paths refer to."""
    session_id = await api.session()
    turn = await api.turn(session_id)
    return {"session": session_id, "turn": turn["id"], "agent": turn["agent_id"]}


def check(answer: httpx.Response, *, context: object) -> None:
    """Any answer but an error of ours; refusals are whole problems."""
    assert answer.status_code < 500, (context, answer.text[:500])
    assert answer.headers["Request-Id"], context
    assert "Traceback" not in answer.text
    if answer.status_code >= 400:
        problem: dict[str, Any] = answer.json()
        assert answer.headers["content-type"] == "application/problem+json", context
        assert problem["code"], context
        assert problem["hint"], context


@pytest.mark.parametrize("path", POSTS)
def test_no_body_gets_more_than_a_refusal(tmp_path: Path, path: str) -> None:
    async def work(api: Api) -> None:
        names = await fill(api)
        for name, body in BODIES.items():
            for media_type in ("application/json", "text/plain"):
                answer = await api.client.post(path.format(**names), content=body, headers={"Content-Type": media_type})
                check(answer, context=(path, name))

    serve(tmp_path, work)


@pytest.mark.parametrize("path", GETS)
def test_no_query_gets_more_than_a_refusal(tmp_path: Path, path: str) -> None:
    async def work(api: Api) -> None:
        target = path.format(**await fill(api))
        for name in NAMES:
            for value in VALUES:
                check(await api.client.get(f"{target}?{name}={value}"), context=(path, name, value))
            check(await api.client.get(f"{target}?{name}=1&{name}=2"), context=(path, name))

    serve(tmp_path, work)


@pytest.mark.parametrize("path", STREAMS)
def test_no_start_of_a_stream_gets_more_than_a_refusal(tmp_path: Path, path: str) -> None:
    async def work(api: Api) -> None:
        target = path.format(**await fill(api))
        for name in ("after", "types", "turn_id", "deltas", "zz"):
            for value in (*VALUES, "99"):
                check(await api.client.get(f"{target}?{name}={value}"), context=(path, name, value))

    # A stream that is opened after all ends at once.
    serve(tmp_path, work, ApiSettings(sse_max_age_ms=1))


def test_no_path_or_method_gets_more_than_a_refusal(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        for segment in SEGMENTS:
            for path in (f"/v1/{segment}", f"/v1/turns/{segment}", f"/v1/sessions/{segment}/events", f"/{segment}"):
                for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW"):
                    answer = await api.client.request(method, path)
                    assert answer.status_code < 500, (method, path)

    serve(tmp_path, work)


def test_no_header_gets_more_than_a_refusal(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        names = await fill(api)
        for path in (*GETS, *POSTS):
            for name, value in HEADERS:
                method = "POST" if path in POSTS and path != "/v1/agents" else "GET"
                answer = await api.client.request(
                    method, path.format(**names), headers=[(name, value)], content=b"{}" if method == "POST" else b""
                )
                check(answer, context=(path, name, value[:20]))

    serve(tmp_path, work)


def mutations(seed: int) -> Iterator[bytes]:
    """Good bodies with bytes changed, doubled and cut."""
    source = random.Random(seed)
    good = (
        orjson.dumps(AGENT),
        b'{"input":[{"type":"json","value":{"n":1.50}}],"metadata":{"a":"\\u00e9"},"budget":{"max_model_calls":1}}',
        b'{"input":"hi","output_schema":{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{}}}}',
    )
    for _ in range(150):
        body = bytearray(source.choice(good))
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(body))
            action = source.randrange(3)
            if action == 0:
                body[at] = source.randrange(256)
            elif action == 1:
                body[at:at] = body[at : at + source.randrange(8)]
            else:
                del body[at : at + source.randrange(8)]
            body = body or bytearray(b"{")
        yield bytes(body)


@pytest.mark.parametrize("seed", range(3))
def test_no_damaged_body_gets_more_than_a_refusal(tmp_path: Path, seed: int) -> None:
    async def work(api: Api) -> None:
        names = await fill(api)
        for body in mutations(seed):
            for path in ("/v1/agents", "/v1/sessions/{session}/turns"):
                answer = await api.client.post(
                    path.format(**names), content=body, headers={"Content-Type": "application/json"}
                )
                if answer.status_code != 429:
                    check(answer, context=body)

    serve(tmp_path, work, queue_depth=10_000)
