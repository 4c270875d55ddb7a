"""Cedar in its own process: real policies, and a process that is killed, late, or refuses to start."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.unit.policy.samples import facts, rule_ids, tool_call

from turnkeeper.acs import Disposition
from turnkeeper.policy.bundle import Bundle, parse_bundle
from turnkeeper.policy.document import PolicyRejected
from turnkeeper.policy.engines.cedar import HOST_MODULE
from turnkeeper.policy.facts import Facts, TurnFacts
from turnkeeper.policy.hosted import ComposedEngine, EngineUnavailable
from turnkeeper.policy.hosted import decide as policy_says
from turnkeeper.policy.reload import require_passing
from turnkeeper.wiring.engine_process import EngineProcess, python_host
from turnkeeper.wiring.policies import load_policy, open_engine

pytest.importorskip("cedarpy")

RULES = """
version: 1
name: house
default: allow
rules: []
engines: {cedar: {hooks: [toolCallRequest], deadline_ms: 10000}}
"""
CEDAR = """
permit(principal, action, resource);
@id("three") @reasoning("At most three.") @reason_code("tool_call_limit")
forbid(principal, action == Action::"toolCallRequest", resource == Tool::"shell") when { context.turn.tool_calls > 3 };
@id("no-secrets")
forbid(principal, action, resource) when { context.args has path && context.args.path like "*.env" };
"""
PATIENCE_S = 30


def bundle(cedar: str = CEDAR) -> Bundle:
    return parse_bundle({"policy.yaml": RULES.encode(), "a.cedar": cedar.encode()})


async def decide(engine: ComposedEngine, step: Facts) -> list[object]:
    decision = await policy_says(engine, step)
    return [decision.disposition, *rule_ids(decision)[1:]]


def with_engine(test: Callable[[ComposedEngine], Awaitable[None]], cedar: str = CEDAR) -> None:
    async def main() -> None:
        async with open_engine(bundle(cedar)) as engine:
            await test(engine)

    asyncio.run(main())


def test_cedar_decides_by_the_guardians_facts() -> None:
    async def test(engine: ComposedEngine) -> None:
        assert await decide(engine, tool_call(turn=TurnFacts("t", tool_calls=3))) == [Disposition.ALLOW, "policy0"]
        assert await decide(engine, tool_call(turn=TurnFacts("t", tool_calls=4))) == [Disposition.DENY, "three"]
        assert await decide(engine, tool_call("read", path="/a/.env")) == [Disposition.DENY, "no-secrets"]
        assert engine.evaluate(facts("steps/userMessage")).disposition is Disposition.ALLOW

    with_engine(test)


def test_a_policy_that_fails_denies_although_another_permits() -> None:
    async def test(engine: ComposedEngine) -> None:
        step = tool_call("read", path=7)
        decision = await policy_says(engine, step)
        assert decision.reason_codes == ("evaluation_failed",)

    with_engine(test)


def test_a_forged_entity_in_an_argument_is_denied() -> None:
    async def test(engine: ComposedEngine) -> None:
        step = tool_call("read", path={"__entity": {"type": "Tool", "id": "x"}})
        assert (await policy_says(engine, step)).disposition is Disposition.DENY

    with_engine(test)


def test_a_permit_that_delegates_denies_for_there_is_nobody_to_delegate_to() -> None:
    async def test(engine: ComposedEngine) -> None:
        decision = await policy_says(engine, tool_call())
        assert decision.reason_codes == ("evaluation_failed", "agent_layer_unavailable")

    with_engine(test, '@delegate_to("agent") permit(principal, action, resource);')


def test_many_questions_at_once_get_each_their_own_answer() -> None:
    async def test(engine: ComposedEngine) -> None:
        steps = [tool_call(turn=TurnFacts("t", tool_calls=count)) for count in range(64)]
        found = await asyncio.gather(*(decide(engine, step) for step in steps))
        assert [one[0] is Disposition.DENY for one in found] == [count > 3 for count in range(64)]

    with_engine(test)


@pytest.mark.parametrize(
    "cedar",
    [
        "permit(principal",
        '@id("a") permit(principal, action, resource);\n' * 2,
        "permit(principal == ?principal, action, resource);",
    ],
)
def test_policies_that_cannot_be_used_are_refused_at_the_start(cedar: str) -> None:
    async def main() -> None:
        async with open_engine(bundle(cedar)):
            raise AssertionError("it was started")

    with pytest.raises(PolicyRejected):
        asyncio.run(main())


def test_the_example_with_cedar_passes_its_own_tests() -> None:
    example = load_policy(Path(__file__).parents[2] / "examples" / "cedar-policy")

    async def main() -> None:
        async with open_engine(example) as engine:
            await require_passing(example, engine)

    assert example.cases
    asyncio.run(main())


def link(deadline_ms: int = 10_000) -> EngineProcess:
    return EngineProcess(python_host(HOST_MODULE), {"policies": CEDAR}, deadline_ms=deadline_ms)


QUESTION: dict[str, object] = {
    "principal": {"type": "Agent", "id": "a"},
    "action": {"type": "Action", "id": "x"},
    "resource": {"type": "Step", "id": "x"},
    "context": {"args": {}},
}


async def answered(process: EngineProcess) -> None:
    """Returns once a question is answered again."""
    while True:
        try:
            assert (await process.ask(QUESTION))["decision"] == "allow"
            return
        except EngineUnavailable:
            await asyncio.sleep(0.01)


def test_a_killed_process_denies_what_waits_for_it_and_is_started_again() -> None:
    async def main() -> None:
        process = link()
        await process.start()
        first = process.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        waiting = asyncio.ensure_future(process.ask(QUESTION))
        await asyncio.sleep(0)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(EngineUnavailable):
            await waiting
        async with asyncio.timeout(PATIENCE_S):
            await answered(process)
        assert process.pid not in (None, first)
        await process.stop()

    asyncio.run(main())


def test_a_process_that_hangs_is_given_up_at_the_deadline_and_replaced() -> None:
    async def main() -> None:
        process = link(deadline_ms=500)
        await process.start()
        first = process.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        with pytest.raises(EngineUnavailable):
            await process.ask(QUESTION)
        async with asyncio.timeout(PATIENCE_S):
            await answered(process)
        assert process.pid not in (None, first)
        await process.stop()
        assert process.pid is None

    asyncio.run(main())


def test_a_module_that_does_not_speak_as_agreed_is_unavailable() -> None:
    async def main() -> None:
        process = EngineProcess(python_host("this"), {"policies": ""}, deadline_ms=500)
        with pytest.raises(EngineUnavailable):
            await process.start()
        await process.stop()

    asyncio.run(main())
