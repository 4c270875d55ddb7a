"""The wire to a Guardian over HTTP."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from turnkeeper.turns.links import HttpGuardianLink
from turnkeeper.turns.ports import GuardianUnreachable

Handler = Callable[[httpx.Request], httpx.Response]


def exchange(handler: Handler, *, max_answer_bytes: int = 100) -> bytes:
    async def main() -> bytes:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as client:
            link = HttpGuardianLink("http://guardian.test/acs", client, max_answer_bytes=max_answer_bytes)
            return await link.exchange(b"signed", timeout_ms=1_000)

    return asyncio.run(main())


def test_bytes_go_out_and_bytes_come_back_whatever_the_status() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.content) == ("POST", b"signed")
        return httpx.Response(413, content=b"answer")

    assert exchange(handler) == b"answer"


def test_an_answer_over_the_limit_is_no_answer() -> None:
    with pytest.raises(GuardianUnreachable):
        exchange(lambda _: httpx.Response(200, content=b"x" * 101))


@pytest.mark.parametrize("fault", [httpx.ConnectError("refused"), httpx.ReadTimeout("silence")])
def test_a_fault_of_the_wire_is_an_unreachable_guardian(fault: httpx.HTTPError) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise fault

    with pytest.raises(GuardianUnreachable):
        exchange(handler)


def test_a_redirect_is_not_followed() -> None:
    seen: list[httpx.URL] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.url)
        return httpx.Response(307, headers={"location": "http://elsewhere.test/"}, content=b"moved")

    assert exchange(handler) == b"moved"
    assert len(seen) == 1
