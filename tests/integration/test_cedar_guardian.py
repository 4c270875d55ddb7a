"""A Guardian that serves rules and Cedar in one bundle: what they say together, and a Cedar that dies or changes."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
from tests.unit.guardian.kit import Agent, House, findings, greeted, house
from tests.unit.guardian.test_approvals import verified

from turnkeeper.acs import Verdict
from turnkeeper.policy.hosted import ComposedEngine
from turnkeeper.policy.reload import SwitchedEngine
from turnkeeper.wiring.policies import Served, served_engine

pytest.importorskip("cedarpy")

PATIENCE_S = 60
BASELINE = Path(__file__).parents[2] / "src" / "turnkeeper" / "policy" / "bundles" / "baseline" / "policy.yaml"
MORE_RULES = """
  - {id: no-rm, hooks: [toolCallRequest], tools: [rm], decision: deny, reasoning: No rm., reason_codes: [no_rm]}
  - id: here-only
    hooks: [toolCallRequest]
    tools: [cd, mail]
    decision: modify
    reasoning: Here.
    modify: {parameter_overrides: {command: "."}}
"""
ENGINES = "engines: {{cedar: {{hooks: [toolCallRequest], deadline_ms: {deadline_ms}}}}}\n"
CEDAR = """
permit(principal, action, resource);
@id("no-mail") @reasoning("No mail.") @reason_code("no_mail")
forbid(principal, action, resource == Tool::"mail");
"""
PERMIT_NOTHING = "forbid(principal, action, resource) when { context.session.steps < 0 };"


def bundle(place: Path, cedar: str = CEDAR, *, deadline_ms: int = 10_000) -> Path:
    """The shipped baseline rules, and Cedar beside them."""
    place.mkdir(exist_ok=True)
    (place / "policy.yaml").write_text(BASELINE.read_text() + MORE_RULES + ENGINES.format(deadline_ms=deadline_ms))
    (place / "a.cedar").write_text(cedar)
    return place


def serving(
    folder: Path, policy: Path, work: Callable[[House, Agent, SwitchedEngine[Served]], Awaitable[None]]
) -> None:
    """Runs some work with an agent of a Guardian that serves the policy."""

    async def main() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            served_engine(policy, look_every_ms=5) as engine,
            house(folder, policy=engine) as here,
        ):
            await work(here, await greeted(here), engine)

    asyncio.run(main())


def call(tool: str, command: str = "ls") -> dict[str, object]:
    return {"tool": {"name": tool}, "arguments": {"command": {"value": command}}}


def cited(verdict: Verdict, member: str) -> set[str]:
    """What a decision's policy references have as a member."""
    references = cast("list[dict[str, str]]", verdict.result["policy_references"])
    return {one[member] for one in references if member in one}


async def ask(agent: Agent, tool: str = "shell", command: str = "ls") -> Verdict:
    return await agent.step("toolCallRequest", call(tool, command))


async def allowed(agent: Agent) -> list[str]:
    """The codes of the denials before a call is allowed again."""
    codes = list[str]()
    while (verdict := await ask(agent)).decision != "allow":
        codes.extend(verdict.reason_codes)
        await asyncio.sleep(0.01)
    return codes


def version(engine: SwitchedEngine[Served]) -> str | None:
    return engine.reference.policy_version


def cedar_pid(engine: SwitchedEngine[Served]) -> int:
    """The one process that this one has."""
    assert isinstance(engine.current, ComposedEngine)
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    (pid,) = [int(one) for one in children if b"cedar_host" in Path(f"/proc/{one}/cmdline").read_bytes()]
    return pid


def test_rules_and_cedar_decide_together_and_whoever_denies_wins(tmp_path: Path) -> None:
    async def work(here: House, agent: Agent, engine: SwitchedEngine[Served]) -> None:
        del engine
        words = {tool: await ask(agent, tool) for tool in ("shell", "rm", "cd", "mail")}
        assert {tool: verdict.decision for tool, verdict in words.items()} == {
            "shell": "allow",
            "rm": "deny",
            "cd": "modify",
            "mail": "deny",
        }
        assert words["rm"].reason_codes == ("no_rm",)
        assert words["cd"].details == {"parameter_overrides": {"command": "."}}
        assert words["mail"].reason_codes == ("no_mail",)
        assert words["mail"].result["policy_data"] == {"rules": {"decision": "modify"}, "cedar": {"decision": "deny"}}
        assert cited(words["mail"], "rule_id") >= {"here-only", "no-mail"}
        assert verified(here, agent) == set()

    serving(tmp_path, bundle(tmp_path / "house"), work)


def test_cedar_killed_while_it_is_asked_denies_that_step_and_comes_back_by_itself(tmp_path: Path) -> None:
    async def work(here: House, agent: Agent, engine: SwitchedEngine[Served]) -> None:
        first = cedar_pid(engine)
        os.kill(first, signal.SIGSTOP)
        waiting = asyncio.ensure_future(ask(agent))
        await asyncio.sleep(0)
        os.kill(first, signal.SIGKILL)
        denied = await waiting
        assert (denied.decision, denied.reason_codes) == ("deny", ("evaluation_failed", "engine_unavailable"))
        assert findings(here) == ["evaluation_failed"]
        await allowed(agent)
        assert cedar_pid(engine) != first
        assert verified(here, agent) == set()

    serving(tmp_path, bundle(tmp_path / "house"), work)


def test_cedar_that_hangs_denies_at_its_deadline_and_is_replaced(tmp_path: Path) -> None:
    async def work(here: House, agent: Agent, engine: SwitchedEngine[Served]) -> None:
        first = cedar_pid(engine)
        os.kill(first, signal.SIGSTOP)
        assert (await ask(agent)).reason_codes == ("evaluation_failed", "engine_timeout")
        await allowed(agent)
        assert cedar_pid(engine) != first
        assert here.guardian.in_flight == 0

    serving(tmp_path, bundle(tmp_path / "house", deadline_ms=1_000), work)


def test_a_policy_changes_while_steps_are_decided_and_each_is_decided_by_one_of_the_two(tmp_path: Path) -> None:
    place = bundle(tmp_path / "house")

    async def work(here: House, agent: Agent, engine: SwitchedEngine[Served]) -> None:
        before, first = version(engine), cedar_pid(engine)
        decided = list[tuple[str, set[str]]]()

        async def steps(one: Agent) -> None:
            while version(engine) == before:
                verdict = await ask(one)
                decided.append((verdict.decision, cited(verdict, "policy_version")))

        agents = [agent, *[await greeted(here) for _ in range(3)]]
        running = asyncio.gather(*map(steps, agents))
        bundle(place, PERMIT_NOTHING)
        await running
        last = await ask(agent)
        assert (last.decision, cited(last, "policy_version")) == ("deny", {version(engine)})
        assert {word for word, by in decided if by == {before}} == {"allow"}
        assert {word for word, by in decided if by != {before}} <= {"deny"}
        while _runs(first):
            await asyncio.sleep(0.01)

    serving(tmp_path, place, work)


def test_the_replaced_cedar_lives_until_the_step_that_it_decides_is_decided(tmp_path: Path) -> None:
    place = bundle(tmp_path / "house")

    async def work(here: House, agent: Agent, engine: SwitchedEngine[Served]) -> None:
        del here
        before, first = version(engine), cedar_pid(engine)
        os.kill(first, signal.SIGSTOP)
        waiting = asyncio.ensure_future(ask(agent))
        bundle(place, PERMIT_NOTHING)
        while version(engine) == before:
            await asyncio.sleep(0.005)
        os.kill(first, signal.SIGCONT)
        verdict = await waiting
        assert (verdict.decision, cited(verdict, "policy_version")) == ("allow", {before})
        while _runs(first):
            await asyncio.sleep(0.01)

    serving(tmp_path, place, work)


def test_a_wrong_cedar_file_leaves_the_served_policy_and_no_process_behind(tmp_path: Path) -> None:
    place = bundle(tmp_path / "house")

    async def work(here: House, agent: Agent, engine: SwitchedEngine[Served]) -> None:
        del here
        first = cedar_pid(engine)
        bundle(place, "permit(principal")
        for _ in range(50):
            assert (await ask(agent)).decision == "allow"
            await asyncio.sleep(0.01)
        assert cedar_pid(engine) == first

    serving(tmp_path, place, work)


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
