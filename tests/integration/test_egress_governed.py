"""A destination before a real Guardian: its rules see host and port, and what was asked is proven like any step."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from tests.integration.test_governed_turn import PATIENT, assert_verified
from tests.unit.turns.rig import KEYRING, rig
from tests.unit.turns.test_egress import ONE_CALL, session

from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import parse_rules
from turnkeeper.policy.shipped import default_policy
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.testing.recording_sandbox import ScriptedOutcome
from turnkeeper.wiring.doors import InProcessLink

RULES = b"""
version: 1
name: test
default: allow
rules:
  - id: one-site
    hooks: [toolCallRequest]
    tools: [egress]
    when: '!(args.host == "site.test" && args.port == 443)'
    decision: deny
    reasoning: Only site.test.
"""


def said_under(rules: bytes, folder: Path) -> list[str | None]:
    """What a program is told about two destinations."""
    said: list[str | None] = []

    async def main() -> None:
        store = SqliteGuardianStore(folder / "guardian.db")
        guardian = Guardian(store=store, engine=CelEngine(parse_rules(rules)), clock=SystemClock())
        await guardian.start()
        link = InProcessLink(guardian, Door("in_process", KEYRING))
        async with rig(folder, ONE_CALL, link=link, governor=PATIENT) as made:

            async def tool(name: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
                del name, arguments
                order = made.sandbox.networks[-1]
                assert order is not None
                said.extend([await order.gate.ask("site.test", port, "connect") for port in (443, 80)])
                return ScriptedOutcome(text="ran")

            made.sandbox.tool = tool
            turn = await made.run_turn(await session(made))
            assert turn.status == "completed"
            await made.settled(turn.session_id)
            await assert_verified(made, folder)
        await guardian.stop()

    asyncio.run(main())
    return said


def test_a_rule_goes_by_host_and_port(tmp_path: Path) -> None:
    assert said_under(RULES, tmp_path) == [None, "Only site.test.; policy_denied"]


def test_the_shipped_default_lets_nothing_out(tmp_path: Path) -> None:
    assert None not in said_under(default_policy(), tmp_path)
