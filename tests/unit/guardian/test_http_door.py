"""The HTTP door as an ASGI application: any body in any pieces, one answer, statuses by the table."""

import asyncio
from collections.abc import Iterator, MutableMapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.guardian.kit import KEYRING, engine

from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.http import MAX_DRAINED_BYTES, AsgiApp, guardian_app
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.testing.fake_clock import FakeClock

LIMIT = 1_000


class Exchange:
    """One request to an ASGI application. Reads count the bytes that were taken."""

    def __init__(
        self, chunks: list[bytes], *, method: str = "POST", path: str = "/acs", length: int | None = None
    ) -> None:
        headers = [] if length is None else [(b"content-length", str(length).encode())]
        self.scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": headers}
        self._messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks
        ]
        self._messages.append({"type": "http.request", "body": b"", "more_body": False})
        self.taken = 0
        self.sent: list[MutableMapping[str, Any]] = []

    async def receive(self) -> MutableMapping[str, Any]:
        if not self._messages:
            return {"type": "http.disconnect"}
        message = self._messages.pop(0)
        self.taken += len(message.get("body", b""))
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)

    def cut(self, chunks: int) -> None:
        """The peer goes away after that many chunks."""
        self._messages = self._messages[:chunks]

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return bytes(self.sent[1]["body"])


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def guardian(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guardian]:
    path: Path = tmp_path_factory.mktemp("door") / "guardian.db"
    guardian = Guardian(store=SqliteGuardianStore(path), engine=engine(), clock=FakeClock())
    runner.run(guardian.start())
    yield guardian
    runner.run(guardian.stop())


@pytest.fixture(scope="module")
def app(guardian: Guardian) -> AsgiApp:
    return guardian_app(guardian, Door("http", KEYRING), max_body_bytes=LIMIT, path="/acs", body_timeout_s=0.05)


def exchanged(runner: asyncio.Runner, app: AsgiApp, exchange: Exchange) -> Exchange:
    runner.run(app(exchange.scope, exchange.receive, exchange.send))  # pyright: ignore[reportArgumentType]
    return exchange


@given(body=st.binary(max_size=LIMIT), cuts=st.lists(st.integers(0, LIMIT), max_size=8))
def test_however_a_body_is_cut_the_answer_is_to_the_whole(
    body: bytes, cuts: list[int], app: AsgiApp, runner: asyncio.Runner
) -> None:
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = exchanged(runner, app, Exchange([body[begin:end] for begin, end in pairwise(edges)]))
    whole = exchanged(runner, app, Exchange([body], length=len(body)))
    assert pieces.status == whole.status == 200
    assert pieces.body == whole.body
    assert orjson.loads(whole.body)["error"]["code"] in (-32700, -32600)


@given(sizes=st.lists(st.integers(0, 400), max_size=12))
def test_a_body_is_refused_exactly_when_it_is_larger_than_the_limit(
    sizes: list[int], app: AsgiApp, runner: asyncio.Runner
) -> None:
    exchange = exchanged(runner, app, Exchange([b"x" * size for size in sizes]))
    assert exchange.status == (413 if sum(sizes) > LIMIT else 200)
    assert exchange.taken == sum(sizes)


def test_a_declared_length_above_the_limit_is_refused_and_drained(app: AsgiApp, runner: asyncio.Runner) -> None:
    exchange = exchanged(runner, app, Exchange([b"x" * 600] * 4, length=2_400))
    assert (exchange.status, exchange.taken) == (413, 2_400)


def test_no_more_than_the_bound_is_drained(app: AsgiApp, runner: asyncio.Runner) -> None:
    chunk = b"x" * 65_536
    exchange = exchanged(runner, app, Exchange([chunk] * 1_000))
    assert exchange.status == 413
    assert exchange.taken <= MAX_DRAINED_BYTES + 2 * len(chunk)
    assert (b"connection", b"close") in exchange.sent[0]["headers"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/acs", 405), ("POST", "/", 404), ("GET", "/x", 404)])
def test_other_methods_and_paths_have_their_statuses(
    method: str, path: str, status: int, app: AsgiApp, runner: asyncio.Runner
) -> None:
    exchange = exchanged(runner, app, Exchange([], method=method, path=path))
    assert exchange.status == status
    assert orjson.loads(exchange.body)["error"]["data"]["message"]


def test_without_a_path_of_its_own_it_answers_wherever_it_is_mounted(
    guardian: Guardian, runner: asyncio.Runner
) -> None:
    mounted = guardian_app(guardian, Door("http", KEYRING), max_body_bytes=LIMIT)
    assert exchanged(runner, mounted, Exchange([b"{}"], path="/any/where")).status == 200


def test_a_peer_that_goes_away_gets_nothing(app: AsgiApp, runner: asyncio.Runner) -> None:
    exchange = Exchange([b"{", b"}"])
    exchange.cut(1)
    assert exchanged(runner, app, exchange).sent == []


def test_a_body_that_does_not_come_in_time_is_408(app: AsgiApp, runner: asyncio.Runner) -> None:
    exchange = Exchange([])

    async def never() -> MutableMapping[str, Any]:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    exchange.receive = never
    assert exchanged(runner, app, exchange).status == 408


def test_a_websocket_is_closed(app: AsgiApp, runner: asyncio.Runner) -> None:
    exchange = Exchange([])
    exchange.scope["type"] = "websocket"
    assert exchanged(runner, app, exchange).sent == [{"type": "websocket.close"}]
