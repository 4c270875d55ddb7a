"""From an agent's network to a box that has it, by the worker's own parts."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from tests.integration.egress_parts import LOOPBACK, Desk, origin, run

from turnkeeper.clock import SystemClock
from turnkeeper.datadir import DataDir
from turnkeeper.ids import RandomIds
from turnkeeper.settings import EgressSettings, HarnessSettings, SandboxSettings
from turnkeeper.turns.box_ports import NetworkOrder, NetworkSecret
from turnkeeper.turns.model import BoxSize
from turnkeeper.wiring.boxes import WorkerBoxes, WorkerToolBox, make_driver, order_of
from turnkeeper.wiring.egress import open_egress
from turnkeeper.wiring.harnesses import BoxOrders

pytestmark = pytest.mark.sandbox


@contextlib.asynccontextmanager
async def boxed(folder: Path, lent: Sequence[str], order: NetworkOrder) -> AsyncGenerator[WorkerToolBox]:
    """A worker's tool box where an operator lends these hosts."""
    clock, data_dir = SystemClock(), DataDir(folder)
    data_dir.prepare()
    chosen = SandboxSettings(warm=0, egress=EgressSettings(allow=tuple(lent), networks=(LOOPBACK,)))
    driver = make_driver(chosen, data_dir, ids=RandomIds(clock), clock=clock)
    workspace = data_dir.workspaces / "w"
    workspace.mkdir()
    async with contextlib.AsyncExitStack() as stack:
        await driver.start()
        stack.push_async_callback(driver.stop)
        orders = BoxOrders(HarnessSettings(), {}, order_of)
        boxes = WorkerBoxes(driver, orders, open_egress(stack, chosen, data_dir, clock))
        box = await boxes.tool_box(workspace, BoxSize(), order)
        stack.push_async_callback(box.kill)
        yield box


async def said(box: WorkerToolBox, command: str) -> str:
    return (await box.call("shell", {"command": command}, timeout_ms=30_000, max_output_bytes=10_000)).text


def test_a_box_reaches_what_operator_agent_and_session_all_list(tmp_path: Path) -> None:
    async def main() -> None:
        async with origin() as there, origin() as other:
            rules = (f"127.0.0.1:{there.port}", f"127.0.0.1:{other.port}")
            secret = NetworkSecret("TOKEN", "tkp_placeholder", ("api.test",), "value-of-it")
            order = NetworkOrder((rules, rules[:1]), Desk(), (secret,))
            async with boxed(tmp_path, rules, order) as box:
                assert await said(box, f"curl -s --noproxy x http://127.0.0.1:{there.port}/") == "hi"
                assert "403" in await said(box, f"curl -si --noproxy x http://127.0.0.1:{other.port}/")
                assert await said(box, "echo $TOKEN; head -c 27 $SSL_CERT_FILE") == (
                    "tkp_placeholder\n-----BEGIN CERTIFICATE-----"
                )

    run(main())


def test_what_the_operator_took_back_is_gone_for_boxes_of_agents_that_list_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with origin() as there:
            order = NetworkOrder(((f"127.0.0.1:{there.port}",),), Desk())
            async with boxed(tmp_path, (), order) as box:
                assert await said(box, "env | grep -c PROXY") == "0\n"

    run(main())
