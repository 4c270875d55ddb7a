"""Webhook endpoints over the API, and deliveries to a receiver that checks signatures with the public library."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook
from tests.integration.api_door import DEADLINE_S, Api, serve

from turnkeeper.api.deps import ApiSettings
from turnkeeper.clock import SystemClock
from turnkeeper.events.webhooks.addresses import parse_networks
from turnkeeper.events.webhooks.delivery import Deliveries, DeliverySettings
from turnkeeper.events.webhooks.sender import HttpSender
from turnkeeper.store.fanout import WEBHOOK_TOPIC
from turnkeeper.turns.wakeups import LocalWakeups
from turnkeeper.wiring.webhooks import resolve

OPEN = ApiSettings(poll_ms=600_000, webhooks_allow_http=True, webhook_networks=parse_networks(["127.0.0.0/8"]))
PUBLIC = "https://1.1.1.1/hook"


@dataclass
class Receiver:
    """A real HTTP server that takes what it is told to take."""

    answers: list[int] = field(default_factory=list[int])
    heard: asyncio.Queue[httpx.Request] = field(default_factory=asyncio.Queue[httpx.Request])
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        named = {name.lower(): value for name, value in headers.items()}
        body = await reader.readexactly(int(named["content-length"]))
        self.heard.put_nowait(httpx.Request("POST", self.url, headers=named, content=body))
        status = self.answers.pop(0) if self.answers else 204
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def next(self) -> httpx.Request:
        async with asyncio.timeout(DEADLINE_S):
            return await self.heard.get()


@asynccontextmanager
async def receiving(*answers: int) -> AsyncGenerator[Receiver]:
    receiver = Receiver(list(answers))
    async with await asyncio.start_server(receiver.serve, "127.0.0.1", 0) as server:
        receiver.url = f"http://localhost:{server.sockets[0].getsockname()[1]}/hook"
        yield receiver


@asynccontextmanager
async def delivering(api: Api) -> AsyncGenerator[None]:
    news = api.deps.news
    assert isinstance(news, LocalWakeups)
    async with httpx.AsyncClient(trust_env=False) as client:
        sender = HttpSender(client, resolve, allow_http=True, allowed=OPEN.webhook_networks)
        with news.watch(WEBHOOK_TOPIC) as bell:
            deliveries = Deliveries(
                "one",
                api.store.webhooks(),
                sender,
                bell=bell,
                clock=SystemClock(),
                chance=lambda: 0.5,
                settings=DeliverySettings(poll_ms=100),
            )
            running = asyncio.create_task(deliveries.run())
            try:
                yield
            finally:
                deliveries.drain()
                await running


async def an_endpoint(api: Api, url: str = PUBLIC, **changes: Any) -> dict[str, Any]:
    return await api.made("/v1/webhook_endpoints", {"url": url, **changes})


def test_an_ending_arrives_signed_and_as_the_stream_has_it(tmp_path: Path) -> None:
    async def scenario(api: Api) -> None:
        async with receiving() as receiver, delivering(api):
            endpoint = await an_endpoint(api, receiver.url, types=["turn.completed"])
            turn = await api.turn(await api.session())
            await api.completed(await api.started())
            request = await receiver.next()
            received = Webhook(endpoint["secret"]).verify(request.content, dict(request.headers))
            ended = await api.seen(f"/v1/turns/{turn['id']}")
            assert received["data"]["turn_id"] == turn["id"]
            assert received == await api.seen(f"/v1/events/{received['id']}")
            assert request.headers["webhook-id"] == received["id"]
            assert ended["status"] == "completed"

    serve(tmp_path, scenario, settings=OPEN)


def test_a_failed_try_is_shown_and_can_be_sent_once_more(tmp_path: Path) -> None:
    async def scenario(api: Api) -> None:
        async with receiving(410) as receiver, delivering(api):
            endpoint = await an_endpoint(api, receiver.url, types=["session.created"])
            await api.session()
            first = await receiver.next()
            path = f"/v1/webhook_endpoints/{endpoint['id']}"
            shown = await until_status(api, f"{path}/deliveries", "dead")
            view = await api.seen(f"/v1/webhook_deliveries/{shown['id']}")
            assert [one["status"] for one in view["tries"]] == [410]
            assert view["request"]["body"]["id"] == first.headers["webhook-id"]
            assert (await api.seen(path))["disabled_reason"] == "gone"
            await api.client.patch(path, json={"enabled": True})
            await api.made(f"/v1/webhook_deliveries/{shown['id']}/retry")
            again = await receiver.next()
            assert (again.content, again.headers["webhook-attempt"]) == (first.content, "2")

    serve(tmp_path, scenario, settings=OPEN)


async def until_status(api: Api, path: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = (await api.seen(f"{path}?status={status}"))["data"]
            if found:
                return found[0]
            await asyncio.sleep(0.02)


def test_a_test_event_is_delivered(tmp_path: Path) -> None:
    async def scenario(api: Api) -> None:
        async with receiving() as receiver, delivering(api):
            endpoint = await an_endpoint(api, receiver.url, types=["turn.failed"])
            await api.made(f"/v1/webhook_endpoints/{endpoint['id']}/test")
            body = (await receiver.next()).content
            assert b'"type":"webhook_endpoint.test"' in body

    serve(tmp_path, scenario, settings=OPEN)


def test_a_secret_is_shown_once(tmp_path: Path) -> None:
    async def scenario(api: Api) -> None:
        endpoint = await an_endpoint(api)
        assert endpoint["secret"].startswith("whsec_")
        shown = await api.seen(f"/v1/webhook_endpoints/{endpoint['id']}")
        assert shown == {name: value for name, value in endpoint.items() if name != "secret"}
        rotated = await api.made(f"/v1/webhook_endpoints/{endpoint['id']}/rotate_secret", {"overlap_hours": 1})
        assert rotated["secret"] != endpoint["secret"]
        assert rotated["overlap_until"] is not None

    serve(tmp_path, scenario)


def test_endpoints_are_listed_changed_and_deleted(tmp_path: Path) -> None:
    async def scenario(api: Api) -> None:
        first, second = await an_endpoint(api), await an_endpoint(api, description="two")
        listed = (await api.seen("/v1/webhook_endpoints?order=asc"))["data"]
        assert [one["id"] for one in listed] == [first["id"], second["id"]]
        path = f"/v1/webhook_endpoints/{first['id']}"
        changed = (await api.client.patch(path, json={"types": ["turn.*"], "enabled": False})).json()
        assert (changed["types"], changed["disabled_reason"]) == (["turn.*"], "operator")
        assert (await api.client.delete(path)).json()["deleted"] is True
        assert (await api.refused("GET", path))["code"] == "not_found"

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "invalid_field", "/url"),
        ({"url": "http://example.com"}, "invalid_field", "/url"),
        ({"url": "https://169.254.169.254/latest"}, "webhook_address_refused", "/url"),
        ({"url": PUBLIC, "types": ["turn*"]}, "invalid_field", "/types"),
        ({"url": PUBLIC, "types": []}, "invalid_field", "/types"),
        ({"url": PUBLIC, "agent_ids": ["x"]}, "invalid_field", "/agent_ids"),
        ({"url": PUBLIC, "ordering": "global"}, "invalid_field", "/ordering"),
        ({"url": PUBLIC, "enabled": "yes"}, "invalid_field", "/enabled"),
        ({"url": PUBLIC, "payload": "thin"}, "not_supported_yet", "/payload"),
        ({"url": PUBLIC, "colour": 1}, "unknown_field", "/colour"),
    ],
)
def test_an_endpoint_that_cannot_be_is_refused_and_says_why(
    tmp_path: Path, body: dict[str, Any], code: str, param: str
) -> None:
    async def scenario(api: Api) -> None:
        problem = await api.refused("POST", "/v1/webhook_endpoints", json=body)
        assert (problem["code"], problem["param"]) == (code, param)

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"since": "yesterday"},
        {"since": "2026-12-01T10:00:00"},
        {"since": 5},
        {"since": "2026-12-01T10:00:00Z", "only": "some"},
    ],
)
def test_a_replay_without_a_clear_time_is_refused(tmp_path: Path, body: dict[str, Any]) -> None:
    async def scenario(api: Api) -> None:
        endpoint = await an_endpoint(api)
        problem = await api.refused("POST", f"/v1/webhook_endpoints/{endpoint['id']}/replay", json=body)
        assert problem["code"] == "invalid_field"

    serve(tmp_path, scenario)


def test_a_replay_says_how_many_it_sends(tmp_path: Path) -> None:
    async def scenario(api: Api) -> None:
        endpoint = await an_endpoint(api)
        path = f"/v1/webhook_endpoints/{endpoint['id']}/replay"
        assert (await api.made(path, {"since": "2026-01-01T00:00:00Z", "only": "all"}))["count"] == 0

    serve(tmp_path, scenario)
