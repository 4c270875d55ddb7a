"""A proxy that does to messages what networks do: loses, delays, doubles and spoils them. Loopback only."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Literal, Self, TypeAlias

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.acceptance.server import free_port

Fault: TypeAlias = Literal["pass", "drop_request", "drop_answer", "delay", "double", "error", "garbage"]
FAULTS: tuple[Fault, ...] = ("drop_request", "drop_answer", "delay", "double", "error", "garbage")
Plan: TypeAlias = Callable[[str, int], Fault]
"""From a method name and how often it was seen to what happens to this message."""


def plan_each(fault: Fault) -> Plan:
    """The fault for the first message of every kind; afterwards all is well."""
    return lambda _method, seen: fault if seen == 0 else "pass"


def plan_random(seed: int, *, share: float) -> Plan:
    """A share of all messages, any fault, from a seed that can be named in a failure."""
    chance = random.Random(seed)
    return lambda _method, _seen: chance.choice(FAULTS) if chance.random() < share else "pass"


class FaultProxy:
    """Serves `/acs` on loopback and forwards to a Guardian. `delay_s` is longer than the sender waits."""

    def __init__(self, target: str, plan: Plan, *, delay_s: float) -> None:
        self.plan = plan
        self.seen: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/acs"
        self._target = target
        self._delay_s = delay_s
        app = Starlette(routes=[Route("/acs", self._forward, methods=["POST"])])
        config = uvicorn.Config(app, host="127.0.0.1", port=self.port, log_level="warning", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = threading.Event()
        while not self._server.started:
            assert self._thread.is_alive()
            deadline.wait(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=20)

    async def _forward(self, request: Request) -> Response:
        body = await request.body()
        method = _method_of(body)
        fault = self.plan(method, self.seen[method])
        self.seen[method] += 1
        self.faults[fault] += 1
        return await self._suffer(fault, body)

    async def _suffer(self, fault: Fault, body: bytes) -> Response:
        if fault == "drop_request":
            return Response(status_code=502)
        if fault == "delay":
            await asyncio.sleep(self._delay_s)
        if fault == "double":
            await self._send(body)
        answer = await self._send(body)
        if fault == "drop_answer":
            return Response(status_code=502)
        if fault == "error":
            wire_error = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"from a gateway"}}'
            return Response(wire_error, media_type="application/json")
        if fault == "garbage":
            return Response(b"<html>a proxy's page</html>", media_type="text/html")
        return Response(answer, media_type="application/json")

    async def _send(self, body: bytes) -> bytes:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            answer = await client.post(self._target, content=body, headers={"Content-Type": "application/json"})
        return answer.content


def _method_of(body: bytes) -> str:
    _, _, rest = body.partition(b'"method":"')
    return rest.partition(b'"')[0].decode(errors="replace") or "?"
