"""One run: begin, post and break, wait for quiet, count."""

import asyncio
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
from tests.acceptance.chaos import checks
from tests.acceptance.chaos.client import App, Refused
from tests.acceptance.chaos.faults import Faults
from tests.acceptance.chaos.load import Load, turn_ids
from tests.acceptance.chaos.namespaces import Network
from tests.acceptance.chaos.outside import Receiver
from tests.acceptance.chaos.topology import Platform, Shape
from tests.acceptance.server import Json
from tests.acceptance.stub import StubModel

QUIET_TIMEOUT_S: Final = 900
SETTLE_TIMEOUT_S: Final = 240
TERMINAL: Final = {"completed", "failed", "canceled"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for on the command line."""

    shape: Shape
    turns: int
    faults: int
    seed: int
    isolated: bool


@dataclass
class Report:
    """What came of it; the run is good where `broken` is empty."""

    plan: Plan
    broken: list[str] = field(default_factory=list[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    endings: Counter[str] = field(default_factory=Counter[str])
    figures: dict[str, object] = field(default_factory=dict[str, object])


async def run(plan: Plan, folder: Path) -> Report:
    """The whole run, in an empty folder."""
    began = time.monotonic()
    report = Report(plan)
    with ExitStack() as stack:
        network = Network(isolated=plan.isolated)
        stack.callback(network.close)
        model = stack.enter_context(StubModel(host=network.app.address))
        receiver = Receiver(network.app.address, random.Random(f"{plan.seed} receiver"))
        stack.callback(receiver.close)
        platform = Platform(plan.shape, folder, network)
        try:
            await platform.begin(model.config())
            await _Run(report, platform, receiver).whole()
        except (AssertionError, Refused, ExceptionGroup, OSError, subprocess.SubprocessError) as error:
            report.broken.append("".join(traceback.format_exception(error)))
        finally:
            await platform.end()
    report.figures |= {"seconds": round(time.monotonic() - began), "logs": str(folder)}
    return report


class _Run:
    def __init__(self, report: Report, platform: Platform, receiver: Receiver) -> None:
        self.report, self.platform, self.receiver = report, platform, receiver
        plan = report.plan
        self.app = App(platform.url, platform.api_key)
        self.load = Load(self.app, plan.seed, plan.turns)
        self.faults = Faults(platform, plan.seed)
        self.endpoint = ""
        self._began = time.monotonic()

    async def whole(self) -> None:
        """From the first session to the last count."""
        hook: Json = {"url": self.receiver.url, "types": ["turn.*"]}
        endpoint = await self.app.post("/v1/webhook_endpoints", hook)
        self.endpoint, self.receiver.secret = endpoint["id"], endpoint["secret"]
        await self.load.begin()
        followers = [asyncio.create_task(self.load.follow(room)) for room in self.load.rooms]
        answering = asyncio.create_task(self.load.answer())
        await self._break_while_posting()
        self._lap("posted")
        await self._all_ended()
        self._lap("ended")
        told = [await self._told(room_number) for room_number in range(len(self.load.rooms))]
        await self._settled(told)
        self._lap("settled")
        self.load.over.set()
        await answering
        await asyncio.gather(*followers)
        await self._check(told)
        await self.app.http.aclose()

    def _lap(self, what: str) -> None:
        seconds = round(time.monotonic() - self._began, 1)
        self.report.figures[f"{what}_after_s"] = seconds
        print(f"{what} after {seconds} s", file=sys.stderr, flush=True)

    async def _break_while_posting(self) -> None:
        schedule = self.faults.schedule(self.report.plan.faults)
        posting = asyncio.create_task(self.load.post())
        await self.faults.cause(schedule)
        await posting
        self.report.faults = self.faults.done
        for member in self.platform.members.values():
            await member.ready()

    async def _all_ended(self) -> None:
        deadline = time.monotonic() + QUIET_TIMEOUT_S
        for turn_id in turn_ids(self.load.rooms):
            while (turn := await self.app.get(f"/v1/turns/{turn_id}?wait_ms=3000"))["status"] not in TERMINAL:
                if time.monotonic() > deadline:
                    self.report.broken.append(f"{turn_id} never ended: {turn['status']}")
                    break
            self.report.endings[f"{turn['status']} {turn['stop_reason']}"] += 1

    async def _settled(self, told: list[checks.Told]) -> None:
        """Sessions closed, everything told to the Guardian, streams read to their ends, deliveries made."""
        for room in self.load.rooms:
            await self.app.post(f"/v1/sessions/{room.session_id}/close", {"mode": "drain"})
        self.report.broken += await self._none_left(lambda: self._unclosed(told), SETTLE_TIMEOUT_S)
        await self._none_left(lambda: self._undelivered(told), SETTLE_TIMEOUT_S)

    async def _none_left(self, left_of: Callable[[], Awaitable[list[str]]], timeout_s: float) -> list[str]:
        deadline = time.monotonic() + timeout_s
        while (left := await left_of()) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        return left

    async def _unclosed(self, told: list[checks.Told]) -> list[str]:
        left: list[str] = []
        for number, room in enumerate(self.load.rooms):
            session = await self.app.get(f"/v1/sessions/{room.session_id}")
            if session["status"] != "closed":
                left.append(f"{room.session_id} is {session['status']}")
            told[number] = await self._told(number)
            left += list(checks.follower_saw_everything(told[number]))
        return left

    async def _undelivered(self, told: list[checks.Told]) -> list[str]:
        return list(checks.webhooks_arrived(told, self.receiver.taken, ()))

    async def _told(self, number: int) -> checks.Told:
        room = self.load.rooms[number]
        turns = await self.app.all(f"/v1/sessions/{room.session_id}/turns?order=asc")
        approvals = await self.app.all(f"/v1/approvals?session_id={room.session_id}")
        return checks.Told(
            room, await self.app.events(room.session_id), {turn["id"]: turn for turn in turns}, approvals
        )

    async def _check(self, told: list[checks.Told]) -> None:
        broken = self.report.broken
        for one in told:
            broken += self._session_laws(one)
        dead = await self.app.all(f"/v1/webhook_endpoints/{self.endpoint}/deliveries?status=dead")
        broken += checks.webhooks_arrived(told, self.receiver.taken, [one["event_id"] for one in dead])
        broken += self.receiver.wrong
        broken += self.faults.complaints
        budgets = [await self.app.get(f"/v1/budgets/{budget}") for budget in self.load.budgets]
        ledgers = [await self.app.get(f"/v1/turns/{turn}/usage") for turn in turn_ids(self.load.rooms)]
        broken += checks.budgets_hold(budgets, ledgers)
        ready = await self.app.http.get("/readyz")
        self.report.figures |= self._figures(told, budgets) | {"ready": ready.json(), "troubles": self.app.troubles}
        await self._check_record()
        await self._check_processes()

    def _session_laws(self, told: checks.Told) -> Iterator[str]:
        disks = [self.platform.data_dir(member.name) for member in self.platform.workers]
        disks += [member.twin_data_dir for member in self.platform.workers]
        marks = checks.count_marks(disks, told.room.session_id)
        for law in (
            checks.one_terminal_event_per_turn,
            checks.every_acceptance_is_a_turn,
            checks.first_in_first_out,
            checks.one_active_turn,
            checks.sequences_without_gaps,
            checks.follower_saw_everything,
            checks.attempts_are_bounded,
        ):
            yield from (f"{law.__name__}: {said}" for said in law(told))
        yield from (f"side_effects: {said}" for said in checks.side_effects_are_bounded(told, marks))

    async def _check_record(self) -> None:
        audited = await asyncio.to_thread(self.platform.audit)
        self.report.broken += checks.record_verifies(audited.stdout or audited.stderr, audited.returncode)
        for room in self.load.rooms:
            exported = await asyncio.to_thread(self.platform.export, room.session_id)
            assert exported.returncode == 0, exported.stderr
            self.report.broken += checks.windows_balance(room.session_id, exported.stdout)

    async def _check_processes(self) -> None:
        below = [process for member in self.platform.members.values() for process in member.descendants()]
        codes = await self.platform.end()
        self.report.broken += [f"{name} ended with {code}" for name, code in codes.items() if code != 0]
        left = below
        if self.platform.network.isolated:
            # In a process namespace of its own, whatever runs here is ours.
            ours = {1, psutil.Process().pid, *self.platform.network.pids}
            left = [process for process in psutil.process_iter() if process.pid not in ours]
        self.report.broken += checks.no_process_is_left(left)

    def _figures(self, told: list[checks.Told], budgets: list[Json]) -> dict[str, object]:
        members = self.platform.members.values()
        return {
            "turns": len(turn_ids(self.load.rooms)),
            "attempts_after_the_first": sum(max(0, turn["attempt"] - 1) for one in told for turn in one.turns.values()),
            "events": sum(len(one.events) for one in told),
            "stream_reconnects": sum(room.reconnects for room in self.load.rooms),
            "webhooks": {
                "taken": len(self.receiver.taken),
                "refused": self.receiver.refused,
                "repeats": self.receiver.repeats,
            },
            "budgets": [{"limits": one["limits"], "used": one["used"]} for one in budgets],
            "starts": {member.name: member.starts for member in members},
            "twins_at_work": self.faults.twins_at_work,
            "unexpected_ends": {member.name: member.unexpected for member in members if member.unexpected},
        }
