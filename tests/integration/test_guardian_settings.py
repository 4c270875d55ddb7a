"""What an operator writes into `turnkeeper.toml` is what the Guardian does."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.unit.guardian.kit import IN_PROCESS, KEYRING, Agent
from tests.unit.guardian.samples import provenance, result

from turnkeeper.acs import Refusal, ServerHello, Verdict
from turnkeeper.config import load_configuration
from turnkeeper.datadir import DataDir
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import parse_rules
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.guardian import start_guardian

SETTINGS = """
[guardian]
policy_requires_provenance = true

[guardian.trust_overrides.clock]
origin = "tool_output"
source_id = "clock"
trust = "trusted"
"""
TRUSTED_ONLY = b"""
version: 1
name: trusted-only
default: allow
rules:
  - {id: trust, hooks: [toolCallResult], when: provenance.trust != "trusted", decision: deny, reasoning: Not trusted.}
"""


async def agent_of_a_served_guardian(stack: AsyncExitStack, place: Path) -> Agent:
    """An agent of a Guardian that runs with the settings above; it has not shaken hands."""
    file = place / "turnkeeper.toml"
    file.write_text(SETTINGS)
    flags = {"data_dir": place / "data"}
    base = Base(load_configuration({"HOME": str(place)}, file=file, flags=flags), DataDir(place / "data"))
    base.folder.prepare()
    guardian = await start_guardian(stack, base, CelEngine(parse_rules(TRUSTED_ONLY)))
    return Agent(guardian, FakeClock(base.clock.now()), keyring=KEYRING, door=IN_PROCESS)


def test_an_agent_without_provenance_is_refused_where_the_policy_needs_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            agent = await agent_of_a_served_guardian(stack, tmp_path)
            refused = await agent.hello()
            assert isinstance(refused, Refusal)
            assert (refused.code, refused.reason) == (-32002, "provenance_required")

    asyncio.run(main())


def test_the_hello_says_that_provenance_is_required_and_which_approvers_there_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            agent = await agent_of_a_served_guardian(stack, tmp_path)
            hello = await agent.hello(claims={"provenance_producer": "deterministic"})
            assert isinstance(hello, ServerHello)
            assert hello.document["policy_requires_provenance"] is True
            assert hello.document["approver_types_supported"] == ["human", "agent", "service"]

    asyncio.run(main())


def test_a_source_is_trusted_as_the_settings_say_and_the_record_shows_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            agent = await agent_of_a_served_guardian(stack, tmp_path)
            await agent.hello(claims={"provenance_producer": "deterministic"})
            sources = {"a": "clock", "b": "web"}
            answers = [
                await agent.step("toolCallResult", result(provenance(name, source_id=source)))
                for name, source in sources.items()
            ]
            assert all(isinstance(answer, Verdict) for answer in answers)
            assert [answer.decision for answer in answers] == ["allow", "deny"]
        with SqliteChainReader(DataDir(tmp_path / "data").guardian_database) as reader:
            found = [one.finding for one in reader.findings(limit=9) if one.finding.code == "trust_overridden"]
        assert [one.message for one in found] == [
            "data of origin tool_output from clock counts as trusted instead of untrusted"
        ]

    asyncio.run(main())
