"""The stdio door answers frames at once: in any order where ids tell them apart, a session's steps in theirs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
from tests.unit.guardian.kit import KEYRING, MESSAGE, TOOL_CALL, Agent, House, engine, greeted, running

from turnkeeper.acs import Decision, Disposition
from turnkeeper.acs.framing import FrameReader, render_frame
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.stdio import MAX_FRAMES_AT_ONCE, serve_frames
from turnkeeper.policy.facts import Facts
from turnkeeper.policy.hosted import ComposedEngine

MAX_BODY_BYTES = 1_048_576
PATIENCE_S = 30
STDIO = Door("stdio", KEYRING)


class Gate:
    """An engine that is asked about tool calls and says nothing before it is opened. `asked` counts the questions."""

    name = "gate"
    reference = engine().reference

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.asked = 0

    def concerns(self, facts: Facts) -> bool:
        """Tool calls alone."""
        return facts.hook == "toolCallRequest"

    async def evaluate(self, facts: Facts) -> Decision:
        """ALLOW, once opened."""
        del facts
        self.asked += 1
        await self.opened.wait()
        return Decision(Disposition.ALLOW)

    async def close(self) -> None:
        """Nothing to give back."""


class Peer:
    """The other end of a door that is being served. `answers` are the frames that it has written."""

    def __init__(self, here: House) -> None:
        self.answers: list[bytes] = []
        self._reader = asyncio.StreamReader(limit=65_536)
        self._written = asyncio.Event()
        self.served = asyncio.ensure_future(
            serve_frames(here.guardian, STDIO, self._reader, self._write, max_body_bytes=MAX_BODY_BYTES)
        )

    def send(self, body: bytes) -> None:
        """One frame."""
        self._reader.feed_data(render_frame(body))

    def end(self) -> None:
        """No further input."""
        self._reader.feed_eof()

    async def answered(self, count: int) -> list[object]:
        """The ids of the first answers, once there are that many."""
        while len(self.answers) < count:
            self._written.clear()
            await self._written.wait()
        return [orjson.loads(answer)["id"] for answer in self.answers]

    async def _write(self, frame: bytes) -> None:
        await asyncio.sleep(0)
        self.answers += FrameReader(MAX_BODY_BYTES).feed(frame)
        self._written.set()


def talking(folder: Path, talk: Callable[[House, Peer, Gate], Awaitable[None]]) -> None:
    """Runs some talk over a served door whose Guardian waits for the gate where a tool is called."""
    gate = Gate()

    async def work(here: House) -> None:
        peer = Peer(here)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await talk(here, peer, gate)
        finally:
            gate.opened.set()
            peer.end()
            await peer.served

    running(folder, work, policy=ComposedEngine(engine(), (gate,)))


def rpc_id(body: bytes) -> object:
    return orjson.loads(body)["id"]


def tool(agent: Agent) -> bytes:
    return agent.body("steps/toolCallRequest", TOOL_CALL)


def message(agent: Agent) -> bytes:
    return agent.body("steps/userMessage", MESSAGE)


def test_a_step_that_waits_keeps_no_other_session_waiting_and_its_own_in_order(tmp_path: Path) -> None:
    async def talk(here: House, peer: Peer, gate: Gate) -> None:
        slow, quick = await greeted(here), await greeted(here)
        first, second, other = tool(slow), message(slow), message(quick)
        for body in (first, second, other):
            peer.send(body)
        assert await peer.answered(1) == [rpc_id(other)]
        gate.opened.set()
        assert await peer.answered(3) == [rpc_id(other), rpc_id(first), rpc_id(second)]

    talking(tmp_path, talk)


def test_a_ping_is_answered_while_its_session_waits(tmp_path: Path) -> None:
    async def talk(here: House, peer: Peer, gate: Gate) -> None:
        del gate
        agent = await greeted(here)
        ping = agent.body("system/ping", {})
        peer.send(tool(agent))
        peer.send(ping)
        assert await peer.answered(1) == [rpc_id(ping)]

    talking(tmp_path, talk)


def test_two_frames_of_one_id_are_answered_in_their_order(tmp_path: Path) -> None:
    async def talk(here: House, peer: Peer, gate: Gate) -> None:
        slow, quick = await greeted(here), await greeted(here)
        first, second, third = tool(slow), orjson.loads(message(quick)), message(quick)
        peer.send(first)
        peer.send(orjson.dumps(second | {"id": rpc_id(first)}))
        peer.send(third)
        gate.opened.set()
        assert (await peer.answered(3))[:2] == [rpc_id(first)] * 2
        assert b'"allow"' in peer.answers[0]

    talking(tmp_path, talk)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"jsonrpc":"2.0","method":"system/ping"}'])
def test_what_has_no_id_is_answered_after_all_before_it_and_before_all_after_it(tmp_path: Path, body: bytes) -> None:
    async def talk(here: House, peer: Peer, gate: Gate) -> None:
        slow, quick = await greeted(here), await greeted(here)
        first, last = tool(slow), message(quick)
        for one in (first, body, last):
            peer.send(one)
        gate.opened.set()
        assert await peer.answered(3) == [rpc_id(first), None, rpc_id(last)]

    talking(tmp_path, talk)


def test_a_batch_is_answered_by_itself(tmp_path: Path) -> None:
    async def talk(here: House, peer: Peer, gate: Gate) -> None:
        slow, quick = await greeted(here), await greeted(here)
        first, second, last = tool(slow), message(slow), message(quick)
        for one in (first, b"[" + second + b"]", last):
            peer.send(one)
        gate.opened.set()
        while len(peer.answers) < 3:
            await asyncio.sleep(0.001)
        batch = orjson.loads(peer.answers[1])
        assert [one["id"] for one in batch] == [rpc_id(second)]
        assert rpc_id(peer.answers[2]) == rpc_id(last)

    talking(tmp_path, talk)


def test_no_more_frames_are_read_than_may_wait_for_an_answer(tmp_path: Path) -> None:
    async def talk(here: House, peer: Peer, gate: Gate) -> None:
        agents = [await greeted(here, session_id=str(uuid4())) for _ in range(MAX_FRAMES_AT_ONCE + 2)]
        for agent in agents:
            peer.send(tool(agent))
        while gate.asked < MAX_FRAMES_AT_ONCE:
            await asyncio.sleep(0.001)
        assert here.guardian.in_flight == MAX_FRAMES_AT_ONCE
        gate.opened.set()
        assert len(await peer.answered(len(agents))) == len(agents)

    talking(tmp_path, talk)


def test_the_door_ends_once_everything_it_read_is_answered(tmp_path: Path) -> None:
    async def talk(here: House, peer: Peer, gate: Gate) -> None:
        peer.send(tool(await greeted(here)))
        peer.end()
        while gate.asked == 0:
            await asyncio.sleep(0.001)
        assert not peer.served.done()
        gate.opened.set()
        await peer.served
        assert len(peer.answers) == 1

    talking(tmp_path, talk)


def test_a_peer_that_is_gone_ends_the_door_with_what_its_writer_says(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(render_frame(message(await greeted(here))))

        async def gone(frame: bytes) -> None:
            raise BrokenPipeError(len(frame))

        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(BrokenPipeError):
                await serve_frames(here.guardian, STDIO, reader, gone, max_body_bytes=MAX_BODY_BYTES)

    running(tmp_path, work)
