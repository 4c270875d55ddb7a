"""The network as programs in a real tool box have it: through the egress proxy, or not at all."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.egress_parts import LOOPBACK, Desk, Names, origin, run
from tests.unit.sandbox.box_parts import running, settings, workspace

from turnkeeper.addresses import parse_networks
from turnkeeper.destinations import parse_rules
from turnkeeper.sandbox.boxes import ToolBox, ToolCall
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.egress import EgressProxy, EgressSocketRefused
from turnkeeper.sandbox.egress_admission import EgressPolicy
from turnkeeper.sandbox.runtime_paths import tool_runtime

pytestmark = pytest.mark.sandbox

URLLIB = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"


@contextlib.asynccontextmanager
async def boxed(folder: Path, *allow: str) -> AsyncGenerator[tuple[ToolBox, Desk]]:
    """A tool box whose proxy knows `site.test` and `other.test`, both this machine."""
    names, desk = Names(), Desk()
    names.know("site.test", ["127.0.0.1"])
    names.know("other.test", ["127.0.0.1"])
    sockets = folder / "egress"
    sockets.mkdir()
    sockets.chmod(0o755)
    policy = EgressPolicy((parse_rules(allow),), parse_networks([LOOPBACK]))
    proxy = EgressProxy(sockets, policy, desk, resolver=names)
    await proxy.open()
    try:
        async with running(BwrapDriver, settings(folder)) as driver:
            box = await driver.tool_box(workspace(folder), proxy.order)
            await proxy.attached()
            yield box, desk
    finally:
        await proxy.close()


async def said(box: ToolBox, command: str) -> str:
    return (await box.call(ToolCall("shell", {"command": command}))).text


def python(code: str, *arguments: str) -> str:
    return " ".join([f"{tool_runtime().executable} -I -S -c '{code}'", *arguments])


def test_curl_and_urllib_reach_an_allowed_host_and_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with origin() as there, boxed(tmp_path, f"site.test:{there.port}") as (box, desk):
            assert await said(box, f"curl -s http://site.test:{there.port}/") == "hi"
            assert await said(box, f"curl -s --proxytunnel http://site.test:{there.port}/") == "hi"
            assert await said(box, python(URLLIB, f"http://site.test:{there.port}/")) == "hi\n"
            assert "not on the allow list" in await said(box, f"curl -s http://other.test:{there.port}/")
            assert "not on the allow list" in await said(box, f"curl -s --noproxy x http://127.0.0.1:{there.port}/")
            assert [via for _, _, via in desk.asked] == ["http", "connect", "http"]
            assert desk.told == [("other.test", there.port), ("127.0.0.1", there.port)]

    run(main())


def test_past_the_proxy_there_is_no_network_and_no_name(tmp_path: Path) -> None:
    code = (
        "import socket, sys\n"
        'for host in ("127.0.0.1", "1.1.1.1", "site.test"):\n'
        "    try:\n"
        "        socket.create_connection((host, int(sys.argv[1])), 5)\n"
        "    except OSError as error:\n"
        "        print(type(error).__name__)\n"
    )

    async def main() -> None:
        async with origin() as there, boxed(tmp_path, f"site.test:{there.port}") as (box, _):
            told = await said(box, python(code, str(there.port)))
            assert told.split() == ["ConnectionRefusedError", "OSError", "gaierror"]
            assert there.heads == []

    run(main())


def test_nobody_in_the_box_can_take_the_proxy_port_or_hand_out_another(tmp_path: Path) -> None:
    code = (
        "import socket, os\n"
        "try:\n"
        '    socket.create_server(("127.0.0.1", 3128))\n'
        "except OSError as error:\n"
        "    print(error.errno == 98)\n"
        "try:\n"
        "    wall = socket.socket(socket.AF_UNIX)\n"
        '    wall.connect("/run/egress/egress.sock")\n'
        "except OSError as error:\n"
        "    print(type(error).__name__)\n"
    )

    async def main() -> None:
        async with origin() as there, boxed(tmp_path, f"site.test:{there.port}") as (box, _):
            assert (await said(box, python(code))).split() == ["True", "ConnectionRefusedError"]
            assert await said(box, f"curl -s http://site.test:{there.port}/") == "hi"

    run(main())


def test_a_box_without_a_proxy_has_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            box = await driver.tool_box(workspace(tmp_path))
            assert await said(box, "env | grep -ic proxy; ls -d /run/egress 2>&1 | grep -c cannot") == "0\n1\n"

    run(main())


@pytest.mark.parametrize("kind", ["nothing", "not listening", "unix", "all addresses"])
def test_what_is_no_loopback_listener_is_not_answered_on(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        proxy = EgressProxy(tmp_path, EgressPolicy(), Desk(), resolver=Names())
        await proxy.open()
        try:
            await asyncio.to_thread(hand_out, tmp_path / "egress.sock", kind)
            with pytest.raises(EgressSocketRefused):
                await proxy.attached()
        finally:
            await proxy.close()

    run(main())


def hand_out(path: Path, kind: str) -> None:
    """What a box might send instead of its socket."""
    with contextlib.ExitStack() as stack:
        wall = stack.enter_context(socket.socket(socket.AF_UNIX))
        wall.connect(str(path))
        if kind == "nothing":
            return
        family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
        given = stack.enter_context(socket.socket(family))
        if kind == "all addresses":
            given.bind(("0.0.0.0", 0))
            given.listen(1)
        socket.send_fds(wall, [b"\0"], [given.fileno()])


def test_an_order_may_have_a_proxy_and_a_size(tmp_path: Path) -> None:
    order = EgressProxy(tmp_path, EgressPolicy(), Desk(), resolver=Names()).order
    assert replace(order, cpu_millis=500).environment["HTTPS_PROXY"] == "http://127.0.0.1:3128"
