"""The heads an agent was shown: it says when an answer does not go on from them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.rig import KEYRING, Rig

from turnkeeper.acs import Disposition, Verdict, sign_response
from turnkeeper.client import ClientSettings, GuardianClient, StepDenied
from turnkeeper.client.heads import MAX_BREAKS, MAX_HEADS, WitnessedHeads
from turnkeeper.testing.scripted_guardian import deny

DIGEST = st.text("0123456789abcdef", min_size=64, max_size=64)


def verdict(head: str | None, decision: Disposition = Disposition.ALLOW, *codes: str) -> Verdict:
    return Verdict(decision, None, codes, head, {})


def digest(number: int) -> str:
    return f"{number:064x}"


@given(st.lists(DIGEST, unique=True, max_size=20))
def test_heads_that_are_all_new_are_never_a_break(published: list[str]) -> None:
    heads = WitnessedHeads()
    for head in published:
        assert heads.witness("r", verdict(head), stated=heads.last) is None
    assert heads.last == (published[-1] if published else None)


@given(st.lists(DIGEST, unique=True, min_size=1, max_size=20), st.data())
def test_a_head_that_comes_again_is_a_break(published: list[str], data: st.DataObject) -> None:
    heads = WitnessedHeads()
    for head in published:
        heads.witness("r", verdict(head), stated=None)
    again = data.draw(st.sampled_from(published))
    found = heads.witness("again", verdict(again), stated=None)
    assert found is not None
    assert (found.code, found.request_id, found.published) == ("chain_head_repeated", "again", again)
    assert heads.breaks == (found,)


def test_a_guardian_that_denies_the_head_it_published_is_a_break() -> None:
    heads = WitnessedHeads()
    heads.witness("r", verdict(digest(1)), stated=None)
    denied = verdict(digest(2), Disposition.DENY, "chain_mismatch")
    assert heads.witness("unstated", denied, stated=None) is None
    found = heads.witness("stated", replace(denied, chain_hash=digest(3)), stated=digest(2))
    assert found is not None
    assert (found.code, found.witnessed) == ("chain_head_refused", digest(2))


@pytest.mark.parametrize(
    ("decision", "broken"), [(Disposition.ALLOW, True), (Disposition.MODIFY, True), (Disposition.DENY, False)]
)
def test_only_a_denial_may_be_without_an_entry_once_there_is_a_chain(decision: Disposition, broken: bool) -> None:
    heads = WitnessedHeads()
    assert heads.witness("first", verdict(None, decision), stated=None) is None
    heads.witness("second", verdict(digest(1)), stated=None)
    assert (heads.witness("third", verdict(None, decision), stated=None) is not None) == broken
    assert heads.last == digest(1)


def test_what_is_remembered_is_bounded() -> None:
    heads = WitnessedHeads()
    for number in range(MAX_HEADS + 1):
        heads.witness("r", verdict(digest(number)), stated=None)
    assert heads.witness("r", verdict(digest(0)), stated=None) is None
    for _ in range(MAX_BREAKS + 1):
        heads.witness("r", verdict(digest(MAX_HEADS)), stated=None)
    assert len(heads.breaks) == MAX_BREAKS


def republishing(rig: Rig) -> Callable[[bytes], Awaitable[bytes]]:
    """A Guardian that publishes its first head a second time, at the end of the turn."""
    heads: list[str] = []

    async def answer(body: bytes) -> bytes:
        raw = await rig.scripted.exchange(body, timeout_ms=0)
        request, told = orjson.loads(body), orjson.loads(raw)
        head = told["result"].get("chain_hash")
        if head is None:
            return raw
        heads.append(head)
        if request["method"] == "steps/turnEnd":
            told["result"]["chain_hash"] = heads[0]
        key = KEYRING.session_key("default", request["params"]["metadata"]["session_id"])
        return orjson.dumps(sign_response(told, key))

    return answer


def test_a_broken_head_is_in_the_audit_log_and_at_the_session() -> None:
    rig = Rig()
    rig.answer = republishing(rig)

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session:
            async with session.turn() as turn:
                await turn.user_message("one")
            assert [one.code for one in session.head_breaks] == ["chain_head_repeated"]
            assert session.witnessed_head == session.head

    rig.run(work)
    assert rig.audited() == [("head_mismatch", "observed")]


async def one_turn(guardian: GuardianClient) -> None:
    async with guardian.session() as session, session.turn() as turn:
        await turn.user_message("one")


def test_decisions_are_audited_with_their_heads_where_the_settings_say_so() -> None:
    rig = Rig(ClientSettings(audit_decisions=True))
    rig.run(one_turn)
    told = [record.document for record in rig.records]
    assert [one["event"] for one in told] == ["decision"] * 5
    assert told[2]["method"] == "steps/userMessage"
    assert len({one["chain_hash"] for one in told}) == 5
    assert {(one["received"], one["outcome"]) for one in told} == {("allow", "proceeded")}


def test_a_denied_step_is_audited_as_blocked() -> None:
    rig = Rig(ClientSettings(audit_decisions=True))
    rig.scripted.next("steps/userMessage", deny("no", "rule"))
    with pytest.raises(StepDenied):
        rig.run(one_turn)
    (denied,) = [record.document for record in rig.records if record.document["received"] == "deny"]
    assert (denied["outcome"], denied["reason_codes"]) == ("blocked", ["rule"])


def test_without_that_setting_a_decision_leaves_no_record() -> None:
    rig = Rig()
    rig.run(one_turn)
    assert rig.audited() == []
