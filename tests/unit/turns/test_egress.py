"""What a turn's tools may reach: asked once, refused in doubt, told without a flood."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import orjson
import pytest
from tests.unit.turns.rig import SETTINGS, Rig, rig, script

from turnkeeper.acs import Decision, Disposition
from turnkeeper.sandbox.protocol import ToolRequest
from turnkeeper.testing.recording_sandbox import HarnessScript, ScriptedHarness, ScriptedOutcome
from turnkeeper.testing.scripted_guardian import Fault, Reply, deny
from turnkeeper.turns import payloads
from turnkeeper.turns.box_ports import EgressGate
from turnkeeper.turns.egress import MAX_TOLD_HOSTS
from turnkeeper.turns.model import ModelChoice, Network, SecretRef, Session, Turn
from turnkeeper.turns.ports import NewAgent, NewSession
from turnkeeper.turns.secrets import OpenedSecret
from turnkeeper.turns.worker import Worker

ASK_DETAILS = {"approver": {"type": "human", "id": ""}, "question": "May it?", "timeout_seconds": 600}
DEFER_DETAILS = {
    "reason": "pending_dependency",
    "resolution_method": "human_approval",
    "resolution_timeout_ms": 600_000,
    "timeout_decision": "deny",
}
LISTED = Network(("site.test", "*.other.test"))


async def _one_call(harness: ScriptedHarness) -> None:
    await harness.ask(ToolRequest("call-1", "shell", '{"command":"ls"}'))
    await harness.report("done")


ONE_CALL: HarnessScript = script(_one_call)


def program(made: Rig, work: Callable[[EgressGate], Awaitable[None]]) -> None:
    """What the tool does with its network."""

    async def tool(name: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
        del name, arguments
        network = made.sandbox.networks[-1]
        assert network is not None
        await work(network.gate)
        return ScriptedOutcome(text="ran")

    made.sandbox.tool = tool


async def session(
    made: Rig, agent: Network = LISTED, own: Network | None = None, secrets: tuple[SecretRef, ...] = ()
) -> Session:
    new = NewAgent("agent", ModelChoice("stub", "model"), "", made.tools, made.limits, "{}", network=agent)
    return await made.store.create_session(
        NewSession((await made.store.create_agent(new)).id, None, "{}", None, network=own, secrets=secrets)
    )


async def denials(made: Rig, turn: Turn) -> list[tuple[str, int, int]]:
    told = [orjson.loads(event.data) for event in await made.events(turn) if event.type == "sandbox.egress_denied"]
    assert all(event["sandbox_id"] and event["turn_id"] == turn.id for event in told)
    return [(event["host"], event["port"], event["count"]) for event in told]


def test_each_destination_is_asked_of_the_guardian_once(tmp_path: Path) -> None:
    said: list[str | None] = []

    async def work(gate: EgressGate) -> None:
        asked = [("site.test", 443, "connect"), ("site.test", 443, "http"), ("site.test", 80, "http")]
        said.extend(await asyncio.gather(*(gate.ask(*destination) for destination in asked)))

    async def main() -> None:
        async with rig(tmp_path, ONE_CALL) as made:
            program(made, work)
            turn = await made.run_turn(await session(made))
            assert (turn.status, said) == ("completed", [None] * 3)
            payload = [entry.payload for entry in made.guardian.entries if "capability" in entry.payload]
            asked = [step for step in payload if step["capability"] == "network.egress"]
            assert [step["operation"] for step in asked] == ["connect", "http"]
            assert asked[0]["tool"] == {"name": "egress", "provider": "turnkeeper"}
            assert values_of(asked[0]) == {"host": "site.test", "port": 443}
            assert made.guardian.window_counts(turn.id) == (6, 3)

    asyncio.run(main())


@pytest.mark.parametrize(
    "reply",
    [
        deny("no sites"),
        Decision(Disposition.ASK, "who knows", ask_details=ASK_DETAILS),
        Decision(Disposition.DEFER, "later", defer_details=DEFER_DETAILS),
        Decision(Disposition.MODIFY, "elsewhere", modifications={"parameter_overrides": {"host": "x.test"}}),
    ],
    ids=["deny", "ask", "defer", "modify"],
)
def test_what_is_no_plain_allow_is_a_no_and_the_turn_goes_on(tmp_path: Path, reply: Reply) -> None:
    said: list[str | None] = []

    async def work(gate: EgressGate) -> None:
        said.extend([await gate.ask("site.test", 443, "connect"), await gate.ask("site.test", 443, "connect")])

    async def main() -> None:
        async with rig(tmp_path, ONE_CALL) as made:
            program(made, work)
            made.guardian.next(payloads.TOOL_CALL_REQUEST, Decision(Disposition.ALLOW), reply)
            turn = await made.run_turn(await session(made))
            assert turn.status == "completed"
            assert None not in said
            assert said[0] == said[1]
            assert made.guardian.written(turn.id).count(payloads.TOOL_CALL_REQUEST) == 2

    asyncio.run(main())


def test_silence_is_a_no_and_asked_again(tmp_path: Path) -> None:
    said: list[str | None] = []

    async def main() -> None:
        async with rig(tmp_path, ONE_CALL) as made:

            async def work(gate: EgressGate) -> None:
                made.guardian.fail(payloads.TOOL_CALL_REQUEST, *[Fault.LOSE_REQUEST] * 1_000)
                said.append(await gate.ask("site.test", 443, "connect"))
                made.guardian.heal()
                said.append(await gate.ask("site.test", 443, "connect"))

            program(made, work)
            turn = await made.run_turn(await session(made))
            assert said == ["no decision from the Guardian", None]
            assert "guardian.unavailable" in await made.types(turn)

    asyncio.run(main())


def test_a_turn_asks_for_no_more_destinations_than_it_may(tmp_path: Path) -> None:
    said: list[str | None] = []

    async def work(gate: EgressGate) -> None:
        said.extend([await gate.ask(f"{number}.other.test", 443, "connect") for number in range(3)])

    async def main() -> None:
        async with rig(tmp_path, ONE_CALL, settings=replace(SETTINGS, max_destinations=2)) as made:
            program(made, work)
            await made.run_turn(await session(made))
            assert said == [None, None, "a turn reaches at most 2 destinations"]

    asyncio.run(main())


def test_refusals_of_a_host_are_told_at_once_and_then_counted(tmp_path: Path) -> None:
    async def work(gate: EgressGate) -> None:
        for port in (80, 443, 443):
            await gate.refused("evil.test", port)
        await gate.refused("other.test", 443)

    async def main() -> None:
        async with rig(tmp_path, ONE_CALL) as made:
            program(made, work)
            turn = await made.run_turn(await session(made))
            assert await denials(made, turn) == [("evil.test", 80, 1), ("other.test", 443, 1), ("evil.test", 443, 2)]

    asyncio.run(main())


def test_a_program_that_tries_every_name_does_not_fill_the_events(tmp_path: Path) -> None:
    async def work(gate: EgressGate) -> None:
        for number in range(MAX_TOLD_HOSTS + 20):
            await gate.refused(f"{number}.test", 443)

    async def main() -> None:
        async with rig(tmp_path, ONE_CALL) as made:
            program(made, work)
            assert len(await denials(made, await made.run_turn(await session(made)))) == MAX_TOLD_HOSTS

    asyncio.run(main())


@pytest.mark.parametrize(
    ("agent", "own", "lists"),
    [
        (LISTED, None, (LISTED.allow,)),
        (LISTED, Network(("site.test",)), (LISTED.allow, ("site.test",))),
        (Network(), Network(("site.test",)), None),
        (LISTED, Network(), None),
    ],
)
def test_a_session_narrows_what_its_agent_may_reach(
    tmp_path: Path, agent: Network, own: Network | None, lists: tuple[tuple[str, ...], ...] | None
) -> None:
    async def main() -> None:
        async with rig(tmp_path, ONE_CALL) as made:
            await made.run_turn(await session(made, agent, own))
            assert [None if order is None else order.lists for order in made.sandbox.networks] == [lists]

    asyncio.run(main())


class Shelf:
    """A vault with one secret in it."""

    async def opened(self, project_id: str, names: Collection[str]) -> Mapping[str, OpenedSecret]:
        del project_id
        return {name: OpenedSecret(("api.test",), "value-of-it") for name in names if name == "kept"}


def test_a_box_gets_placeholders_and_a_value_in_what_a_tool_says_is_masked(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, ONE_CALL, start=False) as made:
            made.bench = replace(made.bench, vault=Shelf())
            made.worker = Worker(made.bench)
            made.work()

            async def tool(name: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
                del name, arguments
                return ScriptedOutcome(text="it is value-of-it, I know")

            made.sandbox.tool = tool
            wanted = (SecretRef("TOKEN", "kept"), SecretRef("OTHER", "gone"))
            turn = await made.run_turn(await session(made, secrets=wanted))
            order = made.sandbox.networks[-1]
            assert order is not None
            assert [(one.variable, one.hosts, one.value) for one in order.secrets] == [
                ("TOKEN", ("api.test",), "value-of-it")
            ]
            stored = "".join(event.data for event in await made.events(turn))
            assert f"it is {order.secrets[0].placeholder}, I know" in stored
            assert "value-of-it" not in stored + repr(order)

    asyncio.run(main())


def values_of(payload: Mapping[str, object]) -> dict[str, object]:
    """The arguments of a step without their labels."""
    arguments = cast("Mapping[str, Mapping[str, object]]", payload["arguments"])
    return {name: argument["value"] for name, argument in arguments.items()}
