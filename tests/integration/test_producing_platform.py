"""Our own agent under a real Guardian in a strict session: all it shows is labeled, and what was changed is used."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import orjson
from tests.integration.test_governed_turn import assert_verified
from tests.unit.turns.rig import KEYRING, Rig, rig, script

from turnkeeper.acs import provenance_objects
from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import parse_rules
from turnkeeper.sandbox.protocol import ToolRequest, ToolResult
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.testing.recording_sandbox import ScriptedHarness, ScriptedOutcome
from turnkeeper.wiring.doors import InProcessLink

RULES = b"""
version: 1
name: changes
default: allow
rules:
  - id: no-removals
    hooks: [toolCallRequest]
    when: has(args.command) && args.command.startsWith("rm ")
    decision: modify
    reasoning: Removals are shown, not done.
    modify: {parameter_overrides: {command: "echo kept"}}
  - id: no-keys-in-outputs
    hooks: [toolCallResult]
    when: payload.outputs[0].value.contains("sk-")
    decision: modify
    reasoning: Keys are not passed on.
    modify: {redactions: [{path: /outputs/0/value, replacement: "[KEY]"}]}
  - id: no-names-in-messages
    hooks: [userMessage, agentResponse]
    when: payload.content[0].value.contains("Mallory")
    decision: modify
    reasoning: Names stay here.
    modify: {redactions: [{path: /content/0/value, replacement: "[NAME]"}]}
"""


@asynccontextmanager
async def strict_guardian(folder: Path) -> AsyncGenerator[InProcessLink]:
    """A Guardian whose policy decides by provenance."""
    guardian = Guardian(
        store=SqliteGuardianStore(folder / "guardian.db"),
        engine=CelEngine(parse_rules(RULES)),
        clock=SystemClock(),
        settings=GuardianSettings(policy_requires_provenance=True),
    )
    await guardian.start()
    try:
        yield InProcessLink(guardian, Door("in_process", KEYRING))
    finally:
        await guardian.stop()


def entries_of(folder: Path) -> list[dict[str, Any]]:
    reader = SqliteChainReader(folder / "guardian.db")
    (session,) = reader.sessions(limit=10)
    return [orjson.loads(row.entry) for row in reader.rows(session.session_id) if row.entry is not None]


async def labels_of(made: Rig, session_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for step in await made.store.steps(session_id):
        found += map(cast("Any", dict), provenance_objects(step.method, orjson.loads(step.payload_json or "{}")))
    return found


async def calls_once(harness: ScriptedHarness) -> None:
    await harness.ask(ToolRequest("c1", "shell", '{"command":"ls","cwd":"/"}'))
    await harness.report("done")


def test_every_value_is_labeled_and_the_chain_says_what_was_seen(tmp_path: Path) -> None:
    async def main() -> None:
        async with strict_guardian(tmp_path) as link, rig(tmp_path, script(calls_once), link=link) as made:
            session = await made.session()
            for _ in range(2):
                assert (await made.run_turn(session)).status == "completed"
            await made.settled(session.id)
            await assert_verified(made, tmp_path)
            counts: dict[str, int] = {}
            for entry in entries_of(tmp_path):
                for origin, count in entry["provenance_summary"]["entry_count_by_origin"].items():
                    counts[origin] = counts.get(origin, 0) + count
            assert counts == {"user_input": 2, "agent_generated": 8, "tool_output": 2}
            ids = [label["provenance_id"] for label in await labels_of(made, session.id)]
            assert len(ids) == len(set(ids)) == 12

    asyncio.run(main())


def test_what_the_policy_changes_is_what_happens(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[ToolResult] = []

        async def works(harness: ScriptedHarness) -> None:
            assert (await harness.begin()).input == "[NAME]"
            for command in ("rm all", "cat key"):
                result = await harness.ask(ToolRequest(command, "shell", orjson.dumps({"command": command}).decode()))
                assert isinstance(result, ToolResult)
                told.append(result)
            await harness.report("Mallory did it")

        async with strict_guardian(tmp_path) as link, rig(tmp_path, works, link=link) as made:
            made.sandbox.tool = _says_the_key
            turn = await made.ended(await made.post(await made.session(), "ask Mallory"))
            await made.settled(turn.session_id)
            assert made.sandbox.calls == [("shell", {"command": "echo kept"}), ("shell", {"command": "cat key"})]
            assert [result.content for result in told] == ["nothing", "[KEY]"]
            assert (turn.status, turn.text) == ("completed", "[NAME]")
            await assert_verified(made, tmp_path)

    asyncio.run(main())


async def _says_the_key(tool: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
    del tool
    return ScriptedOutcome(text="sk-123" if arguments["command"] == "cat key" else "nothing")
