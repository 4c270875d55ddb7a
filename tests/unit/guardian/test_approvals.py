"""ASK and DEFER resolved by an approver: the step is sent again and refers to the question (ACS 9)."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.unit.guardian.kit import KEYRING, TOOL_CALL, Agent, House, engine, findings, greeted, running

from turnkeeper.acs import Verdict, validator
from turnkeeper.clock import epoch_ms
from turnkeeper.guardian.approvals import (
    MAX_APPROVAL_MS,
    Approval,
    ApprovalAnswer,
    ApprovalKind,
    ApprovalRefused,
    Approver,
    decided,
    input_hash,
)
from turnkeeper.guardian.capabilities import ClientAbilities, ClientEntry
from turnkeeper.guardian.export import export_lines, parse_line
from turnkeeper.guardian.resubmissions import MAX_QUESTIONS, USE_GRACE_MS
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.guardian.verify import verify_export, verify_stored
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.store.guardian_desk import SqliteGuardianDesk

POLICY = b"""
version: 1
name: approvals
default: allow
rules:
  - id: ask
    hooks: [toolCallRequest]
    tools: [shell]
    decision: ask
    reasoning: A person decides.
    ask: {question: "Run it?", timeout_seconds: 60, approver: {type: human, id: operators}}
  - id: wait
    hooks: [toolCallRequest]
    tools: [wait]
    decision: defer
    reasoning: A person decides.
    defer: {reason: low_confidence, resolution_method: human_approval, resolution_timeout_ms: 60000}
  - id: later
    hooks: [toolCallRequest]
    tools: [later]
    decision: defer
    reasoning: Soon.
    defer: {reason: low_confidence, resolution_method: timeout, resolution_timeout_ms: 60000, timeout_decision: ask}
  - id: outside
    hooks: [toolCallRequest]
    when: intent.declared && !intent.covered && tool.name == "mail"
    decision: ask
    reasoning: The session was not declared for that.
    ask:
      question: "May it send mail?"
      timeout_seconds: 60
      approver: {type: human, id: operators}
      intent_extension: {scope: session, capabilities: [{tool: mail}]}
  - id: never
    hooks: [toolCallRequest]
    tools: [shell]
    when: has(args.command) && args.command == "rm"
    decision: deny
    reasoning: Never.
"""
WAITING = ClientEntry(ClientAbilities(can_ask=True, approver_types=frozenset({"human"})))
OPERATOR = Approver("key_1", "ana", "human", frozenset({"operators"}))
INTENT = {
    "raw": "read files",
    "parsed": [{"tool": "read"}],
    "parser_provenance": {"provenance_id": "p", "origin": "user_input"},
    "scope_mode": "strict",
}


def call(tool: str = "shell", command: str = "ls") -> dict[str, object]:
    return {**TOOL_CALL, "tool": {"name": tool}, "arguments": {"command": {"value": command}}}


async def asked(agent: Agent, payload: Mapping[str, object] | None = None, decision: str = "ask") -> str:
    """The request_id of a step that was asked about."""
    request_id = str(uuid4())
    verdict = await agent.step("toolCallRequest", payload or call(), request_id=request_id)
    assert verdict.decision == decision, verdict
    return request_id


async def again(agent: Agent, request_id: str, payload: Mapping[str, object] | None = None) -> Verdict:
    """The same step, sent once more."""
    return await agent.step("toolCallRequest", {**(payload or call()), "request_id_ref": request_id})


def answer(here: House, decision: str = "approve", *, scope: str = "this_request", index: int = -1) -> Approval:
    """An approver's word on a question, the last one unless told otherwise."""
    store, now_ms = SqliteGuardianDesk(here.path), epoch_ms(here.clock.now())
    _, approval = store.approvals(status=None, after=0, limit=99, now_ms=now_ms)[index]
    result = store.decide(approval.approval_id, ApprovalAnswer(decision, scope), OPERATOR, now_ms)
    assert result is not None
    return result


def verified(here: House, agent: Agent) -> set[str]:
    """The codes of everything that an auditor would call broken, in the store and in an export."""
    with SqliteChainReader(here.path) as reader:
        (summary,) = [one for one in reader.sessions(limit=9) if one.session_id == agent.session_id]
        reports = [
            verify_stored(reader, summary, KEYRING),
            verify_export(export_lines(reader, agent.session_id), KEYRING),
        ]
    return {found.code for report in reports for found in report.findings if found.severity.value == "break"}


def test_a_granted_step_is_allowed_once_when_it_is_sent_again(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = await asked(agent)
        assert (await again(agent, request_id)).decision == "ask"
        approval = answer(here)
        assert (approval.request_id, approval.tool, approval.question) == (request_id, "shell", "Run it?")
        granted = await again(agent, request_id)
        assert (granted.decision, granted.reason_codes) == ("allow", ("approved",))
        used = await again(agent, request_id)
        assert (used.decision, used.reason_codes) == ("deny", ("approval_used",))
        assert verified(here, agent) == set()

    running(tmp_path, work, policy=engine(POLICY))


def test_a_denied_step_is_denied_however_often_it_is_sent(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = await asked(agent)
        answer(here, "deny")
        for _ in range(2):
            assert (await again(agent, request_id)).reason_codes == ("approval_denied",)

    running(tmp_path, work, policy=engine(POLICY))


def test_a_question_that_nobody_answered_in_time_is_a_denial(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = await asked(agent)
        here.clock.advance(60_000)
        assert (await again(agent, request_id)).reason_codes == ("approval_expired",)
        with pytest.raises(ApprovalRefused, match="expired already"):
            answer(here)

    running(tmp_path, work, policy=engine(POLICY))


def test_a_grant_that_was_not_used_in_time_is_over(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = await asked(agent)
        answer(here)
        here.clock.advance(60_000 + USE_GRACE_MS)
        assert (await again(agent, request_id)).reason_codes == ("approval_expired",)

    running(tmp_path, work, policy=engine(POLICY))


@pytest.mark.parametrize("other", [call(command="ls /"), call("wait"), {**call(), "raw_command": "ls"}])
def test_a_grant_is_for_the_input_that_the_approver_saw(tmp_path: Path, other: Mapping[str, object]) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = await asked(agent)
        answer(here)
        assert (await again(agent, request_id, other)).reason_codes == ("approval_input_changed",)
        assert "approval_input_changed" in findings(here)
        assert (await again(agent, request_id)).decision == "allow"

    running(tmp_path, work, policy=engine(POLICY))


def test_a_grant_of_another_session_is_asked_for_anew(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        request_id = await asked(await greeted(here))
        answer(here)
        assert (await again(await greeted(here), request_id)).decision == "ask"
        assert findings(here) == ["approval_unknown"]

    running(tmp_path, work, policy=engine(POLICY))


def test_what_a_rule_denies_no_approver_can_allow(tmp_path: Path) -> None:
    policies = [POLICY.replace(b'args.command == "rm"', b'args.command == "no"'), POLICY]

    async def main(here: House) -> tuple[Agent, str]:
        agent = await greeted(here)
        request_id = await asked(agent, call(command="rm"))
        answer(here)
        return agent, request_id

    agent, request_id = running(tmp_path, main, policy=engine(policies[0]))

    async def later(here: House) -> None:
        back = here.agent(session_id=agent.session_id)
        verdict = await again(back, request_id, call(command="rm"))
        assert (verdict.decision, verdict.reason_codes) == ("deny", ("policy_denied",))

    running(tmp_path, later, policy=engine(policies[1]))


def test_questions_and_grants_survive_a_restart(tmp_path: Path) -> None:
    async def first(here: House) -> tuple[Agent, str]:
        agent = await greeted(here)
        return agent, await asked(agent)

    agent, request_id = running(tmp_path, first, policy=engine(POLICY))

    async def second(here: House) -> None:
        back = here.agent(session_id=agent.session_id)
        assert (await again(back, request_id)).decision == "ask"
        answer(here)

    running(tmp_path, second, policy=engine(POLICY))

    async def third(here: House) -> None:
        back = here.agent(session_id=agent.session_id)
        assert (await again(back, request_id)).decision == "allow"
        assert (await again(back, request_id)).reason_codes == ("approval_used",)

    running(tmp_path, third, policy=engine(POLICY))


def test_a_deferral_that_waits_for_a_person_is_counted_once(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = await asked(agent, call("wait"), "defer")
        decisions = [(await again(agent, request_id, call("wait"))).decision for _ in range(5)]
        assert decisions == ["defer"] * 5
        with pytest.raises(ApprovalRefused, match="another approver"):
            SqliteGuardianDesk(here.path).decide(
                answerable(here), ApprovalAnswer("approve"), replace(OPERATOR, type="service"), 0
            )
        answer(here)
        assert (await again(agent, request_id, call("wait"))).decision == "allow"
        await asked(agent, call("wait", "second"), "defer")
        third = await agent.step("toolCallRequest", call("wait", "third"))
        assert third.reason_codes[0] == "deferral_bound_exceeded"

    running(tmp_path, work, policy=engine(POLICY), settings=GuardianSettings(max_deferrals=2))


def test_a_deferral_that_ends_in_a_question_is_one_once_its_time_is_over(tmp_path: Path) -> None:
    """CORE-DISP-04."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        first, second = call("later"), call("later", "pwd")
        answered, unanswered = [await asked(agent, payload, "defer") for payload in (first, second)]
        here.clock.advance(59_999)
        assert (await again(agent, answered, first)).decision == "defer"
        here.clock.advance(1)
        verdict = await again(agent, answered, first)
        assert (verdict.decision, (verdict.details or {})["question"]) == ("ask", "Soon.")
        answer(here, index=0)
        assert (await again(agent, answered, first)).reason_codes == ("approved",)
        here.clock.advance(MAX_APPROVAL_MS)
        assert (await again(agent, unanswered, second)).reason_codes == ("approval_expired",)
        assert verified(here, agent) == set()

    running(tmp_path, work, policy=engine(POLICY), settings=GuardianSettings(clients=(WAITING,)))


def test_a_question_that_was_withdrawn_is_over_and_nobody_has_answered_it(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = await asked(agent)
        store, now_ms = SqliteGuardianDesk(here.path), epoch_ms(here.clock.now())
        with pytest.raises(ApprovalRefused, match="another approver"):
            store.withdraw(answerable(here), replace(OPERATOR, ids=frozenset({"others"})), None, now_ms)
        taken_back = store.withdraw(answerable(here), OPERATOR, "canceled", now_ms)
        assert taken_back is not None
        assert (taken_back.status_at(now_ms), taken_back.decided_by, taken_back.note) == ("expired", None, "canceled")
        assert (await again(agent, request_id)).reason_codes == ("approval_expired",)
        with pytest.raises(ApprovalRefused, match="expired already"):
            store.withdraw(answerable(here), OPERATOR, None, now_ms)
        assert store.withdraw("nothing", OPERATOR, None, now_ms) is None

    running(tmp_path, work, policy=engine(POLICY), settings=GuardianSettings(clients=(WAITING,)))


def answerable(here: House) -> str:
    return SqliteGuardianDesk(here.path).approvals(status=None, after=0, limit=1, now_ms=0)[0][1].approval_id


def test_a_client_that_cannot_ask_is_granted_the_same_question(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = await asked(agent, decision="defer")
        approval = answer(here)
        assert (approval.approver_id, approval.question) == ("operators", "Run it?")
        assert (await again(agent, request_id)).decision == "allow"

    running(
        tmp_path,
        work,
        policy=engine(POLICY),
        settings=GuardianSettings(clients=(ClientEntry(ClientAbilities(can_ask=False)),)),
    )


def test_a_grant_for_the_session_lets_the_same_step_through_again_and_no_other(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = await asked(agent)
        answer(here, scope="session")
        here.clock.advance(3_600_000)
        assert [(await again(agent, request_id)).decision for _ in range(2)] == ["allow", "allow"]
        assert (await again(agent, request_id, call(command="cd"))).decision == "deny"

    running(tmp_path, work, policy=engine(POLICY))


async def intending(here: House) -> Agent:
    agent = await greeted(here)
    assert (await agent.step("sessionStart", {"intent": INTENT})).decision == "allow"
    return agent


def test_a_grant_for_the_session_extends_the_intent_and_the_chain(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await intending(here)
        request_id = await asked(agent, call("mail"))
        approval = answer(here, scope="session")
        assert (await again(agent, request_id, call("mail"))).decision == "allow"
        assert (await agent.step("toolCallRequest", call("mail", "other"))).decision == "allow"
        with SqliteChainReader(here.path) as reader:
            entries = [parse_line(line).entry for line in export_lines(reader, agent.session_id)]
        (entry,) = [one for one in entries if one is not None and one["step_type"] == "intent_extension"]
        assert (entry["step_id"], entry["approver"]) == (request_id, {"type": "human", "id": "operators"})
        assert entry["intent_extension"] == {
            "capabilities": [{"tool": "mail"}],
            "scope": "session",
            "provenance": {
                "provenance_id": approval.approval_id,
                "origin": "user_input",
                "source_id": "operators",
            },
        }
        validator("context-entry").check(entry)
        assert verified(here, agent) == set()

    running(tmp_path, work, policy=engine(POLICY))


def test_an_extension_is_no_step(tmp_path: Path) -> None:
    counting = POLICY + (
        b"  - {id: count, hooks: [toolCallRequest], tools: [count], decision: deny, reasoning: Miscounted.,"
        b" when: session.steps != 4}\n"
    )

    async def work(here: House) -> None:
        agent = await intending(here)
        request_id = await asked(agent, call("mail"))
        answer(here, scope="session")
        await again(agent, request_id, call("mail"))
        assert (await agent.step("toolCallRequest", call("count"))).decision == "allow"

    running(tmp_path, work, policy=engine(counting))


def test_a_grant_for_one_request_leaves_the_intent_as_it_was(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await intending(here)
        request_id = await asked(agent, call("mail"))
        answer(here)
        assert (await again(agent, request_id, call("mail"))).decision == "allow"
        assert (await agent.step("toolCallRequest", call("mail", "other"))).decision == "ask"
        assert verified(here, agent) == set()

    running(tmp_path, work, policy=engine(POLICY))


def test_an_extension_that_the_policy_forbids_is_not_honored(tmp_path: Path) -> None:
    forbidding = POLICY + (
        b"  - {id: strict, hooks: [toolCallRequest], tools: [mail], decision: deny, reasoning: No extension.,"
        b" when: 'approval.granted && intent.scope_mode == \"strict\"'}\n"
    )

    async def work(here: House) -> None:
        agent = await intending(here)
        request_id = await asked(agent, call("mail"))
        answer(here, scope="session")
        assert (await again(agent, request_id, call("mail"))).decision == "deny"
        with SqliteChainReader(here.path) as reader:
            assert b'"step_type":"intent_extension"' not in b"".join(export_lines(reader, agent.session_id))
        assert (await agent.step("toolCallRequest", call("mail", "other"))).decision == "ask"

    running(tmp_path, work, policy=engine(forbidding))


def test_an_extension_that_was_moved_or_made_up_shows(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await intending(here)
        request_id = await asked(agent, call("mail"))
        answer(here, scope="session")
        await again(agent, request_id, call("mail"))
        with SqliteChainReader(here.path) as reader:
            lines = list(export_lines(reader, agent.session_id))
        (index,) = [number for number, line in enumerate(lines) if b'"request":null' in line]
        forged = lines[index].replace(request_id.encode(), str(uuid4()).encode())
        for wrong in ([*lines[:index], forged, *lines[index + 1 :]], lines[: index + 1], lines[:index] + lines[-1:]):
            report = verify_export(wrong, KEYRING)
            assert not report.intact

    running(tmp_path, work, policy=engine(POLICY))


def test_a_session_has_a_bounded_number_of_open_questions(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        for number in range(MAX_QUESTIONS):
            await asked(agent, call(command=str(number)))
        full = await agent.step("toolCallRequest", call(command="one more"))
        assert (full.decision, full.reason_codes) == ("deny", ("session_memory_full",))
        here.clock.advance(60_000 + USE_GRACE_MS)
        await asked(agent, call(command="later"))

    running(tmp_path, work, policy=engine(POLICY))


def test_two_requests_with_one_grant_are_let_through_once(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = await asked(agent)
        answer(here)
        verdicts = await asyncio.gather(*(again(agent, request_id) for _ in range(8)))
        assert sorted(verdict.decision for verdict in verdicts) == ["allow", *["deny"] * 7]

    running(tmp_path, work, policy=engine(POLICY))


QUESTION = Approval(
    approval_id="a",
    session_id="s",
    request_id="r",
    turn_id=None,
    agent_id="agent",
    key_id="default",
    kind=ApprovalKind.ASK,
    method="steps/toolCallRequest",
    tool="shell",
    input_hash="h",
    question="?",
    approver_type="human",
    approver_id="operators",
    created_at_ms=0,
    expires_at_ms=10,
)


@pytest.mark.parametrize(
    ("answer", "approver", "code"),
    [
        (ApprovalAnswer("ask"), OPERATOR, "approver_decision_invalid"),
        (ApprovalAnswer("approve", "forever"), OPERATOR, "approval_scope_invalid"),
        (ApprovalAnswer("approve", input_hash="other"), OPERATOR, "approval_input_differs"),
        (ApprovalAnswer("approve"), replace(OPERATOR, ids=frozenset({"others"})), "approver_not_asked"),
        (ApprovalAnswer("approve"), replace(OPERATOR, type="agent"), "approver_not_asked"),
    ],
)
def test_an_answer_that_nobody_may_give_is_refused(answer: ApprovalAnswer, approver: Approver, code: str) -> None:
    with pytest.raises(ApprovalRefused) as refused:
        decided(QUESTION, answer, approver, 5)
    assert refused.value.error_code == code


def test_an_agent_does_not_approve_its_own_question() -> None:
    question = replace(QUESTION, approver_type="agent", approver_id="agent")
    with pytest.raises(ApprovalRefused) as refused:
        decided(question, ApprovalAnswer("approve"), Approver("k", "x", "agent", frozenset({"*"})), 5)
    assert refused.value.error_code == "approver_is_the_agent"


def test_a_grant_is_not_wider_than_the_question() -> None:
    question = replace(QUESTION, extension={"scope": "this_request", "capabilities": [{"tool": "x"}]})
    with pytest.raises(ApprovalRefused) as refused:
        decided(question, ApprovalAnswer("approve", "session"), OPERATOR, 5)
    assert refused.value.error_code == "approval_scope_exceeded"


def test_one_question_has_one_answer() -> None:
    first = decided(QUESTION, ApprovalAnswer("approve"), OPERATOR, 5)
    assert (first.status, first.decided_by, first.decided_by_key) == ("approved", "operators", "key_1")
    with pytest.raises(ApprovalRefused, match="approved already"):
        decided(first, ApprovalAnswer("deny"), OPERATOR, 6)


def test_an_input_is_the_same_whatever_step_it_refers_to() -> None:
    assert input_hash(call()) == input_hash({**call(), "request_id_ref": "r"})
    assert input_hash(call()) != input_hash(call(command="other"))
