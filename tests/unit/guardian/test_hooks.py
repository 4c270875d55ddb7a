"""Every hook that ACS defines is evaluated, with its own schema and its own dispositions (ledger section 4)."""

from pathlib import Path

import orjson
import pytest
from tests.unit.guardian.kit import DENY_ALL, WITH_PROVENANCE, Agent, House, engine, greeted, running
from tests.unit.guardian.samples import PAYLOADS, provenance, result, said

from turnkeeper.acs import METHODS, PING_METHOD, Refusal, ServerHello, validator
from turnkeeper.guardian.calls import OFFERED_METHODS
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.store.chain_reader import SqliteChainReader

HOOKS = sorted(METHODS.keys() - {PING_METHOD})


def entries(here: House, agent: Agent) -> list[dict[str, object]]:
    """A session's entries as recorded."""
    with SqliteChainReader(here.path) as reader:
        return [orjson.loads(row.entry) for row in reader.rows(agent.session_id) if row.entry is not None]


def test_all_that_acs_defines_is_offered_and_has_a_sample_here() -> None:
    """CORE-HS-04, CORE-HOOK-01."""
    assert frozenset(METHODS) == OFFERED_METHODS
    assert sorted(PAYLOADS) == HOOKS


@pytest.mark.parametrize("method", HOOKS)
def test_a_policy_that_denies_everything_denies_each_hook_that_may_be_denied(tmp_path: Path, method: str) -> None:
    """CORE-HS-05, CORE-HOOK-05, CORE-CMP-03: audit-only hooks are allowed, and every one has its entry."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        answer = await agent.step(method, PAYLOADS[method])
        audit_only = METHODS[method].audit_only
        assert answer.decision == ("allow" if audit_only else "deny")
        assert not audit_only or "disposition_not_permitted" in answer.reason_codes
        (entry,) = entries(here, agent)
        assert answer.chain_hash == entry["entry_hash"]

    running(tmp_path, work, policy=engine(DENY_ALL))


@pytest.mark.parametrize("method", sorted(set(HOOKS) - {"steps/sessionStart"}))
def test_a_payload_that_breaks_its_hooks_schema_is_refused(tmp_path: Path, method: str) -> None:
    """CORE-HOOK-06 to 11, CORE-SKILL-07."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        assert (await agent.refused(method, {})).code == -32602

    running(tmp_path, work)


def test_a_session_ends_by_either_name_of_its_reason(tmp_path: Path) -> None:
    """CORE-END-01: and what it does not know is refused under both."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        assert (await agent.refused("sessionEnd", {"session_reason": "bored"})).code == -32602
        assert (await agent.step("sessionEnd", {"session_reason": "timeout"})).decision == "allow"
        assert (await agent.step("userMessage", PAYLOADS["steps/userMessage"])).reason_codes == ("session_closed",)

    running(tmp_path, work)


def test_every_entry_says_which_origins_its_step_brought(tmp_path: Path) -> None:
    """AUD-02, CORE-CH-02: inside the hash, and the shape is the standard's."""

    async def work(here: House) -> None:
        agent = await greeted(here, claims=WITH_PROVENANCE)
        await agent.step("userMessage", said(provenance("m", "user_input")), request_id=FIRST)
        await agent.step("toolCallResult", result(provenance("a"), provenance("b", "external")))
        await agent.step("sessionEnd", {"reason": "completed"})
        summaries = [entry["provenance_summary"] for entry in entries(here, agent)]
        for summary in summaries:
            validator("provenance-summary").check(summary)
        assert summaries[0] == {
            "origins_seen": ["user_input"],
            "entry_count": 1,
            "entry_count_by_origin": {"user_input": 1},
            "earliest_step_id_by_origin": {"user_input": FIRST},
        }
        assert [orjson.loads(orjson.dumps(summary))["entry_count"] for summary in summaries] == [1, 2, 0]

    running(tmp_path, work)


FIRST = "0b1f2c9e-4d7a-4e3b-8a51-9c0d2e7f1a36"


def test_a_session_under_the_provenance_profile_owes_provenance_on_every_field(tmp_path: Path) -> None:
    """PROV-01: deterministic and accepted, else the base schema goes."""
    bare = {"tool": {"name": "fetch"}, "arguments": {"url": {"value": "u"}}}

    async def work(here: House) -> None:
        strict = await greeted(here, claims=WITH_PROVENANCE)
        assert (await strict.refused("toolCallRequest", bare)).code == -32602
        assert (await strict.refused("userMessage", PAYLOADS["steps/userMessage"])).code == -32602
        assert (await strict.step("userMessage", said(provenance("m", "user_input")))).decision == "allow"
        for claims in ({"provenance_producer": "deterministic"}, WITH_PROVENANCE | {"provenance_producer": "none"}):
            loose = await greeted(here, claims=claims)
            assert (await loose.step("toolCallRequest", bare)).decision == "allow"

    running(tmp_path, work)


def test_the_profiles_that_are_implemented_are_accepted_and_no_others(tmp_path: Path) -> None:
    """CORE-HS-10, CONF-01."""

    async def work(here: House) -> None:
        agent = here.agent()
        answer = await agent.hello(
            claims={"profiles_supported": ["acs-core", "acs-trace", "acs-provenance", "acs-audit", "acs-crypto"]}
        )
        assert isinstance(answer, ServerHello)
        assert answer.profiles_accepted == ("acs-core", "acs-provenance", "acs-audit")

    running(tmp_path, work)


def test_a_policy_that_needs_provenance_refuses_who_has_none(tmp_path: Path) -> None:
    """CORE-HS-07."""

    async def work(here: House) -> None:
        agent = here.agent()
        answer = await agent.hello()
        assert isinstance(answer, Refusal)
        assert answer.code == -32002
        assert isinstance(await agent.hello(claims=WITH_PROVENANCE), ServerHello)

    running(tmp_path, work, settings=GuardianSettings(policy_requires_provenance=True))
