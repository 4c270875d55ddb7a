"""The gateway over a real socket: what a box gets, what the provider sees, what the ledger is told."""

import asyncio
import stat
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from tests.contract.gateway_rig import BODY, FAST, KEY, LIMITS, Rig, client_of, gateway_rig, raw_provider, stub_provider

from turnkeeper.sandbox.gateway import CallUsage, GatewayLimits, ModelGateway, ModelSpec, SocketPathTooLong
from turnkeeper.sandbox.providers import ModelParamsRefused, Provider, local_provider, openai_provider
from turnkeeper.testing.memory_meter import MemoryMeter
from turnkeeper.testing.scripted_model import Script, ScriptedAnswer, ScriptedUsage

YES = ScriptedAnswer(text="yes", usage=ScriptedUsage(10, 2))
PATIENCE_MS = 60_000

Body = Callable[[Rig], Coroutine[Any, Any, None]]


def run(folder: Path, script: Script, body: Body, **options: Any) -> Rig:
    """Runs the body of a test against a rig; the rig is closed when this returns."""

    async def main() -> Rig:
        async with gateway_rig(folder, script, **options) as rig:
            await body(rig)
        return rig

    return asyncio.run(main())


def error_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_a_call_goes_through_and_is_settled_with_the_providers_count(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        response = await rig.ask()
        assert response.json()["choices"][0]["message"]["content"] == "yes"

    rig = run(tmp_path, [YES], body)

    settled = rig.meter.settlements[0]
    assert settled.usage == CallUsage(input_tokens=10, output_tokens=2)
    assert (settled.outcome.accepted, settled.outcome.status, settled.outcome.finish_reason) == (True, 200, "stop")
    assert (rig.meter.open_calls, rig.handle.last_error, rig.handle.budget_reached) == (0, None, False)


def test_the_gateway_adds_the_key_and_nothing_of_the_box_goes_out_but_the_request(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        headers = {"authorization": "Bearer box", "cookie": "a=b", "x-box": "1", "host": "localhost:8080"}
        response = await rig.client.post("/v1/chat/completions", json=BODY, headers=headers)
        assert KEY not in str(response.headers) + response.text

    seen = run(tmp_path, [YES], body).model.requests[0].headers

    assert seen["authorization"] == f"Bearer {KEY}"
    assert seen["host"].startswith("127.0.0.1")
    assert not {"cookie", "x-box"} & seen.keys()


def test_provider_headers_stay_outside(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        response = await rig.ask()
        assert response.headers.keys() == {"content-type", "content-length"}

    run(tmp_path, [replace(YES, headers={"x-account": "acme", "set-cookie": "a=b"})], body)


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/v1/chat/completions", (405, "method_not_allowed")),
        ("DELETE", "/v1/chat/completions", (405, "method_not_allowed")),
        ("POST", "/v1/chat/completions/", (404, "not_found")),
        ("POST", "/v1/chat/completions?x=1", (404, "not_found")),
        ("POST", "/v1/embeddings", (404, "not_found")),
        ("POST", "/v1/models", (404, "not_found")),
        ("GET", "/v1/models/m2", (404, "not_found")),
        ("POST", "/v1/messages", (404, "not_found")),
        ("GET", "/v1/responses", (400, "method_not_allowed")),
        ("POST", "/v1/responses/resp_1/cancel", (404, "not_found")),
        ("GET", "/", (404, "not_found")),
    ],
)
def test_there_are_exactly_the_completion_routes(
    tmp_path: Path, method: str, target: str, expected: tuple[int, str]
) -> None:
    async def body(rig: Rig) -> None:
        assert error_of(await rig.client.request(method, target)) == expected

    assert run(tmp_path, [YES], body).model.requests == []


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"model": "m2"}, (403, "model_not_allowed")),
        ({"functions": "f"}, (400, "parameter_not_allowed")),
        ({"messages": []}, (400, "invalid_request")),
    ],
)
def test_a_refused_request_reaches_neither_ledger_nor_provider(
    tmp_path: Path, members: dict[str, object], expected: tuple[int, str]
) -> None:
    async def body(rig: Rig) -> None:
        assert error_of(await rig.ask(**members)) == expected

    rig = run(tmp_path, [YES], body)

    assert (rig.model.requests, rig.meter.reservations) == ([], [])


def test_a_body_over_the_cap_is_not_read(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        response = await rig.client.post("/v1/chat/completions", content=b"x" * (LIMITS.max_request_bytes + 1))
        assert error_of(response) == (413, "request_too_large")

        async def chunks() -> AsyncGenerator[bytes]:
            for _ in range(100):
                yield b"x" * 1_000

        assert error_of(await rig.client.post("/v1/chat/completions", content=chunks()))[0] == 413

    run(tmp_path, [YES], body)


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\r\n\r\n",
        b"\x00" * 100,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5_000 + b"\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_answered_and_closed(tmp_path: Path, garbage: bytes) -> None:
    async def body(rig: Rig) -> None:
        reader, writer = await asyncio.open_unix_connection(rig.handle.path)
        writer.write(garbage)
        answer = await asyncio.wait_for(reader.read(), 10)
        assert answer.startswith(b"HTTP/1.1 4")
        writer.close()
        assert (await rig.ask()).status_code == 200

    run(tmp_path, [YES], body)


def test_a_client_that_waits_for_continue_is_told_to(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        reader, writer = await asyncio.open_unix_connection(rig.handle.path)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert await asyncio.wait_for(reader.readline(), 10) == b"HTTP/1.1 100 \r\n"
        writer.close()

    run(tmp_path, [], body)


def test_a_connection_carries_one_call_after_the_other(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        assert [(await rig.ask()).status_code for _ in range(3)] == [200, 200, 200]

    assert [settled.call for settled in run(tmp_path, [YES] * 3, body).meter.settlements] == [1, 2, 3]


def test_a_spent_budget_is_402_and_no_call(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        assert error_of(await rig.ask()) == (402, "budget_reached")

    rig = run(tmp_path, [YES], body, meter=MemoryMeter(limit_total_tokens=100))

    assert rig.handle.budget_reached
    assert (rig.model.requests, rig.handle.last_error) == ([], None)


def test_the_output_cap_is_what_the_ledger_grants(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        await rig.ask(max_tokens=4_000)

    rig = run(tmp_path, [YES], body, meter=MemoryMeter(limit_total_tokens=1_000))

    granted = rig.meter.reservations[0]
    assert rig.model.requests[0].body["max_tokens"] == granted.max_output_tokens == 1_000 - granted.input_tokens


def test_the_agents_parameters_are_sent(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        await rig.ask(temperature=2)

    assert run(tmp_path, [YES], body, params={"temperature": 0}).model.requests[0].body["temperature"] == 0


def test_a_call_over_the_number_at_once_waits_for_the_one_before(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        rig.meter.settling = asyncio.Event()
        first = asyncio.ensure_future(rig.ask())
        await rig.meter.wait_until(lambda: rig.meter.settle_calls == 1)
        second = asyncio.ensure_future(rig.ask())
        await asyncio.wait({second}, timeout=0.05)
        assert len(rig.meter.reservations) == 1
        rig.meter.settling.set()
        assert [(await asking).status_code for asking in (first, second)] == [200, 200]

    run(tmp_path, [YES, YES], body, limits=replace(LIMITS, max_calls_at_once=1))


def test_calls_over_the_rate_are_refused(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        assert [(await rig.ask()).status_code for _ in range(3)] == [200, 200, 429]

    run(tmp_path, [YES] * 3, body, limits=replace(LIMITS, max_calls_per_minute=2))


def test_connections_over_the_cap_are_dropped(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        kept = await asyncio.open_unix_connection(rig.handle.path)
        dropped, writer = await asyncio.open_unix_connection(rig.handle.path)
        assert await asyncio.wait_for(dropped.read(), 10) == b""
        for each in (kept[1], writer):
            each.close()

    run(tmp_path, [], body, limits=replace(LIMITS, max_connections=1))


@pytest.mark.parametrize("status", [408, 429, 500, 503, 529])
def test_a_passing_refusal_is_repeated_and_seen(tmp_path: Path, status: int) -> None:
    async def body(rig: Rig) -> None:
        assert (await rig.ask()).status_code == 200

    rig = run(tmp_path, [ScriptedAnswer(status=status), YES], body)

    assert [(retry.failure.status, retry.tries) for retry in rig.retries] == [(status, 1)]
    assert rig.meter.settlements[0].outcome.retries == 1
    assert rig.meter.settlements[0].usage == CallUsage(input_tokens=10, output_tokens=2)


@pytest.mark.parametrize(("header", "delay_ms"), [("0", 0), ("3600", 5), ("soon", 1), ("-1", 1), ("9" * 30, 1)])
def test_retry_after_is_honored_up_to_a_cap(tmp_path: Path, header: str, delay_ms: int) -> None:
    async def body(rig: Rig) -> None:
        await rig.ask()

    rig = run(tmp_path, [ScriptedAnswer(status=429, headers={"retry-after": header}), YES], body)

    assert rig.retries[0].delay_ms == delay_ms


def test_repeats_end(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        response = await rig.ask()
        assert error_of(response) == (503, "provider_unavailable")
        assert response.json()["error"]["retryable"] is True

    rig = run(tmp_path, [ScriptedAnswer(status=503)] * 9, body)

    assert len(rig.model.requests) == FAST.max_retries + 1
    assert rig.handle.last_error is not None
    settled = rig.meter.settlements[0]
    assert (settled.usage, settled.outcome.accepted, settled.outcome.status) == (CallUsage(), False, 503)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ScriptedAnswer(status=400), (400, "provider_rejected")),
        (ScriptedAnswer(status=401), (403, "provider_denied")),
        (ScriptedAnswer(status=403), (403, "provider_denied")),
        (ScriptedAnswer(status=404), (404, "provider_model_unknown")),
        (ScriptedAnswer(status=418), (400, "provider_rejected")),
        (ScriptedAnswer(status=302, headers={"location": "http://127.0.0.1:1/"}), (502, "provider_redirected")),
        (ScriptedAnswer(status=400, error_code="context_length_exceeded"), (400, "context_length_exceeded")),
        (ScriptedAnswer(status=429, error_code="insufficient_quota"), (403, "provider_denied")),
    ],
)
def test_a_refusal_for_good_is_not_repeated(tmp_path: Path, answer: ScriptedAnswer, told: tuple[int, str]) -> None:
    async def body(rig: Rig) -> None:
        response = await rig.ask()
        assert error_of(response) == told
        assert response.headers["x-should-retry"] == "false"

    rig = run(tmp_path, [answer, YES], body)

    assert len(rig.model.requests) == 1
    assert rig.handle.last_error is not None
    assert (rig.handle.last_error.code, rig.handle.last_error.retryable) == (told[1], False)
    assert rig.meter.settlements[0].usage == CallUsage()


def test_the_providers_error_text_stays_outside(tmp_path: Path) -> None:
    raw = f'{{"error": {{"message": "key {KEY} of acme", "code": "{KEY}", "type": "bad_key"}}}}'.encode()

    async def body(rig: Rig) -> None:
        text = (await rig.ask()).text
        assert "bad_key" in text
        assert "acme" not in text
        assert KEY not in text

    rig = run(tmp_path, [ScriptedAnswer(status=401, raw=raw)], body)

    assert KEY not in str(rig.handle.last_error)


def test_a_success_after_an_error_clears_it(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        await rig.ask()
        assert rig.handle.last_error is not None
        await rig.ask()

    assert run(tmp_path, [ScriptedAnswer(status=400), YES], body).handle.last_error is None


def test_a_missing_count_is_estimated(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        await rig.ask()

    usage = run(tmp_path, [replace(YES, omit_usage=True, usage=None)], body).meter.settlements[0].usage

    assert usage.estimated
    assert min(usage.input_tokens, usage.output_tokens) > 0


@pytest.mark.parametrize(
    "answer",
    [
        ScriptedAnswer(raw=b"<html>"),
        ScriptedAnswer(raw=b"[]"),
        ScriptedAnswer(raw=b"x" * (FAST.max_response_bytes + 1)),
        replace(YES, headers={"content-encoding": "gzip"}),
    ],
)
def test_an_answer_that_cannot_be_read_costs_the_reservation(tmp_path: Path, answer: ScriptedAnswer) -> None:
    async def body(rig: Rig) -> None:
        assert error_of(await rig.ask()) == (502, "provider_bad_answer")

    rig = run(tmp_path, [answer, YES], body)

    reserved, usage = rig.meter.reservations[0], rig.meter.settlements[0].usage
    assert usage == CallUsage(reserved.input_tokens, output_tokens=reserved.max_output_tokens, estimated=True)


def test_an_answer_without_a_choice_costs_what_the_provider_says(tmp_path: Path) -> None:
    raw = b'{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}'

    async def body(rig: Rig) -> None:
        assert error_of(await rig.ask()) == (502, "provider_bad_answer")

    assert run(tmp_path, [ScriptedAnswer(raw=raw)], body).meter.settlements[0].usage == CallUsage(3, output_tokens=4)


def test_a_call_that_takes_too_long_is_given_up_and_costs_the_reservation(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        assert error_of(await rig.ask()) == (503, "provider_timeout")
        await rig.model.wait_until(lambda: rig.model.abandoned == 1)

    limits = replace(LIMITS, call_timeout_ms=50)
    rig = run(tmp_path, [ScriptedAnswer(text="late", delay_ms=PATIENCE_MS)], body, limits=limits)

    assert rig.meter.settlements[0].usage.output_tokens == rig.meter.reservations[0].max_output_tokens
    assert rig.handle.last_error is not None
    assert rig.handle.last_error.retryable


def test_a_client_that_leaves_takes_its_call_with_it(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        asking = asyncio.ensure_future(rig.ask())
        await rig.model.wait_until(lambda: len(rig.model.requests) == 1)
        asking.cancel()
        await rig.model.wait_until(lambda: rig.model.abandoned == 1)
        await rig.meter.wait_until(lambda: len(rig.meter.settlements) == 1)

    settled = run(tmp_path, [ScriptedAnswer(text="late", delay_ms=PATIENCE_MS)], body).meter.settlements[0]

    assert (settled.usage.estimated, settled.outcome.accepted) == (True, True)


def test_closing_aborts_the_call_settles_it_and_removes_the_socket(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        asking = asyncio.ensure_future(rig.ask())
        await rig.model.wait_until(lambda: len(rig.model.requests) == 1)
        await rig.handle.close()
        assert (rig.meter.open_calls, len(rig.meter.settlements)) == (0, 1)
        assert not rig.handle.path.exists()
        with pytest.raises(httpx.RemoteProtocolError):
            await asking
        await rig.handle.close()

    run(tmp_path, [ScriptedAnswer(text="late", delay_ms=PATIENCE_MS)], body)


def test_a_grant_that_arrives_after_the_client_left_is_given_back(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        rig.meter.reserving = asyncio.Event()
        asking = asyncio.ensure_future(rig.ask())
        await rig.meter.wait_until(lambda: rig.meter.reserve_calls == 1)
        asking.cancel()
        closing = asyncio.ensure_future(rig.handle.close())
        rig.meter.reserving.set()
        await closing

    rig = run(tmp_path, [YES], body)

    assert (rig.meter.settlements[0].usage, rig.meter.open_calls) == (CallUsage(), 0)
    assert rig.model.requests == []


def test_a_settlement_under_way_is_finished_before_the_gateway_closes(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        rig.meter.settling = asyncio.Event()
        asking = asyncio.ensure_future(rig.ask())
        await rig.meter.wait_until(lambda: rig.meter.settle_calls == 1)
        closing = asyncio.ensure_future(rig.handle.close())
        await asyncio.wait({asking, closing}, timeout=0.05)
        assert not closing.done()
        rig.meter.settling.set()
        await closing
        assert rig.meter.open_calls == 0
        asking.cancel()

    run(tmp_path, [YES], body)


def test_a_process_that_is_asked_to_stop_settles_first(tmp_path: Path) -> None:
    meter = MemoryMeter()

    async def serve_until_canceled() -> None:
        async with gateway_rig(tmp_path, [ScriptedAnswer(delay_ms=PATIENCE_MS)], meter=meter) as rig:
            asking = asyncio.ensure_future(rig.ask())
            await rig.model.wait_until(lambda: len(rig.model.requests) == 1)
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            await asking

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(serve_until_canceled())
    assert (meter.open_calls, len(meter.settlements)) == (0, 1)


def test_a_provider_that_is_not_there_costs_nothing(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        assert error_of(await rig.ask()) == (503, "provider_unreachable")

    def nobody(_: str) -> Provider:
        return openai_provider("stub", "http://127.0.0.1:1/v1", SecretStr(KEY))

    rig = run(tmp_path, [], body, provider_for=nobody)

    settled = rig.meter.settlements[0]
    assert (settled.usage, settled.outcome.accepted, settled.outcome.status) == (CallUsage(), False, None)
    assert len(rig.retries) == FAST.max_retries


def test_a_local_model_that_is_down_has_a_name_of_its_own(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        assert error_of(await rig.ask()) == (503, "local_model_unavailable")

    def down(_: str) -> Provider:
        return local_provider("local", "http://127.0.0.1:1/v1", SecretStr(KEY))

    run(tmp_path, [], body, provider_for=down)


def test_a_connection_lost_before_an_answer_is_tried_again_and_its_input_counted(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        assert (await rig.ask()).status_code == 200

    rig = run(tmp_path, [ScriptedAnswer(hang_up=True), YES], body)

    usage = rig.meter.settlements[0].usage
    assert usage.input_tokens == 10 + rig.meter.reservations[0].input_tokens
    assert usage.estimated


def test_an_answer_that_breaks_off_is_not_paid_twice(tmp_path: Path) -> None:
    async def main() -> Rig:
        async with raw_provider(b'HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"choices"') as url:

            def breaking_off(_: str) -> Provider:
                return stub_provider(url)

            async with gateway_rig(tmp_path, [], provider_for=breaking_off) as rig:
                assert error_of(await rig.ask()) == (503, "provider_connection_lost")
            return rig

    rig = asyncio.run(main())

    assert rig.retries == []
    assert rig.meter.settlements[0].usage.output_tokens == rig.meter.reservations[0].max_output_tokens


def test_a_ledger_that_fails_is_our_fault_and_fails_closed(tmp_path: Path) -> None:
    class BrokenMeter(MemoryMeter):
        async def reserve(self, *, input_tokens: int, max_output_tokens: int) -> Any:
            raise OSError("disk")

    async def body(rig: Rig) -> None:
        assert error_of(await rig.ask()) == (500, "gateway_fault")

    rig = run(tmp_path, [YES], body, meter=BrokenMeter())

    assert rig.model.requests == []
    assert rig.handle.last_error is not None


def test_the_socket_can_be_used_by_the_boxs_own_user(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        assert stat.S_IMODE(rig.handle.path.stat().st_mode) == 0o666

    run(tmp_path, [], body)


def test_two_turns_do_not_meet(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        (tmp_path / "b").mkdir()
        spec = ModelSpec(openai_provider("stub", rig.model.base_url, SecretStr(KEY)), "m2")
        other = await rig.gateway.open(tmp_path / "b", spec, MemoryMeter(limit_total_tokens=1))
        async with client_of(other) as client:
            refused = await client.post("/v1/chat/completions", json=BODY | {"model": "m2"})
        assert error_of(refused) == (402, "budget_reached")
        await other.close()
        assert (await rig.ask()).status_code == 200
        assert (other.budget_reached, rig.handle.budget_reached) == (True, False)

    run(tmp_path, [YES], body)


def test_a_socket_path_that_is_too_long_is_refused_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        gateway = ModelGateway(limits=GatewayLimits())
        spec = ModelSpec(openai_provider("stub", "http://127.0.0.1:1/v1"), "m1")
        with pytest.raises(SocketPathTooLong):
            await gateway.open(tmp_path / ("x" * 100), spec, MemoryMeter())
        await gateway.close()

    asyncio.run(main())


def test_parameters_nobody_passes_on_are_refused_before_the_socket_opens(tmp_path: Path) -> None:
    async def body(_: Rig) -> None:
        raise AssertionError("it opened")

    with pytest.raises(ModelParamsRefused):
        run(tmp_path, [], body, params={"logit_bias": {}})
