"""The Guardian's HTTP door as a process: statuses, sizes, slow bodies, and connections that stay usable."""

import asyncio
import socket
from collections.abc import Iterator

import httpx
import orjson
import pytest
from tests.integration.guardian_process import TOOL_CALL, Client, Process, guardian_process
from tests.integration.guardian_server import MAX_BODY_BYTES

from turnkeeper.acs import Refusal, ServerHello, Verdict


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with guardian_process(tmp_path_factory.mktemp("guardian")) as running:
        yield running


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20) as client:
        yield client


def read_response(connection: socket.socket) -> bytes:
    """One whole response, or what came before the peer closed."""
    received = b""
    while chunk := connection.recv(65_536):
        received += chunk
        head, found, body = received.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
            break
    return received


def raw_exchange(process: Process, sent: bytes) -> bytes:
    """Sends bytes over a socket of our own and reads one response."""
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as connection:
        connection.sendall(sent)
        return read_response(connection)


def test_a_session_over_http(process: Process) -> None:
    async def main() -> None:
        client = Client(process.url)
        async with httpx.AsyncClient() as http:
            assert isinstance(await client.hello(http), ServerHello)
            first = await client.send(http, "steps/toolCallRequest", TOOL_CALL)
            assert isinstance(first, Verdict)
            assert first.decision == "allow"
            refused = await client.send(http, "steps/toolCallRequest", {})
            assert isinstance(refused, Refusal)

    asyncio.run(main())


def test_errors_are_json_rpc_bodies_under_status_200(process: Process, http: httpx.Client) -> None:
    response = http.post(process.url, content=b"{")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"]["code"] == -32700


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_other_methods_are_405_and_say_which_is_right(process: Process, http: httpx.Client, method: str) -> None:
    response = http.request(method, process.url)
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/", "/acs/", "/acs/x", "/ACS", "/healthz"])
def test_other_paths_are_404(process: Process, http: httpx.Client, path: str) -> None:
    assert http.post(process.url.removesuffix("/acs") + path, content=b"{}").status_code == 404


def test_a_body_of_the_limit_is_read_and_one_byte_more_is_413(process: Process, http: httpx.Client) -> None:
    assert http.post(process.url, content=b" " * MAX_BODY_BYTES).status_code == 200
    response = http.post(process.url, content=b" " * (MAX_BODY_BYTES + 1))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == -32600
    assert response.json()["error"]["data"]["reason"] == "too_large"


def test_after_a_body_that_is_too_large_the_connection_is_still_good(process: Process) -> None:
    large = b"x" * (2 * MAX_BODY_BYTES)
    head = b"POST /acs HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as connection:
        connection.sendall(head % len(large) + large)
        assert b" 413 " in read_response(connection).split(b"\r\n")[0]
        connection.sendall(head % 1 + b"{")
        assert b" 200 " in read_response(connection).split(b"\r\n")[0]


def test_a_body_without_a_length_is_bounded_too(process: Process, http: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b"x" * 65_536

    assert http.post(process.url, content=chunks()).status_code == 413


def test_a_body_that_never_ends_is_drained_no_further_than_the_bound(process: Process) -> None:
    head = b"POST /acs HTTP/1.1\r\nHost: g\r\nContent-Length: 99999999999\r\n\r\n"
    sent = 0
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as connection:
        connection.sendall(head)
        try:
            for _ in range(1_000):
                connection.sendall(b"x" * 65_536)
                sent += 65_536
        except OSError:
            pass
    assert sent < 60 * 1024 * 1024


def test_a_body_that_does_not_come_is_408(process: Process) -> None:
    answer = raw_exchange(process, b"POST /acs HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\n{")
    assert b" 408 " in answer.split(b"\r\n")[0]
    assert b"body_timeout" in answer


def test_many_slow_senders_do_not_hold_up_the_others(process: Process, http: httpx.Client) -> None:
    slow = [socket.create_connection(("127.0.0.1", process.port), timeout=10) for _ in range(50)]
    try:
        for connection in slow:
            connection.sendall(b"POST /acs HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\n{")
        assert http.post(process.url, content=b"{").status_code == 200
    finally:
        for connection in slow:
            connection.close()


def test_a_peer_that_goes_away_in_the_middle_of_its_body_is_forgotten(process: Process, http: httpx.Client) -> None:
    for _ in range(20):
        connection = socket.create_connection(("127.0.0.1", process.port), timeout=10)
        connection.sendall(b"POST /acs HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\n{")
        connection.close()
    assert http.post(process.url, content=b"{").status_code == 200


HOSTILE = [
    b"",
    b"\x00",
    b"null",
    b"[]",
    b"{}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"jsonrpc":"2.0","id":1e999,"method":"x"}',
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"x"}',
    b'{"jsonrpc":"2.0","id":{},"method":"x"}',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}',
    b'{"jsonrpc":"2.0","id":1,"method":"steps/turnStart","params":[]}',
    b'{"jsonrpc":"2.0","id":1,"method":"handshake/hello","params":{"metadata":{"session_id":null}}}',
    b'{"jsonrpc":"2.0","id":"' + b"x" * 900_000 + b'","method":"x"}',
    b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"x"}',
    "\ufeff{}".encode(),
    "é".encode("latin-1"),
]


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bodies_get_a_json_rpc_error(process: Process, http: httpx.Client, body: bytes) -> None:
    response = http.post(process.url, content=body)
    assert response.status_code == 200
    assert orjson.loads(response.content)["error"]["code"] in (-32700, -32600)


@pytest.mark.parametrize(
    "head",
    [
        b"POST /acs HTTP/1.1\r\nHost: g\r\nContent-Length: -1\r\n\r\n",
        b"POST /acs HTTP/1.1\r\nHost: g\r\nContent-Length: x\r\n\r\n",
        b"POST /acs HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
def test_broken_http_is_refused_by_the_server_and_harms_nobody(
    process: Process, http: httpx.Client, head: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as connection:
        connection.sendall(head)
        assert b" 5" not in connection.recv(65_536).split(b"\r\n")[0]
    assert http.post(process.url, content=b"{").status_code == 200
