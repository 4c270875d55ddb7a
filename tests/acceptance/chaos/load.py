"""What an app does meanwhile: sessions of several kinds, turns in them, cancels, interrupts, answers, listening.

Every choice is drawn from the seed before the run begins, so that it does not depend on what happens in it.
"""

import asyncio
import json
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import httpx
from tests.acceptance.chaos.client import App, Refused
from tests.acceptance.server import Json

Kind: TypeAlias = Literal["once", "again", "asks", "budget", "shared"]
KINDS: Final[tuple[Kind, ...]] = ("once", "again", "asks", "budget", "shared", "shared")
"""One session each. `shared`: the sessions of one agent that has a budget."""

TOKENS_OF_A_CALL: Final = 110
MAX_DEPTH: Final = 3
READ_TIMEOUT_S: Final = 20
HEARTBEAT_TIMEOUT: Final = httpx.Timeout(READ_TIMEOUT_S, connect=3)


@dataclass(frozen=True, slots=True)
class Wish:
    """A turn to be posted."""

    key: str
    prompt: str
    on_busy: str
    cancel_after_s: float | None
    cancel_mode: str
    pause_s: float


@dataclass
class Room:
    """A session, what was accepted in it, and what a reader of its stream has seen."""

    kind: Kind
    session_id: str
    wishes: list[Wish]
    max_attempts: int
    accepted: dict[str, str] = field(default_factory=dict[str, str])
    """Turn ids by idempotency key, in the order of acceptance."""
    seen: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Sequence and id of each event that came over the stream."""
    reconnects: int = 0


@dataclass
class Load:
    """All of it. `begin` makes the sessions, `post` ends when every turn was accepted."""

    app: App
    seed: int
    turns: int
    rooms: list[Room] = field(default_factory=list[Room])
    budgets: list[str] = field(default_factory=list[str])
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def begin(self) -> None:
        """Agents, budgets and sessions, before anything is broken."""
        shares = [self.turns // len(KINDS) + (n < self.turns % len(KINDS)) for n in range(len(KINDS))]
        shared = await self._agent("shared", max_attempts=2)
        limits = {"max_tool_calls": max(2, sum(shares[4:]) // 2)}
        budget = await self.app.post("/v1/budgets", {"scope": {"type": "agent", "id": shared}, "limits": limits})
        self.budgets.append(budget["id"])
        for number, kind in enumerate(KINDS):
            chance = random.Random(f"{self.seed} {number}")
            wishes = [wish(chance, f"{kind}-{number}-{n}") for n in range(shares[number])]
            self.rooms.append(await self._room(kind, shared, wishes))

    async def post(self) -> None:
        """Every turn, session by session in order and the sessions side by side."""
        async with asyncio.TaskGroup() as group:
            for room in self.rooms:
                group.create_task(self._post_in(room))

    async def follow(self, room: Room) -> None:
        """Reads the session's stream until the run is over, going on from the last event whenever it breaks."""
        while not self.over.is_set():
            with suppress(httpx.TransportError):
                await self._read_stream(room)
            room.reconnects += 1
            await asyncio.sleep(0.1)

    async def answer(self) -> None:
        """A person who answers what is asked, mostly with yes."""
        while not self.over.is_set():
            for approval in (await self.app.get("/v1/approvals?status=pending"))["data"]:
                said = "deny" if random.Random(f"{self.seed} {approval['turn_id']}").random() < 0.2 else "approve"
                with suppress(Refused):
                    await self.app.post(f"/v1/approvals/{approval['id']}/decision", {"decision": said})
            await asyncio.sleep(0.3)

    async def _agent(self, name: str, *, max_attempts: int, permissions: Json | None = None) -> str:
        body: Json = {"name": name, "model": {"provider": "stub", "id": "m"}, "instructions": "Work."}
        body |= {"tools": ["shell"], "limits": {"max_attempts": max_attempts}}
        if permissions is not None:
            body["permissions"] = permissions
        return str((await self.app.post("/v1/agents", body))["id"])

    async def _room(self, kind: Kind, shared: str, wishes: list[Wish]) -> Room:
        max_attempts = {"once": 1, "again": 3, "asks": 3, "budget": 2, "shared": 2}[kind]
        permissions = {"shell": "ask"} if kind == "asks" else None
        agent = (
            shared if kind == "shared" else await self._agent(kind, max_attempts=max_attempts, permissions=permissions)
        )
        body: Json = {"agent_id": agent}
        if kind == "budget":
            # For about two thirds of what is posted, at two calls a turn.
            body["budget"] = {"max_total_tokens": max(1, len(wishes) * 2 // 3) * 2 * TOKENS_OF_A_CALL + 2_000}
        session = await self.app.post("/v1/sessions", body)
        if session["budget_id"] is not None:
            self.budgets.append(session["budget_id"])
        return Room(kind, session["id"], wishes, max_attempts)

    async def _post_in(self, room: Room) -> None:
        async with asyncio.TaskGroup() as group:
            for one in room.wishes:
                body = {"input": one.prompt, "on_busy": one.on_busy, "metadata": {"key": one.key}}
                turn = await self.app.post(f"/v1/sessions/{room.session_id}/turns", body, key=one.key)
                room.accepted[one.key] = turn["id"]
                if one.cancel_after_s is not None:
                    group.create_task(self._cancel(turn["id"], one.cancel_after_s, one.cancel_mode))
                await asyncio.sleep(one.pause_s)
                while (await self.app.get(f"/v1/sessions/{room.session_id}"))["queue_depth"] >= MAX_DEPTH:
                    await asyncio.sleep(0.3)

    async def _cancel(self, turn_id: str, after_s: float, mode: str) -> None:
        await asyncio.sleep(after_s)
        await self.app.post(f"/v1/turns/{turn_id}/cancel", {"mode": mode})

    async def _read_stream(self, room: Room) -> None:
        last = room.seen[-1][0] if room.seen else 0
        path = f"/v1/sessions/{room.session_id}/events/stream?after=0"
        headers = {"Last-Event-ID": str(last)} if last else {}
        async with self.app.http.stream("GET", path, headers=headers, timeout=HEARTBEAT_TIMEOUT) as answer:
            if answer.status_code != 200:
                await asyncio.sleep(0.3)
                return
            number: int | None = None
            async for line in answer.aiter_lines():
                if line.startswith("id:"):
                    number = int(line[3:])
                elif line.startswith("data:") and number is not None:
                    room.seen.append((number, json.loads(line[5:])["id"]))
                    number = None
                if self.over.is_set():
                    return


def wish(chance: random.Random, key: str) -> Wish:
    """A turn: mostly one that leaves a mark in its workspace, some that talk alone, some that take their time."""
    marks = f"echo+{key}>>marks"
    # Without `set -e` a mark that found no room on a full disk would end as well as the sleep after it.
    late, early = f"sleep+2;{marks}", f"set+-e;{marks};sleep+2"
    command = chance.choices((marks, late, early, None), (50, 15, 15, 20))[0]
    prompt = f"text={key}" if command is None else f"tools=1 command={command} text={key}"
    canceled = chance.random() < 0.1
    return Wish(
        key=key,
        prompt=prompt,
        on_busy="interrupt" if chance.random() < 0.06 else "enqueue",
        cancel_after_s=chance.random() * 4 if canceled else None,
        cancel_mode=chance.choice(("graceful", "immediate")),
        pause_s=chance.random(),
    )


def turn_ids(rooms: Sequence[Room]) -> list[str]:
    """Every accepted turn."""
    return [turn_id for room in rooms for turn_id in room.accepted.values()]
