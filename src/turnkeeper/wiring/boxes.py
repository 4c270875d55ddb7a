"""Joins the sandbox drivers to what a worker asks of boxes. No rule of its own."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from turnkeeper.clock import Clock
from turnkeeper.datadir import DataDir
from turnkeeper.ids import IdSource
from turnkeeper.runners.pools import RunnerPools
from turnkeeper.sandbox.boxes import (
    BoxLimits,
    DriverSettings,
    EndReason,
    HostPath,
    SandboxDriver,
    SandboxUnavailable,
    ToolBox,
    ToolBoxOrder,
    ToolCall,
    ToolOutcome,
)
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.unsafe_none import UnsafeNoneDriver
from turnkeeper.sandbox.web import Web
from turnkeeper.settings import BoxLimitSettings, SandboxSettings, ToolBoxLimitSettings
from turnkeeper.turns.box_ports import LoopBox, LoopOrder, NetworkOrder
from turnkeeper.turns.model import BoxSize
from turnkeeper.turns.skill_runs import SKILLS_DIR
from turnkeeper.wiring.egress import EgressDoor, EgressDoors
from turnkeeper.wiring.harnesses import BoxOrders

WORKSPACE_MODE: Final = 0o755


def make_driver(settings: SandboxSettings, data_dir: DataDir, *, ids: IdSource, clock: Clock) -> SandboxDriver:
    """The driver of the kind that was chosen, not started."""
    told = DriverSettings(
        state_dir=data_dir.boxes,
        warm_boxes=settings.warm,
        loop_limits=_limits(settings.loop_limits),
        tool_limits=_tool_limits(settings.tool_limits),
        cgroups=settings.cgroups,
    )
    driver = BwrapDriver if settings.kind == "bwrap" else UnsafeNoneDriver
    return driver(told, ids, clock)


class WorkerBoxes:
    """`turns.box_ports.Boxes` over a driver."""

    def __init__(
        self,
        driver: SandboxDriver,
        orders: BoxOrders,
        egress: EgressDoors | None = None,
        runners: RunnerPools | None = None,
    ) -> None:
        self._driver = driver
        self._orders = orders
        self._egress = egress
        self._runners = runners

    @property
    def kind(self) -> str:
        """`bwrap` or `none`."""
        return self._driver.kind

    async def loop_box(self, order: LoopOrder) -> LoopBox:
        """A box for one turn's loop, or a runner elsewhere. Raises `SandboxUnavailable`, `WorkspaceRefused`."""
        if order.pool is not None:
            return await self._runner(order)
        asked = self._orders.order_for(order)
        if asked is not None and asked.workspace is not None:
            _let_in(asked.workspace.path)
        return await self._driver.loop_box(asked)

    async def _runner(self, order: LoopOrder) -> LoopBox:
        if self._runners is None:
            raise SandboxUnavailable(f"no pool {order.pool!r} is served here")
        return await self._runners.loop_box(order)

    async def tool_box(
        self, workspace: Path, size: BoxSize, network: NetworkOrder | None = None, *, skills: Path | None = None
    ) -> "WorkerToolBox":
        """A box on a workspace. Raises `SandboxUnavailable`, `WorkspaceRefused`.

        Where the operator lends no egress any more, the box has none, whatever its agent was made with.
        """
        _let_in(workspace)
        order = self._with_skills(order_of(size), skills)
        if network is None or self._egress is None:
            return WorkerToolBox(await self._driver.tool_box(workspace, order))
        door = await self._egress.door(network)
        try:
            box = await self._driver.tool_box(workspace, door.added_to(order))
            return WorkerToolBox(await door.attach(box), door)
        except BaseException:
            await door.close()
            raise

    def _with_skills(self, order: ToolBoxOrder, skills: Path | None) -> ToolBoxOrder:
        if skills is None:
            return order
        target = skills if self.kind == "none" else SKILLS_DIR
        return replace(order, read_only=(*order.read_only, HostPath(skills, target)))

    def web(self, network: NetworkOrder) -> Web | None:
        """The way out for the platform itself, where the operator lends one."""
        return None if self._egress is None else self._egress.web(network)


class WorkerToolBox:
    """`turns.box_ports.ToolBox` over a driver's."""

    def __init__(self, box: ToolBox, door: EgressDoor | None = None) -> None:
        self._box = box
        self._door = door

    @property
    def sandbox_id(self) -> str:
        """`sbx_...`."""
        return self._box.sandbox_id

    @property
    def end_reason(self) -> EndReason | None:
        """Why a box that was lost ended, where that is known."""
        return self._box.end_reason

    async def call(
        self, tool: str, arguments: Mapping[str, object], *, timeout_ms: int, max_output_bytes: int
    ) -> ToolOutcome:
        """Runs one tool. Raises `BoxLost`."""
        return await self._box.call(ToolCall(tool, arguments, timeout_ms, max_output_bytes))

    async def suspend(self) -> bool:
        """Stops every process inside. False where that cannot be done."""
        return await self._box.suspend()

    async def resume(self) -> None:
        """Sets going what `suspend` stopped."""
        await self._box.resume()

    async def kill(self) -> None:
        """Returns when every process of the box is gone, and its connections are."""
        if self._door is not None:
            await self._door.close()
        await self._box.kill()


def _let_in(workspace: Path) -> None:
    # bubblewrap enters it before it gives root up, without the right to enter what is another user's alone. The data
    # dir above keeps everybody else out. A folder that the user bound in its place is left as it is.
    if not workspace.is_symlink():
        workspace.chmod(WORKSPACE_MODE)


def order_of(size: BoxSize) -> ToolBoxOrder:
    """What an agent's box may use, in the driver's terms."""
    memory, disk = size.memory_mib, size.disk_mib
    return ToolBoxOrder(
        cpu_millis=size.cpu_millis,
        memory_bytes=None if memory is None else memory << 20,
        disk_bytes=None if disk is None else disk << 20,
    )


def _limits(settings: BoxLimitSettings) -> BoxLimits:
    return BoxLimits(
        memory_bytes=settings.memory_bytes,
        box_memory_bytes=settings.box_memory_bytes,
        cpu_millis=settings.cpu_millis,
        cpu_seconds=settings.cpu_seconds,
        processes=settings.processes,
        open_files=settings.open_files,
        file_bytes=settings.file_bytes,
        tmp_bytes=settings.tmp_bytes,
    )


def _tool_limits(settings: ToolBoxLimitSettings) -> BoxLimits:
    return replace(_limits(settings), disk_bytes=settings.disk_bytes, disk_files=settings.disk_files)
