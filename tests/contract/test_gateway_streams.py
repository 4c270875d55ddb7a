"""Streams through the gateway, in each protocol: what the box reads, what the ledger is told, however one ends."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.contract.gateway_rig import (
    BODY,
    KEY,
    LIMITS,
    Rig,
    anthropic_stub,
    gateway_rig,
    raw_provider,
    stub_provider,
)

from turnkeeper.sandbox.metering import CallUsage
from turnkeeper.sandbox.providers import Provider
from turnkeeper.testing.memory_meter import MemoryMeter
from turnkeeper.testing.scripted_model import Script, ScriptedAnswer, ScriptedCall, ScriptedUsage

USAGE = ScriptedUsage(100, 20, cached_tokens=30, reasoning_tokens=5)
ANSWER = ScriptedAnswer(text="one two three", tool_calls=(ScriptedCall("t", '{"a": 1}'),), usage=USAGE)
SLOW = ScriptedAnswer(text="a b c d e f g h", event_delay_ms=60_000)
COUNTED = CallUsage(100, 30, 0, 20, 5)


@dataclass(frozen=True, slots=True)
class Wire:
    """One protocol, as a client in the box speaks it."""

    path: str
    body: dict[str, object]
    provider: Callable[[str], Provider]
    end: str
    counted: CallUsage = COUNTED


ASKED: dict[str, object] = {"model": "m1", "stream": True}
CHAT = Wire("/v1/chat/completions", BODY | ASKED, stub_provider, "data: [DONE]\n\n")
RESPONSES = Wire("/v1/responses", ASKED | {"input": "hi"}, stub_provider, "")
MESSAGES = Wire(
    "/v1/messages?beta=true",
    BODY | ASKED | {"max_tokens": 900},
    anthropic_stub,
    'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    replace(COUNTED, reasoning_tokens=0),
)
WIRES = pytest.mark.parametrize("wire", [CHAT, RESPONSES, MESSAGES], ids=["chat", "responses", "messages"])

Body = Callable[[Rig], Coroutine[Any, Any, None]]


def run(folder: Path, wire: Wire, script: Script, body: Body, **options: Any) -> Rig:
    async def main() -> Rig:
        async with gateway_rig(
            folder, script, provider_for=options.pop("provider_for", wire.provider), **options
        ) as rig:
            await body(rig)
        return rig

    return asyncio.run(main())


async def ask(rig: Rig, wire: Wire, **members: object) -> httpx.Response:
    return await rig.client.post(wire.path, json=wire.body | members)


def events_of(text: str) -> list[dict[str, Any]]:
    lines = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {"))
    return [json.loads(line) for line in lines]


@WIRES
def test_a_stream_reaches_the_box_and_is_settled_with_the_providers_count(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        response = await ask(rig, wire)
        assert response.headers["content-type"].startswith("text/event-stream")
        assert all(f'"{word}"' in response.text for word in ("one", " two", " three"))
        assert response.text.endswith(wire.end)

    rig = run(tmp_path, wire, [ANSWER], body)

    settled = rig.meter.settlements[0]
    assert settled.usage == wire.counted
    assert settled.outcome.first_token_ms is not None
    assert settled.outcome.first_token_ms <= settled.outcome.latency_ms
    assert (rig.meter.open_calls, rig.handle.last_error, settled.outcome.accepted) == (0, None, True)


@WIRES
def test_a_whole_answer_is_counted_alike(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        assert "one two three" in (await ask(rig, wire, stream=False)).text

    rig = run(tmp_path, wire, [ANSWER], body)

    assert (rig.meter.settlements[0].usage, rig.model.requests[0].streams) == (wire.counted, False)


@WIRES
def test_the_cap_that_was_granted_is_the_one_that_is_sent(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        await ask(rig, wire)

    rig = run(tmp_path, wire, [ANSWER], body, meter=MemoryMeter(limit_total_tokens=700))

    sent = rig.model.requests[0].body
    caps = [sent[name] for name in ("max_tokens", "max_output_tokens") if name in sent]
    assert caps == [rig.meter.reservations[0].max_output_tokens] == [700 - rig.meter.reservations[0].input_tokens]


@WIRES
def test_a_spent_budget_ends_the_client_and_no_call_is_made(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        response = await ask(rig, wire)
        assert response.status_code == (400 if wire is RESPONSES else 402)
        assert response.headers["x-should-retry"] == "false"
        assert response.json()["error"]["code"] == "budget_reached"

    rig = run(tmp_path, wire, [ANSWER], body, meter=MemoryMeter(limit_total_tokens=100))

    assert (rig.handle.budget_reached, rig.model.requests) == (True, [])


@WIRES
def test_a_client_that_leaves_in_the_middle_pays_what_was_reserved(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        asking = asyncio.ensure_future(ask(rig, wire))
        await rig.model.wait_until(lambda: len(rig.model.requests) == 1)
        asking.cancel()
        await rig.model.wait_until(lambda: rig.model.abandoned == 1)
        await rig.meter.wait_until(lambda: len(rig.meter.settlements) == 1)

    rig = run(tmp_path, wire, [SLOW], body)

    settled, reserved = rig.meter.settlements[0], rig.meter.reservations[0]
    assert (settled.usage.output_tokens, settled.usage.estimated) == (reserved.max_output_tokens, True)
    assert settled.outcome.accepted


@WIRES
def test_a_gateway_that_is_closed_in_the_middle_settles_first(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        async with rig.client.stream("POST", wire.path, json=wire.body) as response:
            async for _ in response.aiter_bytes():
                break
            await rig.handle.close()
            assert (rig.meter.open_calls, len(rig.meter.settlements)) == (0, 1)

    half = replace(ANSWER, text="word " * 50, event_delay_ms=5)
    assert run(tmp_path, wire, [half], body).meter.settlements[0].usage.estimated


@WIRES
def test_a_provider_that_breaks_off_ends_in_an_error_event_and_an_estimate(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        response = await ask(rig, wire)
        assert response.status_code == 200
        assert events_of(response.text)[-1]["error"]["code"] == "provider_connection_lost"

    rig = run(tmp_path, wire, [replace(ANSWER, cut_after_events=5), ANSWER], body)

    assert rig.meter.settlements[0].usage.estimated
    assert rig.meter.settlements[0].usage.output_tokens == rig.meter.reservations[0].max_output_tokens
    assert (len(rig.model.requests), rig.retries) == (1, [])
    assert rig.handle.last_error is not None


@WIRES
def test_an_error_in_place_of_the_first_event_is_tried_again(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        assert (await ask(rig, wire)).text.endswith(wire.end)

    rig = run(tmp_path, wire, [ScriptedAnswer(text="", stream_error="overloaded_error"), ANSWER], body)

    assert [retry.failure.code for retry in rig.retries] == ["provider_unavailable"]
    assert rig.meter.settlements[0].usage == wire.counted


@WIRES
def test_an_error_after_the_first_event_is_passed_on_in_our_words(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        response = await ask(rig, wire)
        assert "scripted model" not in response.text
        assert events_of(response.text)[-1]["error"]["code"] == "provider_rate_limited"

    answer = replace(ANSWER, stream_error="rate_limit_exceeded", error_after=4)
    if wire is MESSAGES:
        answer = replace(answer, stream_error="rate_limit_error")

    assert run(tmp_path, wire, [answer, ANSWER], body).retries == []


@WIRES
def test_a_stream_without_a_count_is_estimated_from_its_text(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        assert (await ask(rig, wire)).text.endswith(wire.end)

    rig = run(tmp_path, wire, [replace(ANSWER, usage=None, omit_usage=True)], body)

    usage = rig.meter.settlements[0].usage
    assert usage.estimated
    assert 0 < usage.output_tokens < 100
    assert usage.input_tokens == rig.meter.reservations[0].input_tokens


@WIRES
def test_the_end_of_a_stream_comes_when_the_call_is_settled(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        rig.meter.settling = asyncio.Event()
        asking = asyncio.ensure_future(ask(rig, wire))
        await rig.meter.wait_until(lambda: rig.meter.settle_calls == 1)
        await asyncio.wait({asking}, timeout=0.05)
        assert not asking.done()
        rig.meter.settling.set()
        assert (await asking).text.endswith(wire.end)

    run(tmp_path, wire, [ANSWER], body)


@WIRES
def test_a_stream_of_more_text_than_its_tokens_can_hold_is_cut(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        capped = {"max_output_tokens": 1} if wire is RESPONSES else {"max_tokens": 1}
        response = await ask(rig, wire, **capped)
        assert events_of(response.text)[-1]["error"]["code"] == "provider_bad_answer"

    run(tmp_path, wire, [replace(ANSWER, text="word " * 40, event_delay_ms=1)], body)


def test_a_client_that_does_not_read_stops_the_provider(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        async with rig.client.stream("POST", CHAT.path, json=CHAT.body) as response:
            assert response.status_code == 200
            await rig.meter.wait_until(lambda: len(rig.meter.settlements) == 1)
        await rig.model.wait_until(lambda: rig.model.abandoned == 1)

    flood = replace(ANSWER, text=("x" * 8_000 + " ") * 1_000)
    rig = run(tmp_path, CHAT, [flood], body, limits=replace(LIMITS, call_timeout_ms=500))

    assert rig.meter.settlements[0].usage.output_tokens == rig.meter.reservations[0].max_output_tokens


@WIRES
@pytest.mark.parametrize(
    "raw",
    [
        b"data: {}\n\n" * 3,
        b"data: nonsense\n\n",
        b"data: [1]\n\n",
        b"data: " + b"x" * 9_000_000 + b"\n\n",
        b": only a comment\n\n",
        b"",
    ],
)
def test_a_stream_that_is_none_ends_in_an_error(tmp_path: Path, wire: Wire, raw: bytes) -> None:
    async def main() -> Rig:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        async with raw_provider(head + raw) as url:

            def broken(_: str) -> Provider:
                return wire.provider(url)

            async with gateway_rig(tmp_path, [], provider_for=broken) as rig:
                response = await ask(rig, wire)
                told = response.json() if response.status_code != 200 else events_of(response.text)[-1]
                assert told["error"]["code"] in {"provider_bad_answer", "provider_connection_lost"}
            return rig

    rig = asyncio.run(main())

    assert (rig.meter.open_calls, rig.meter.settlements[0].usage.estimated) == (0, True)


@WIRES
def test_a_whole_answer_where_a_stream_was_asked_for_is_none(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        assert (await ask(rig, wire)).json()["error"]["code"] == "provider_bad_answer"

    run(tmp_path, wire, [ScriptedAnswer(raw=b'{"choices": []}')], body)


@WIRES
def test_an_event_with_the_key_in_it_stays_outside(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        text = (await ask(rig, wire)).text
        assert KEY not in text
        assert "provider_bad_answer" in text

    run(tmp_path, wire, [ScriptedAnswer(text=f"a b {KEY} c", event_delay_ms=1)], body)


@WIRES
def test_a_name_the_client_has_for_the_model_is_the_one_it_reads_back(tmp_path: Path, wire: Wire) -> None:
    async def body(rig: Rig) -> None:
        answers = [await ask(rig, wire, model="small-9"), await ask(rig, wire, model="large-1")]
        assert answers[0].status_code == 200
        assert '"small-9"' in answers[0].text
        assert answers[1].status_code == (400 if wire is RESPONSES else 403)

    rig = run(tmp_path, wire, [ANSWER], body, aliases=("small-*",))

    assert [seen.body["model"] for seen in rig.model.requests] == ["m1"]


def test_the_key_goes_out_as_anthropic_takes_it_with_the_betas_that_reach_no_further(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        betas = "claude-code-20250219,context-1m-2025-08-07,interleaved-thinking-2025-05-14,bad name"
        headers = {"anthropic-beta": betas, "anthropic-version": "1999-01-01", "x-api-key": "box"}
        response = await rig.client.post(MESSAGES.path, json=MESSAGES.body, headers=headers)
        assert KEY not in response.text + str(response.headers)

    seen = run(tmp_path, MESSAGES, [ANSWER], body).model.requests[0].headers

    assert (seen["x-api-key"], seen["anthropic-version"]) == (KEY, "2023-06-01")
    assert seen["anthropic-beta"] == "claude-code-20250219,interleaved-thinking-2025-05-14"
    assert "authorization" not in seen


def test_what_was_cached_and_written_is_told_apart_for_anthropic(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        await ask(rig, MESSAGES)

    usage = ScriptedUsage(1_000, 20, cached_tokens=600, cache_write_tokens=300)
    rig = run(tmp_path, MESSAGES, [replace(ANSWER, usage=usage)], body)

    assert rig.meter.settlements[0].usage == CallUsage(1_000, 600, 300, 20)


def test_a_streaming_client_of_chat_gets_the_count_only_if_it_asked(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        assert '"usage"' not in (await ask(rig, CHAT)).text
        assert '"usage"' in (await ask(rig, CHAT, stream_options={"include_usage": True})).text

    run(tmp_path, CHAT, [ANSWER, ANSWER], body)


def test_models_and_the_count_of_tokens_are_answered_here(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        models = (await rig.client.get("/v1/models?limit=1000")).json()
        assert [entry["id"] for entry in models["data"]] == ["m1"]
        assert (await rig.client.get("/v1/models/m1")).json()["id"] == "m1"
        if rig.handle.path.parent.name == "anthropic":
            count = await rig.client.post("/v1/messages/count_tokens?beta=true", json=BODY)
            assert count.json()["input_tokens"] > 5

    for name, provider in (("openai", stub_provider), ("anthropic", anthropic_stub)):
        (tmp_path / name).mkdir()
        rig = run(tmp_path / name, CHAT, [], body, provider_for=provider)
        assert (rig.model.requests, rig.meter.reservations) == ([], [])
