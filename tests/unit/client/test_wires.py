"""Frames, the audit log's file, identities and settings: what the client touches the world with."""

import asyncio
import json
import logging
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.rig import SECRET, Rig

from turnkeeper.acs import KeyUnknown, SecretTooShort
from turnkeeper.acs.framing import MAX_HEADER_BYTES, FrameBroken, FrameReader, render_frame
from turnkeeper.client import (
    AuditFailed,
    AuditRecord,
    ClientSettings,
    GuardianClient,
    HttpTransport,
    Identity,
    InProcessTransport,
    JsonLinesAudit,
    SettingRefused,
    Timing,
    TransportFailed,
    log_audit,
)
from turnkeeper.client.timing import to_the_end


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(min_value=1, max_value=50))
def test_frames_are_read_as_they_were_written_however_they_are_cut(bodies: list[bytes], size: int) -> None:
    stream, reader = b"".join(render_frame(body) for body in bodies), FrameReader(200)
    read = [body for at in range(0, len(stream), size) for body in reader.feed(stream[at : at + size])]
    assert read == bodies


def test_other_headers_are_passed_over_and_names_have_no_case() -> None:
    assert FrameReader(10).feed(b"Content-Type: x\r\ncontent-LENGTH:2\r\n\r\n{}") == [b"{}"]


@pytest.mark.parametrize(
    "stream",
    [
        b"Content-Length: 11\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: " + b"9" * 20 + b"\r\n\r\n",
        b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"Content-Type: x\r\n\r\n",
        b"no colon\r\n\r\n",
        b"x" * (MAX_HEADER_BYTES + 1),
    ],
)
def test_what_is_no_frame_ends_the_reading(stream: bytes) -> None:
    with pytest.raises(FrameBroken):
        FrameReader(10).feed(stream)


def test_http_names_its_transport_by_the_scheme() -> None:
    assert HttpTransport("HTTPS://g/acs").name == "https"
    assert HttpTransport("http://g/acs").name == "http"


def exchange(handler: httpx.MockTransport, *, max_answer_bytes: int = 100) -> bytes:
    """One exchange over a wire that a handler answers."""

    async def main() -> bytes:
        async with httpx.AsyncClient(transport=handler) as client:
            wire = HttpTransport("http://g/acs", client=client, max_answer_bytes=max_answer_bytes)
            return await wire.exchange(b"{}", timeout_ms=1_000)

    return asyncio.run(main())


@pytest.mark.parametrize("status", [200, 413, 502])
def test_a_status_line_is_not_looked_at(status: int) -> None:
    """CORE-HON-08: what counts is the signature."""
    assert exchange(httpx.MockTransport(lambda _: httpx.Response(status, content=b"body"))) == b"body"


def test_an_answer_is_bounded() -> None:
    with pytest.raises(TransportFailed, match="more than 100 bytes"):
        exchange(httpx.MockTransport(lambda _: httpx.Response(200, content=b"x" * 101)))


def test_a_redirect_is_not_followed() -> None:
    """A signed step goes where it was meant to go."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(307, headers={"location": "http://elsewhere/"}, content=b"moved")

    assert exchange(httpx.MockTransport(answer)) == b"moved"
    assert asked == ["http://g/acs"]


def test_an_unreachable_guardian_is_a_transport_failure() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(TransportFailed, match="ConnectError"):
        exchange(httpx.MockTransport(refuse))


def test_a_url_that_is_none_is_a_transport_failure() -> None:
    async def main() -> None:
        wire = HttpTransport("http://[")
        with pytest.raises(TransportFailed):
            await wire.exchange(b"{}", timeout_ms=1_000)
        await wire.close()
        await wire.close()

    asyncio.run(main())


def test_a_callable_that_fails_is_a_transport_failure() -> None:
    async def broken(_: bytes) -> bytes:
        raise OSError

    with pytest.raises(TransportFailed):
        asyncio.run(InProcessTransport(broken).exchange(b"{}", timeout_ms=1))


def test_the_audit_file_has_one_object_per_line(tmp_path: Path) -> None:
    sink = JsonLinesAudit(tmp_path / "audit.jsonl")
    for number in range(3):
        sink(AuditRecord({"seq": number, "event": "x\ny"}))
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [0, 1, 2]


def test_an_audit_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AuditFailed):
        JsonLinesAudit(tmp_path / "absent" / "audit.jsonl")(AuditRecord({"event": "x"}))


def test_without_a_sink_records_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_audit(AuditRecord({"event": "unguarded_start"}))
    assert json.loads(caplog.messages[0]) == {"event": "unguarded_start"}


def test_an_identity_is_read_from_a_key_file_and_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(SECRET + b"\n")
    identity = Identity.from_file("agent", tmp_path / "key")
    assert identity.observed("s").key == Identity.from_secret("agent", SECRET).observed("s").key
    assert "ssss" not in repr(identity)
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(SecretTooShort):
        Identity.from_file("agent", tmp_path / "key")


def test_a_label_without_a_secret_is_refused() -> None:
    identity = Identity("agent", Identity.from_secret("agent", SECRET).keyring, "other")
    with pytest.raises(KeyUnknown):
        identity.observed("s")


def test_settings_that_cannot_work_are_refused_when_they_are_made() -> None:
    for broken in (
        lambda: Timing(max_attempts=0),
        lambda: Timing(late_ms=-1),
        lambda: ClientSettings(max_payload_bytes=0),
        lambda: ClientSettings(mcp_methods=("protocols/MCP/initialize",)),
    ):
        with pytest.raises(SettingRefused):
            broken()


def test_records_hold_no_byte_of_a_payload_or_an_answer() -> None:
    rig = Rig()

    async def gateway(_: bytes) -> bytes:
        return b"<html>secret page</html>"

    rig.answer = gateway

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            await turn.user_message("my password")

    rig.run(work)
    told = json.dumps([dict(record.document) for record in rig.records])
    assert "secret" not in told
    assert "password" not in told


def test_work_that_must_end_ends_before_its_cancellation_is_felt() -> None:
    done: list[str] = []

    async def work(begun: asyncio.Event, go_on: asyncio.Event) -> None:
        begun.set()
        await go_on.wait()
        done.append("work")
        raise ValueError("seen by nobody")

    async def main() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(to_the_end(work(begun, go_on)))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert done == ["work"]
