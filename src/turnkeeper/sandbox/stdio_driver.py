"""What the drivers have in common: ids, the warm pool, the list of living boxes, the end of all of them.

A driver is this class and a launcher, which knows how one box is started.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from turnkeeper.clock import Clock
from turnkeeper.ids import IdSource
from turnkeeper.sandbox.box_process import BoxProcess, Launch
from turnkeeper.sandbox.boxes import (
    GATEWAY_SOCKET_NAME,
    USUAL_ORDER,
    BoxLimits,
    DriverSettings,
    LoopBox,
    LoopBoxOrder,
    ProbeResult,
    SandboxUnavailable,
    ToolBox,
    ToolBoxOrder,
    WorkspaceRefused,
)
from turnkeeper.sandbox.protocol import MAX_FRAME_BYTES
from turnkeeper.sandbox.quota import WorkspaceQuota
from turnkeeper.sandbox.state_dir import StateDir, remove_tree, short_base
from turnkeeper.sandbox.stdio_boxes import MAX_ANSWER_BYTES, StdioLoopBox, StdioToolBox
from turnkeeper.sandbox.warm_pool import WarmPool
from turnkeeper.sandbox.workspaces import check_workspace


class Launcher(Protocol):
    """Knows how a box of its kind is started."""

    def prepare(self, owner: str) -> tuple[Path, ...]:
        """Find what is needed and try it; the folders with control groups, named after `owner`, that it will make.

        Raises `SandboxUnavailable`.
        """
        ...

    def gateway_dir(self, socket_dir: Path) -> str:
        """Where the box sees its socket folder."""
        ...

    def launch_loop(self, socket_dir: Path, release: Callable[[], None], order: LoopBoxOrder | None = None) -> Launch:
        """How to start a loop box. Raises `SandboxUnavailable` for an order that it cannot keep."""
        ...

    def launch_tools(self, workspace: Path, order: ToolBoxOrder, release: Callable[[], None]) -> Launch:
        """How to start a tool box."""
        ...

    def probe(self) -> list[ProbeResult]:
        """What `doctor` prints about this kind."""
        ...


class StdioDriver:
    """Makes boxes with a launcher and knows which of them live."""

    def __init__(self, kind: str, launcher: Launcher, settings: DriverSettings, ids: IdSource, clock: Clock) -> None:
        self.kind = kind
        self._launcher = launcher
        self._settings = settings
        self._ids = ids
        self._clock = clock
        self._state = StateDir(settings.state_dir)
        self._pool = WarmPool(settings.warm_boxes, self._make_loop_box)
        self._living: set[BoxProcess] = set()
        self._workspaces: set[Path] = set()
        self._started = False

    async def start(self) -> None:
        """Check that boxes work here, sweep what a dead owner left, begin to warm. Raises `SandboxUnavailable`."""
        self._state.open()
        try:
            self._state.remember_groups(self._launcher.prepare(self._state.owner))
        except BaseException:
            self._state.close()
            raise
        self._started = True
        self._pool.start()

    async def stop(self) -> None:
        """Kill every living box and remove our sockets. Raises `BoxNotGone` after trying them all."""
        self._started = False
        await self._pool.stop()
        results = await asyncio.gather(*(box.kill() for box in list(self._living)), return_exceptions=True)
        self._state.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def wait_warm(self, boxes: int = 1) -> None:
        """Returns when so many warm boxes are ready; for measurements and tests."""
        await self._pool.wait_for(boxes)

    async def loop_box(self, order: LoopBoxOrder | None = None) -> LoopBox:
        """A warm box if there is one, else a cold one; an ordered one is made now. Raises `SandboxUnavailable`."""
        asked_ms = self._clock.monotonic_ms()
        box = await self._usual_loop_box() if order is None else await self._ordered_loop_box(order)
        box.start_ms = self._clock.monotonic_ms() - asked_ms
        return box

    async def tool_box(self, workspace: Path, order: ToolBoxOrder = USUAL_ORDER) -> ToolBox:
        """A box on this directory, which no other box may have. Raises `SandboxUnavailable`, `WorkspaceRefused`."""
        self._check_started()
        limits = order.limits(self._settings.tool_limits)
        real = self._take_workspace(workspace)
        process = await self._spawn(
            lambda release: self._launcher.launch_tools(real, order, release),
            lambda: self._workspaces.discard(real),
            MAX_ANSWER_BYTES,
        )
        quota = self._quota(process, real, limits)
        box = StdioToolBox(process, self._ids.new("sbx"), self._clock, limits, quota)
        await self._get_ready(box)
        await quota.begin()
        return box

    def probe(self) -> list[ProbeResult]:
        """What `doctor` prints. Starts a box and waits for it, so not for the event loop."""
        return self._launcher.probe()

    async def _usual_loop_box(self) -> StdioLoopBox:
        box = self._pool.take()
        if box is None:
            return await self._pool.claim() or await self._make_loop_box()
        box.warm = True
        return box

    async def _ordered_loop_box(self, order: LoopBoxOrder) -> StdioLoopBox:
        shared = order.workspace
        if shared is None:
            return await self._make_loop_box(order)
        self._check_started()
        real = self._take_workspace(shared.path)
        process, box = await self._spawn_loop(replace(order, workspace=replace(shared, path=real)), real)
        quota = self._quota(process, real, shared.order.limits(self._settings.tool_limits))
        await self._get_ready(box)
        await quota.begin()
        return box

    async def _make_loop_box(self, order: LoopBoxOrder | None = None) -> StdioLoopBox:
        self._check_started()
        _, box = await self._spawn_loop(order)
        await self._get_ready(box)
        return box

    async def _spawn_loop(
        self, order: LoopBoxOrder | None, workspace: Path | None = None
    ) -> tuple[BoxProcess, StdioLoopBox]:
        socket_dir = self._state.socket_dir()

        def release() -> None:
            if workspace is not None:
                self._workspaces.discard(workspace)
            remove_tree(socket_dir)

        process = await self._spawn(
            lambda release: self._launcher.launch_loop(socket_dir, release, order), release, MAX_FRAME_BYTES
        )
        socket = f"{self._launcher.gateway_dir(socket_dir)}/{GATEWAY_SOCKET_NAME}"
        return process, StdioLoopBox(process, self._ids.new("sbx"), socket_dir, socket)

    def _take_workspace(self, workspace: Path) -> Path:
        state = self._settings.state_dir
        real = check_workspace(workspace, (state, short_base(state), Path("/usr")))
        if real in self._workspaces:
            raise WorkspaceRefused(f"the workspace {workspace} is attached to another box")
        self._workspaces.add(real)
        return real

    def _quota(self, process: BoxProcess, workspace: Path, limits: BoxLimits) -> WorkspaceQuota:
        quota = WorkspaceQuota(workspace, limits, lambda: process.signal_kill("quota"))
        process.when_gone(quota.stop)
        return quota

    async def _spawn(
        self, make: Callable[[Callable[[], None]], Launch], release: Callable[[], None], max_line_bytes: int
    ) -> BoxProcess:
        try:
            launch = make(release)
        except OSError as error:
            release()
            raise SandboxUnavailable(f"a box cannot be prepared: {error.strerror}") from error
        except BaseException:
            release()
            raise
        process = await BoxProcess.spawn(launch, max_line_bytes=max_line_bytes)
        self._living.add(process)
        process.when_gone(lambda: self._living.discard(process))
        return process

    async def _get_ready(self, box: StdioLoopBox | StdioToolBox) -> None:
        try:
            # Stopped while the box came up: nobody would end it.
            self._check_started()
            await box.wait_ready(self._settings.ready_timeout_ms)
        except BaseException:
            await box.kill()
            raise

    def _check_started(self) -> None:
        if not self._started:
            raise SandboxUnavailable("the sandbox driver is not started")
