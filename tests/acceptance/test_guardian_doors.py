"""The doors of a Guardian that stands alone, under whatever a stranger may send: answers, bounds, the next in line."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.acceptance.guardian_alone import GuardianAlone
from tests.acceptance.outside_agent import OutsideAgent
from tests.acceptance.server import TURNKEEPER, clean_environment

from turnkeeper.acs.framing import FrameReader, render_frame

MAX_CONNECTIONS = 40
FLOOD_BYTES = 32 * 1024 * 1024
MAX_GROWTH_KIB = 16 * 1024

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def guardian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardianAlone]:
    """One Guardian for all, so that damage by one stranger shows with the next."""
    settings = f"[server]\nmax_connections = {MAX_CONNECTIONS}\n"
    with GuardianAlone(tmp_path_factory.mktemp("doors"), settings=settings) as running:
        yield running


@pytest.fixture(autouse=True)
def still_there(guardian: GuardianAlone) -> Iterator[None]:
    """After each test an honest agent is served."""
    yield
    agent = OutsideAgent(guardian.url, guardian.secret)
    agent.hello()
    assert agent.call_tool(None) == "allow"


def connected(guardian: GuardianAlone) -> socket.socket:
    """A connection."""
    return socket.create_connection(("127.0.0.1", guardian.port), timeout=20)


def resident_kib(guardian: GuardianAlone) -> int:
    """The process's memory."""
    lines = Path(f"/proc/{guardian.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/xml", "nonsense", ""])
def test_the_type_of_the_content_changes_nothing(guardian: GuardianAlone, content_type: str) -> None:
    agent = OutsideAgent(guardian.url, guardian.secret)
    agent.hello()
    request_id, body = agent.signed("steps/sessionStart", {})
    response = httpx.post(guardian.url, content=body, headers={"Content-Type": content_type}, trust_env=False)
    assert response.headers["content-type"] == "application/json"
    assert response.json()["result"]["request_id"] == request_id


def test_a_packed_body_is_no_json(guardian: GuardianAlone) -> None:
    headers = {"Content-Encoding": "gzip"}
    response = httpx.post(guardian.url, content=b"\x1f\x8b\x08\x00", headers=headers, trust_env=False)
    assert response.json()["error"]["code"] == -32700


def test_headers_without_end_are_not_kept(guardian: GuardianAlone) -> None:
    before = resident_kib(guardian)
    with connected(guardian) as flood, pytest.raises(OSError, match=r"reset|Broken pipe"):
        flood.sendall(b"POST /acs HTTP/1.1\r\n" + (b"X-A: " + b"a" * 1_000 + b"\r\n") * (FLOOD_BYTES // 1_000))
    assert resident_kib(guardian) - before < MAX_GROWTH_KIB


def test_more_connections_than_may_be_are_told_so_and_their_places_are_free_again(guardian: GuardianAlone) -> None:
    silent = [connected(guardian) for _ in range(MAX_CONNECTIONS)]
    assert httpx.post(guardian.url, content=b"{}", trust_env=False).status_code == 503
    for one in silent:
        one.close()


@pytest.mark.parametrize(
    "opening",
    [
        b"POST /acs HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /acs HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /acs HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST /acs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST http://[ HTTP/1.1\r\n\r\n",
        b"POST /acs HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
)
def test_what_is_no_http_is_refused_and_the_connection_closed(guardian: GuardianAlone, opening: bytes) -> None:
    with connected(guardian) as sender:
        sender.sendall(opening)
        told = b""
        while part := sender.recv(4_096):
            told += part
    assert told.startswith(b"HTTP/1.1 4") or told == b""


def told_over_stdio(guardian: GuardianAlone, tmp_path: Path, written: bytes) -> tuple[int, list[str]]:
    """The exit code, and the reason in each answer, for some input and its end."""
    command = [TURNKEEPER, "guardian", "--stdio", *guardian.options, "--data-dir", str(tmp_path / "other")]
    done = subprocess.run(
        command, env=clean_environment(tmp_path), input=written, capture_output=True, timeout=60, check=False
    )
    answers = [json.loads(body) for body in FrameReader(1_000).feed(done.stdout)]
    return done.returncode, [answer["error"]["data"]["reason"] for answer in answers]


NOTHING: tuple[int, list[str]] = (0, [])
BROKEN = (1, ["frame_broken"])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b"", NOTHING),
        (b"Content-Length: 10\r\n\r\n{}", BROKEN),
        (b"Content-Length: 10\r\n", BROKEN),
        (b"Content-Length: 1\r\n\r\n{}", (1, ["invalid_json", "frame_broken"])),
        (render_frame(b"{}") + b"Content-Length: two\r\n\r\n{}", (1, ["not_a_request", "frame_broken"])),
        (b"Content-Length: 99999999999\r\n\r\n{}", BROKEN),
        (b"X: " + b"a" * 100_000, BROKEN),
    ],
    ids=["nothing", "cut-body", "cut-head", "too-short", "no-number", "huge", "endless-head"],
)
def test_frames_that_lie_end_the_door_with_a_word(
    guardian: GuardianAlone, tmp_path: Path, written: bytes, expected: tuple[int, list[str]]
) -> None:
    assert told_over_stdio(guardian, tmp_path, written) == expected
