"""Secrets that go out without ever coming in: placeholders inside, values at the host, and nothing in between."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.integration.egress_parts import LOOPBACK, Desk, Names, Origin, door, run, serving
from tests.unit.sandbox.box_parts import running, settings, workspace

from turnkeeper.addresses import parse_networks
from turnkeeper.destinations import parse_rules, parse_secret_host
from turnkeeper.sandbox.boxes import ToolBox, ToolCall
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.egress import EgressProxy
from turnkeeper.sandbox.egress_admission import EgressPolicy
from turnkeeper.sandbox.egress_exchange import Vault
from turnkeeper.sandbox.egress_secrets import BoxSecret, BoxSecrets
from turnkeeper.sandbox.egress_tls import BoxAuthority
from turnkeeper.sandbox.runtime_paths import tool_runtime

VALUE = "sk-live-0123456789abcdef"
MARK = "tkp_ffffffffffffffffffffffff"


@dataclass(frozen=True)
class Site:
    """A host with TLS that repeats every head it gets, and whose certificate `trust` verifies."""

    origin: Origin
    trust: ssl.SSLContext

    def vault(self, *hosts: str) -> Vault:
        """A box with one secret, for these hosts."""
        rules = tuple(parse_secret_host(host) for host in hosts)
        secrets = BoxSecrets([BoxSecret("TOKEN", MARK, rules, VALUE)])
        return Vault(secrets, BoxAuthority(secrets.rules, datetime.now(UTC)), self.trust)


@contextlib.asynccontextmanager
async def site(*, coding: str = "", name: str = "site.test") -> AsyncGenerator[Site]:
    """It answers in two pieces, so that what it repeats is cut in the middle."""
    authority = BoxAuthority([parse_secret_host(name)], datetime.now(UTC))
    made = Origin()

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            made.heads.append(head)
            extra = f"content-encoding: {coding}\r\n" if coding else ""
            writer.write(f"HTTP/1.1 200 OK\r\n{extra}x-seen: {VALUE}\r\ncontent-length: {len(head)}\r\n\r\n".encode())
            middle = head.find(VALUE.encode()) + 7
            for piece in (head[:middle], head[middle:]):
                writer.write(piece)
                await writer.drain()

    async with serving(repeat, tls=authority.context(name)) as made.port:
        # The last of the bundle is the authority itself.
        yield Site(made, ssl.create_default_context(cadata="-----BEGIN" + authority.bundle.rpartition("-----BEGIN")[2]))


async def ask(port: int, host: str, there: int, vault: Vault, header: str) -> bytes:
    """What a program in the box gets that does as the bundle says."""
    assert vault.authority is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"CONNECT {host}:{there} HTTP/1.1\r\nHost: {host}:{there}\r\n\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if not answer.startswith(b"HTTP/1.1 200"):
        writer.close()
        return answer
    await writer.start_tls(ssl.create_default_context(cadata=vault.authority.bundle), server_hostname=host)
    writer.write(f"GET /x HTTP/1.1\r\nHost: {host}:{there}\r\nAccept-Encoding: gzip\r\n{header}\r\n\r\n".encode())
    got = await reader.read()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return got


@pytest.mark.parametrize(
    ("header", "arrives"),
    [
        (f"Authorization: Bearer {MARK}", f"authorization: Bearer {VALUE}"),
        (f"X-Key: {MARK}", f"x-key: {VALUE}"),
        (
            "Authorization: Basic dTp0a3BfZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZm",
            "authorization: Basic dTpzay1saXZlLTAxMjM0NTY3ODlhYmNkZWY=",
        ),
    ],
)
def test_a_named_host_gets_the_value_and_the_box_gets_the_placeholder_back(
    tmp_path: Path, header: str, arrives: str
) -> None:
    async def main() -> None:
        async with site() as there:
            port = there.origin.port
            vault = there.vault(f"site.test:{port}")
            async with door(tmp_path, f"site.test:{port}", vault=vault) as made:
                made.names.know("site.test", ["127.0.0.1"])
                got = await ask(made.port, "site.test", port, vault, header)
                assert f"\r\n{arrives}\r\n".encode() in there.origin.heads[0]
                assert VALUE.encode() not in got
                assert f"x-seen: {MARK}\r\n".encode() in got
                assert b"accept-encoding: identity" in there.origin.heads[0]

    run(main())


def test_another_host_gets_the_placeholder_in_a_tunnel_that_nobody_looks_into(tmp_path: Path) -> None:
    async def main() -> None:
        async with site() as there:
            port = there.origin.port
            vault = there.vault(f"elsewhere.test:{port}")
            async with door(tmp_path, f"site.test:{port}", vault=vault) as made:
                made.names.know("site.test", ["127.0.0.1"])
                with pytest.raises(ssl.SSLCertVerificationError):
                    await ask(made.port, "site.test", port, vault, f"X-Key: {MARK}")
                assert there.origin.heads == []

    run(main())


def test_a_host_that_cannot_be_verified_gets_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with site(name="other.test") as there:
            port = there.origin.port
            vault = there.vault(f"site.test:{port}")
            async with door(tmp_path, f"site.test:{port}", vault=vault) as made:
                made.names.know("site.test", ["127.0.0.1"])
                got = await ask(made.port, "site.test", port, vault, f"X-Key: {MARK}")
                assert got.startswith(b"HTTP/1.1 502")
                assert there.origin.heads == []

    run(main())


def test_an_answer_that_cannot_be_looked_through_is_not_handed_in(tmp_path: Path) -> None:
    async def main() -> None:
        async with site(coding="gzip") as there:
            port = there.origin.port
            vault = there.vault(f"site.test:{port}")
            async with door(tmp_path, f"site.test:{port}", vault=vault) as made:
                made.names.know("site.test", ["127.0.0.1"])
                got = await ask(made.port, "site.test", port, vault, f"X-Key: {MARK}")
                assert got.startswith(b"HTTP/1.1 502")
                assert VALUE.encode() not in got

    run(main())


PROBE = """
import os, sys, time, urllib.request
ask = urllib.request.Request(sys.argv[1], headers={"X-Key": os.environ["TOKEN"]})
text = urllib.request.urlopen(ask).read().decode()
open("seen.txt", "w").write(text)
os.rename("seen.txt", "done.txt")
time.sleep(3600)
"""


@contextlib.asynccontextmanager
async def boxed(folder: Path, there: Site) -> AsyncGenerator[ToolBox]:
    """A tool box with the secret for the site."""
    names = Names()
    names.know("site.test", ["127.0.0.1"])
    sockets = folder / "egress"
    sockets.mkdir()
    sockets.chmod(0o755)
    policy = EgressPolicy((parse_rules([f"site.test:{there.origin.port}"]),), parse_networks([LOOPBACK]))
    vault = there.vault(f"site.test:{there.origin.port}")
    proxy = EgressProxy(sockets, policy, Desk(), resolver=names, vault=vault)
    await proxy.open()
    try:
        async with running(BwrapDriver, settings(folder)) as driver:
            box = await driver.tool_box(workspace(folder), proxy.order)
            await proxy.attached()
            yield box
    finally:
        await proxy.close()


@pytest.mark.sandbox
def test_curl_in_a_box_uses_a_secret_that_is_nowhere_in_the_box(tmp_path: Path) -> None:
    async def main() -> None:
        async with site() as there, boxed(tmp_path, there) as box:
            ask_it = f'curl -sS -H "Authorization: Bearer $TOKEN" https://site.test:{there.origin.port}/'
            told = await box.call(ToolCall("shell", {"command": ask_it}))
            assert f"authorization: Bearer {MARK}" in told.text
            assert f"authorization: Bearer {VALUE}".encode() in there.origin.heads[0]
            look = "env; cat /proc/*/environ; cat /run/egress/*; cat /proc/self/mountinfo"
            found = await box.call(ToolCall("shell", {"command": f"({look}) 2>/dev/null | grep -ac {VALUE[:12]}"}))
            assert found.text == "0\n"

    run(main())


@pytest.mark.sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="reads the memory of another user's process")
def test_the_memory_of_a_program_that_used_a_secret_does_not_have_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with site() as there, boxed(tmp_path, there) as box:
            await box.call(ToolCall("write_file", {"path": "probe.py", "content": PROBE}))
            start = f"{tool_runtime().executable} -I -S probe.py https://site.test:{there.origin.port}/ >err.txt 2>&1 &"
            wait = "for i in $(seq 300); do test -e done.txt && break; sleep 0.1; done; cat done.txt err.txt"
            told = await box.call(ToolCall("shell", {"command": f"{start} {wait}"}))
            assert f"x-key: {MARK}" in told.text
            memory = b"".join(memory_of(pid) for pid in pids_of(f"probe.py\0https://site.test:{there.origin.port}/"))
            assert MARK.encode() in memory
            assert VALUE.encode() not in memory

    run(main())


def pids_of(command: str) -> list[int]:
    """The processes whose command line has these words."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if command.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def memory_of(pid: int) -> bytes:
    """What a process can write to, as far as it can be read."""
    read = bytearray()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            begin, end = (int(part, 16) for part in span.split("-"))
            if rights.startswith("rw"):
                with contextlib.suppress(OSError):
                    memory.seek(begin)
                    read += memory.read(end - begin)
    return bytes(read)
