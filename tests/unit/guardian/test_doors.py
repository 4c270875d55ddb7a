"""The same traffic gets the same answers in process, over HTTP and over stdio, alone and in batches."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.guardian.kit import (
    DENY_ALL,
    KEYRING,
    MESSAGE,
    STRANGERS,
    TOOL_CALL,
    Agent,
    House,
    engine,
    greeted,
    running,
)

from turnkeeper.acs import Verdict, build_client_hello
from turnkeeper.acs.framing import FrameBroken, FrameReader, render_frame
from turnkeeper.acs.strictjson import DEFAULT_LIMITS, JsonRejected, item_slices
from turnkeeper.guardian.calls import OFFERED_METHODS, Door
from turnkeeper.guardian.http import guardian_app
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.guardian.stdio import MAX_SKIPPED_BYTES, serve_frames
from turnkeeper.testing.fake_clock import FakeClock

DOORS = ("in_process", "http", "stdio")
MAX_BODY_BYTES = 1_048_576
Send = Callable[[bytes], Awaitable[bytes]]


async def stdio(here: House, written: bytes) -> bytes:
    """Everything that the stdio door writes for some input and its end."""
    reader, out = asyncio.StreamReader(limit=65_536), bytearray()
    reader.feed_data(written)
    reader.feed_eof()

    async def write(frame: bytes) -> None:
        out.extend(frame)

    await serve_frames(here.guardian, Door("stdio", KEYRING), reader, write, max_body_bytes=MAX_BODY_BYTES)
    return bytes(out)


def sender(here: House, door: str) -> Send:
    """A way to send a body and get its answer."""

    async def http(body: bytes) -> bytes:
        app = guardian_app(here.guardian, Door("http", KEYRING), max_body_bytes=MAX_BODY_BYTES, path="/acs")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://guardian") as client:
            return (await client.post("/acs", content=body)).content

    async def frame(body: bytes) -> bytes:
        (answer,) = FrameReader(MAX_BODY_BYTES).feed(await stdio(here, render_frame(body)))
        return answer

    async def direct(body: bytes) -> bytes:
        return await here.guardian.answer(body, Door("in_process", KEYRING))

    return {"http": http, "stdio": frame, "in_process": direct}[door]


def script(here: House) -> list[bytes]:
    """Bodies of all kinds, the same each time."""
    agent = here.agent(session_id=str(UUID(int=1)))
    numbers = iter(range(100, 1_000))

    def body(method: str, payload: Mapping[str, object], by: Agent = agent, **members: str | None) -> bytes:
        ids = {"request_id": str(UUID(int=next(numbers))), "nonce": str(UUID(int=next(numbers)))}
        return by.body(method, payload, **(ids | members))

    hello = build_client_hello(methods=sorted(OFFERED_METHODS), transports=("http", "stdio"))
    stranger = here.agent(session_id=agent.session_id, keyring=STRANGERS)
    turn = {"turn_id": "t", "triggered_by": "user_message"}
    tool = body("steps/toolCallRequest", dict(TOOL_CALL), turn_id="t")
    return [
        body("handshake/hello", dict(hello)),
        body("steps/sessionStart", {}),
        body("steps/turnStart", turn, turn_id="t"),
        tool,
        tool,
        body("steps/toolCallRequest", dict(TOOL_CALL), stranger),
        body("steps/toolCallRequest", {"tool": {}}),
        body("steps/unknown", {}),
        body("system/ping", {"echo": "e"}),
        b"{",
        b"[]",
        b"[[]]",
        b'{"jsonrpc":"2.0"}',
        b"\xff\xfe",
        b"[" + body("steps/userMessage", dict(MESSAGE), turn_id="t") + b"," + tool + b",{},[1]]",
        body("steps/turnEnd", {"turn_id": "t", "outcome": "completed"}, turn_id="t"),
        body("steps/sessionEnd", {"reason": "completed"}),
        body("steps/toolCallRequest", dict(TOOL_CALL)),
    ]


def answers_of(folder: Path, door: str, policy: bytes) -> list[Any]:
    folder.mkdir()

    async def work(here: House) -> list[Any]:
        send = sender(here, door)
        return [orjson.loads(await send(body)) for body in script(here)]

    found = running(folder, work, policy=engine(policy), clock=FakeClock())
    # What the handshake says of the transport is the one thing that a door may say for itself.
    assert found[0]["result"].pop("selected_transport") in ("http", "stdio")
    found[0]["result"].pop("signature")
    return found


@pytest.mark.parametrize("policy", [DENY_ALL, b"version: 1\nname: a\ndefault: allow\nrules: []\n"])
def test_every_door_gives_the_same_answers(tmp_path: Path, policy: bytes) -> None:
    first, *others = [answers_of(tmp_path / door, door, policy) for door in DOORS]
    assert others == [first, first]
    assert [one["error"]["code"] for one in first if isinstance(one, dict) and "error" in one] == [
        *(-32005, -32004, -32602, -32601, -32700, -32600),
        *(-32600, -32700),
    ]


@pytest.mark.parametrize("door", DOORS)
def test_a_batch_is_answered_in_its_order_each_request_by_itself(tmp_path: Path, door: str) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        ids = [str(UUID(int=number)) for number in range(5)]
        bodies = [agent.body("steps/toolCallRequest", TOOL_CALL, request_id=one) for one in ids]
        raw = await sender(here, door)(b" [" + b" , ".join([*bodies, bodies[0], b"7"]) + b"]\n")
        answers: list[Any] = orjson.loads(raw)
        assert [answer.get("id") for answer in answers] == [*ids, ids[0], None]
        for answer, one in zip(answers, ids, strict=False):
            assert isinstance(agent.session.answer(orjson.dumps(answer), request_id=one), Verdict)
        assert len({answer["result"]["chain_hash"] for answer in answers[:5]}) == 5
        assert [answers[5]["error"]["code"], answers[6]["error"]["code"]] == [-32005, -32600]

    running(tmp_path, work)


def test_a_batch_is_bounded_and_not_nested(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        body = agent.body("steps/toolCallRequest", TOOL_CALL)
        wrong = (b"[]", b"[" + body + b",1,2]", b"[" + body, b'[{"a":1,"a":2}]')
        answers = [orjson.loads(await here.guardian.answer(batch, agent.door)) for batch in wrong]
        reasons = [answer["error"]["data"]["reason"] for answer in answers]
        assert reasons == ["batch_empty", "batch_too_large", "invalid_json", "duplicate_key"]
        (nested,) = orjson.loads(await here.guardian.answer(b"[[" + body + b"]]", agent.door))
        assert nested["error"]["data"]["reason"] == "batch_nested"
        assert isinstance(await agent.post(body), Verdict)

    running(tmp_path, work, settings=GuardianSettings(max_batch_requests=2))


def test_a_batch_records_each_request_as_it_came(tmp_path: Path) -> None:
    number = b'{"jsonrpc":"2.0","id":1e2,"x":"\\u00e9 [,]","y":[1,{"z":"}"}]}'
    assert item_slices(b"[ " + number + b" , 2 ]") == [number, b"2"]
    with pytest.raises(JsonRejected):
        item_slices(b"{}")


@given(st.lists(st.recursive(st.none() | st.integers(-9, 9) | st.text(), st.lists)))
@settings(max_examples=200)
def test_the_items_of_an_array_are_its_items(value: list[object]) -> None:
    items = item_slices(orjson.dumps(value), DEFAULT_LIMITS)
    assert [orjson.loads(item) for item in items] == value


def test_a_frame_that_is_too_large_is_answered_and_the_next_one_is_read(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = here.agent()
        ping = agent.body("system/ping", {})
        large = render_frame(b"x" * (MAX_BODY_BYTES + 1))
        first, second = FrameReader(MAX_BODY_BYTES).feed(await stdio(here, large + render_frame(ping)))
        assert orjson.loads(first)["error"]["data"]["reason"] == "too_large"
        assert b'"decision":"allow"' in second

    running(tmp_path, work)


@pytest.mark.parametrize(
    "written",
    [
        b"Content-Length: 5\r\n\r\nabc",
        b"Content-Length: 5",
        b"hello\r\n\r\n",
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
        b"A: " + b"b" * 5_000 + b"\r\n\r\n",
        b"Content-Length: %d\r\n\r\n" % (MAX_SKIPPED_BYTES + 1),
    ],
)
def test_input_that_is_no_frame_ends_the_door_with_an_answer(tmp_path: Path, written: bytes) -> None:
    async def work(here: House) -> None:
        reader, out = asyncio.StreamReader(limit=4_096), list[bytes]()
        reader.feed_data(written)
        reader.feed_eof()

        async def write(frame: bytes) -> None:
            out.append(frame)

        with pytest.raises(FrameBroken):
            await serve_frames(here.guardian, Door("stdio", KEYRING), reader, write, max_body_bytes=MAX_BODY_BYTES)
        (answer,) = FrameReader(MAX_BODY_BYTES).feed(b"".join(out))
        assert b'"code":-32600' in answer

    running(tmp_path, work)


def test_the_end_of_the_input_is_the_end_of_the_door(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        assert await stdio(here, b"") == b""

    running(tmp_path, work)
