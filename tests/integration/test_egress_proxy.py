"""The egress proxy against hostile programs, names and origins; the box is left out."""

import asyncio
import socket
from pathlib import Path

import pytest
from tests.integration.egress_parts import door, origin, run, serving

from turnkeeper.sandbox.egress_admission import EgressLimits

OK = b"HTTP/1.1 200"


def test_an_allowed_host_is_reached_by_http_and_the_guardian_was_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with origin() as there, door(tmp_path, f"site.test:{there.port}") as made:
            made.names.know("site.test", ["127.0.0.1"])
            answer = await made.get("site.test", there.port, "/a?b=c")
            assert answer.startswith(OK)
            assert answer.endswith(b"hi")
            assert made.desk.asked == [("site.test", there.port, "http")]
            assert there.heads[0].startswith(f"GET /a?b=c HTTP/1.1\r\nhost: site.test:{there.port}\r\n".encode())

    run(main())


def test_a_tunnel_carries_bytes_both_ways_until_both_sides_are_done(tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1_000):
            writer.write(data.upper())
        writer.write(b"bye")

    async def main() -> None:
        async with serving(echo) as port, door(tmp_path, f"site.test:{port}") as made:
            made.names.know("site.test", ["127.0.0.1"])
            reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
            writer.write(f"CONNECT site.test:{port} HTTP/1.1\r\nHost: site.test\r\n\r\nearly".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(OK)
            writer.write(b" late")
            writer.write_eof()
            assert await reader.read() == b"EARLY LATEbye"
            writer.close()
            await writer.wait_closed()
            assert (made.proxy.traffic.sent, made.proxy.traffic.received) == (10, 13)

    run(main())


@pytest.mark.parametrize("host", ["other.test", "127.0.0.1", "[::1]", "sub.site.test"])
def test_what_is_on_no_list_is_refused_before_anybody_is_asked(tmp_path: Path, host: str) -> None:
    async def main() -> None:
        async with origin() as there, door(tmp_path, f"site.test:{there.port}") as made:
            for ask in (f"GET http://{host}:{there.port}/ HTTP/1.1", f"CONNECT {host}:{there.port} HTTP/1.1"):
                answer = await made.say(f"{ask}\r\nHost: {host}:{there.port}\r\n\r\n".encode())
                assert answer.startswith(b"HTTP/1.1 403")
            assert made.desk.told == [(host.strip("[]"), there.port)] * 2
            assert (made.desk.asked, made.names.asked, there.heads) == ([], [], [])

    run(main())


def test_what_the_guardian_refuses_is_not_even_looked_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with door(tmp_path, "*", reasons={"site.test": "not today"}) as made:
            made.names.know("site.test", ["127.0.0.1"])
            answer = await made.get("site.test", 80)
            assert answer.startswith(b"HTTP/1.1 403")
            assert b"not today" in answer
            assert made.names.asked == []

    run(main())


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "168.63.129.16", "::1", "::ffff:127.0.0.1", "fe80::1%lo"]
)
def test_a_name_that_leads_inside_is_refused_and_does_not_say_where(tmp_path: Path, address: str) -> None:
    async def main() -> None:
        async with door(tmp_path, "*", networks=()) as made:
            made.names.know("site.test", [address])
            answer = await made.get("site.test", 80)
            assert answer.startswith(b"HTTP/1.1 403")
            assert address.encode() not in answer
            assert made.desk.told == [("site.test", 80)]

    run(main())


def test_a_name_with_a_public_and_a_private_address_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with door(tmp_path, "*", networks=()) as made:
            made.names.know("site.test", ["1.1.1.1", "127.0.0.1"])
            assert (await made.get("site.test", 80)).startswith(b"HTTP/1.1 403")

    run(main())


def test_a_name_that_changes_its_mind_is_checked_again_and_looked_up_once_per_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with origin() as there, door(tmp_path, f"site.test:{there.port}", networks=("127.0.0.2/32",)) as made:
            made.names.know("site.test", ["127.0.0.2"], ["127.0.0.1"])
            assert (await made.get("site.test", there.port)).startswith(b"HTTP/1.1 502")
            assert (await made.get("site.test", there.port)).startswith(b"HTTP/1.1 403")
            assert made.names.asked == ["site.test"] * 2
            assert there.heads == []

    run(main())


def test_a_redirect_is_the_programs_business_and_asked_for_like_any_other(tmp_path: Path) -> None:
    moved = b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"

    async def main() -> None:
        async with origin(moved) as there, door(tmp_path, f"site.test:{there.port}") as made:
            made.names.know("site.test", ["127.0.0.1"])
            assert b"location: http://169.254.169.254/" in await made.get("site.test", there.port)
            assert made.names.asked == ["site.test"]
            assert (await made.get("169.254.169.254", 80)).startswith(b"HTTP/1.1 403")

    run(main())


def test_what_follows_a_request_on_its_connection_is_not_served(tmp_path: Path) -> None:
    async def main() -> None:
        async with origin() as there, door(tmp_path, f"site.test:{there.port}") as made:
            made.names.know("site.test", ["127.0.0.1"])
            ask = f"GET http://site.test:{there.port}/ HTTP/1.1\r\nHost: site.test:{there.port}\r\n\r\n".encode()
            answer = await made.say(ask + ask.replace(b"/ HTTP", b"/second HTTP"))
            assert answer.count(OK) == 1
            assert len(there.heads) == 1

    run(main())


def test_a_body_in_chunks_arrives_in_chunks_of_ours(tmp_path: Path) -> None:
    got: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def main() -> None:
        async with serving(take) as port, door(tmp_path, f"site.test:{port}") as made:
            made.names.know("site.test", ["127.0.0.1"])
            head = f"POST http://site.test:{port}/ HTTP/1.1\r\nHost: site.test:{port}\r\n"
            chunks = "Transfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n0\r\nX-Trailer: smuggled\r\n\r\n"
            assert (await made.say((head + chunks).encode())).startswith(b"HTTP/1.1 204")
            assert got[0].endswith(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n")

    run(main())


def test_an_answer_that_is_cut_short_does_not_look_whole(tmp_path: Path) -> None:
    async def main() -> None:
        cut = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal"
        async with origin(cut) as there, door(tmp_path, f"site.test:{there.port}") as made:
            made.names.know("site.test", ["127.0.0.1"])
            answer = await made.get("site.test", there.port)
            assert answer == b"" or (b"content-length: 10" in answer and len(answer.split(b"\r\n\r\n", 1)[1]) < 10)

    run(main())


def test_an_origin_that_speaks_no_http_is_a_bad_gateway(tmp_path: Path) -> None:
    async def main() -> None:
        async with origin(b"SSH-2.0-x\r\n\r\n") as there, door(tmp_path, f"site.test:{there.port}") as made:
            made.names.know("site.test", ["127.0.0.1"])
            assert (await made.get("site.test", there.port)).startswith(b"HTTP/1.1 502")

    run(main())


def test_a_program_that_never_ends_its_head_is_let_go(tmp_path: Path) -> None:
    async def main() -> None:
        async with door(tmp_path, "*", limits=EgressLimits(head_timeout_ms=50)) as made:
            assert (await made.say(b"GET http://site.test/ HTTP/1.1\r\nHost:")).startswith(b"HTTP/1.1 408")

    run(main())


def test_a_head_without_bounds_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with door(tmp_path, "*") as made:
            answer = await made.say(b"GET http://site.test/ HTTP/1.1\r\nHost: site.test\r\nX: " + b"x" * 100_000)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 400")

    run(main())


def test_a_tunnel_on_which_nothing_moves_is_ended(tmp_path: Path) -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        await reader.read()

    async def main() -> None:
        limits = EgressLimits(idle_timeout_ms=100)
        async with serving(wait) as port, door(tmp_path, f"site.test:{port}", limits=limits) as made:
            made.names.know("site.test", ["127.0.0.1"])
            answer = await made.say(f"CONNECT site.test:{port} HTTP/1.1\r\nHost: site.test:{port}\r\n\r\n".encode())
            assert answer in {b"", b"HTTP/1.1 200 Connection established\r\n\r\n"}

    run(main())


def test_a_box_moves_no_more_bytes_than_it_may(tmp_path: Path) -> None:
    big = b"HTTP/1.1 200 OK\r\ncontent-length: 5000000\r\n\r\n" + b"x" * 5_000_000

    async def main() -> None:
        limits = EgressLimits(max_bytes=100_000)
        async with origin(big) as there, door(tmp_path, f"site.test:{there.port}", limits=limits) as made:
            made.names.know("site.test", ["127.0.0.1"])
            assert len(await made.get("site.test", there.port)) <= limits.max_bytes
            assert b"as many bytes as it may" in await made.get("site.test", there.port)
            assert len(there.heads) == 1

    run(main())


def test_a_box_holds_no_more_connections_than_it_may(tmp_path: Path) -> None:
    async def main() -> None:
        async with door(tmp_path, "*", limits=EgressLimits(max_connections=1)) as made:
            _, first = await asyncio.open_connection("127.0.0.1", made.port)
            second = asyncio.ensure_future(made.get("site.test", 80))
            done, _ = await asyncio.wait({second}, timeout=0.2)
            assert done == set()
            first.close()
            await first.wait_closed()
            assert (await second).startswith(b"HTTP/1.1 502")

    run(main())


@pytest.mark.parametrize("known", [True, False], ids=["nobody listens", "no such name"])
def test_a_host_that_is_not_there_is_no_denial(tmp_path: Path, *, known: bool) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        async with door(tmp_path, f"site.test:{port}") as made:
            if known:
                made.names.know("site.test", ["127.0.0.1"])
            assert (await made.get("site.test", port)).startswith(b"HTTP/1.1 502")
            assert made.desk.told == []

    run(main())
