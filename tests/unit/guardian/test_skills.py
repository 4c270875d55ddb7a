"""Skills: a pair of skill and digest is approved, and nothing else loads (CORE-SKILL-01 to 07)."""

from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest
from tests.unit.guardian.kit import ALLOW_ALL, Agent, House, engine, findings, greeted, running
from tests.unit.guardian.samples import AGBOM, DIGEST, OTHER_DIGEST

from turnkeeper.guardian.memory import MAX_SKILLS

NOT_THE_SECOND = ALLOW_ALL.replace(
    b"[]",
    b"""
  - id: second
    hooks: [skillRegister]
    when: payload.skill_id == 'bad' || session.steps == 2
    decision: deny
    reasoning: No.""",
)


def registering(
    skill_id: str, *capabilities: str, composed: tuple[str, ...] = (), **members: object
) -> dict[str, object]:
    """A skillRegister."""
    stated = {"composition": {"composed_skills": list(composed)}} if composed else {}
    return (
        {
            "skill_id": skill_id,
            "definition": {"digest": DIGEST},
            "declared_capabilities": list(capabilities),
        }
        | stated
        | members
    )


def loading(skill_id: str, *path: str, digest: Mapping[str, object] = DIGEST, **members: object) -> dict[str, object]:
    """A skillLoad; the path is the skill alone unless one is given."""
    return {
        "skill_id": skill_id,
        "digest": digest,
        "load_trigger": "user",
        "load_path": [{"skill_id": one} for one in path or (skill_id,)],
    } | members


async def load(agent: Agent, payload: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    """The answer to a skillLoad."""
    answer = await agent.step("skillLoad", payload)
    return answer.decision, answer.reason_codes


def test_only_the_pair_that_was_registered_loads(tmp_path: Path) -> None:
    """CORE-SKILL-02, CORE-SKILL-04: `digest_verified` is nobody's word but the sender's."""
    unverifiable = ("deny", ("skill_unverifiable",))

    async def before(here: House) -> str:
        agent = await greeted(here)
        assert await load(agent, loading("k")) == unverifiable
        await agent.step("skillRegister", registering("k"))
        return agent.session_id

    async def after(here: House) -> None:
        agent = here.agent(session_id=session_id)
        assert await load(agent, loading("k")) == ("allow", ())
        upper = {**DIGEST, "value": str(DIGEST["value"]).upper()}
        assert await load(agent, loading("k", digest=upper)) == ("allow", ())
        assert await load(agent, loading("k", digest=OTHER_DIGEST, digest_verified=True)) == unverifiable
        assert await load(agent, loading("other")) == unverifiable
        assert await load(await greeted(here), loading("k")) == unverifiable

    session_id = running(tmp_path, before)
    running(tmp_path, after)


def test_a_skill_whose_registration_is_denied_cannot_load_even_if_it_could_before(tmp_path: Path) -> None:
    """CORE-SKILL-01."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        assert (await agent.step("skillRegister", registering("k"))).decision == "allow"
        assert (await agent.step("skillRegister", registering("k"))).decision == "deny"
        assert (await load(agent, loading("k")))[0] == "deny"

    running(tmp_path, work, policy=engine(NOT_THE_SECOND))


@pytest.mark.parametrize(
    ("payload", "decision"),
    [
        (loading("b", "a", "b", load_trigger="skill_composition"), "allow"),
        (loading("b", "a", load_trigger="skill_composition"), "allow"),
        (loading("c", "a", "b", "c", load_trigger="skill_composition"), "allow"),
        (loading("c", "a", "c", load_trigger="skill_composition"), "deny"),
        (loading("c", "x", "c"), "deny"),
        (loading("a", "b", "a"), "deny"),
        (loading("b", load_trigger="skill_composition"), "deny"),
    ],
)
def test_a_skill_loads_another_only_where_it_is_composed_of_it(
    tmp_path: Path, payload: Mapping[str, object], decision: str
) -> None:
    """CORE-SKILL-03: a is made of b, and b of c."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.step("skillRegister", registering("a", composed=("b",)))
        await agent.step("skillRegister", registering("b", composed=("c",)))
        await agent.step("skillRegister", registering("c"))
        codes = () if decision == "allow" else ("skill_load_path",)
        assert await load(agent, payload) == (decision, codes)

    running(tmp_path, work)


def test_a_load_declares_no_more_than_was_registered(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.step("skillRegister", registering("k", "fs.read", "fs.write"))
        assert (await load(agent, loading("k", declared_capabilities=["fs.read"])))[0] == "allow"
        more = await load(agent, loading("k", declared_capabilities=["fs.read", "net"]))
        assert more == ("deny", ("skill_capabilities",))

    running(tmp_path, work)


def test_a_skill_that_claims_more_than_its_parts_can_do_is_a_finding(tmp_path: Path) -> None:
    """CORE-SKILL-05: compared with the union of its tools' and its skills' capabilities."""
    tool = {
        "id": "tool-1",
        "type": "tool",
        "name": "reader",
        "version": "1",
        "provider": "p",
        "tool_fields": {"capability": "fs.read"},
        "registration_provenance": {"provenance_id": "r", "origin": "system"},
    }

    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.step("agbom/snapshot", {"agbom": {**AGBOM, "components": [tool]}})
        await agent.step("skillRegister", registering("net", "net"))
        parts = {"tools": ["reader"], "composed_skills": ["net"]}
        assert (
            await agent.step("skillRegister", registering("k", "fs.read", "net", composition=parts))
        ).decision == "allow"
        assert findings(here) == []
        await agent.step("skillRegister", registering("m", "fs.write", composition=parts))
        assert findings(here) == ["skill_capabilities"]

    running(tmp_path, work)


def test_a_skills_body_is_not_kept_in_what_the_session_remembers(tmp_path: Path) -> None:
    """CORE-SKILL-09."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.step("skillRegister", registering("k", definition={"digest": DIGEST, "body": "SECRET-BODY"}))
        live = await here.guardian._sessions.find(agent.session_id)  # pyright: ignore[reportPrivateUsage]
        assert live is not None
        assert live.progress.memory.kept.skills
        assert b"SECRET-BODY" not in orjson.dumps(live.progress.memory.kept, default=dict)

    running(tmp_path, work)


def test_a_session_that_can_remember_no_more_skills_denies_them(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        for number in range(MAX_SKILLS):
            await agent.step("skillRegister", registering(str(number)))
        answer = await agent.step("skillRegister", registering("more"))
        assert (answer.decision, answer.reason_codes) == ("deny", ("session_memory_full",))
        huge = await agent.step("skillRegister", registering("0", "c" * 2_000))
        assert huge.reason_codes == ("session_memory_full",)
        assert (await load(agent, loading("1")))[0] == "allow"

    running(tmp_path, work)


def test_what_a_session_keeps_is_bounded_in_bytes_as_well(tmp_path: Path) -> None:
    """Each skill is below its own limits, all together are not."""
    many = [f"{number:0900d}" for number in range(250)]

    async def work(here: House) -> None:
        agent = await greeted(here)
        assert (await agent.step("skillRegister", registering("a", *many))).decision == "allow"
        answer = await agent.step("skillRegister", registering("b", *many))
        assert (answer.decision, answer.reason_codes) == ("deny", ("session_memory_full",))

    running(tmp_path, work)
