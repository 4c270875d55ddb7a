"""Questions about decisions: signatures, replay, time, intent, budgets, versions, approvals, references.

Each becomes a policy, a clock and some traffic; what the Guardian then says is the answer.
"""

from collections.abc import Mapping
from typing import Any, Final, cast
from uuid import uuid4

import orjson
from tests.conformance.corpus.answers import (
    DENIED_BY_POLICY,
    Question,
    Said,
    agreed,
    as_uuid,
    denied,
    of_answer,
    unmeasurable,
)
from tests.conformance.corpus.guardian import Play, envelope, payload_of, played, played_steps
from tests.unit.guardian.kit import ALLOW_ALL, Agent, engine, findings

from turnkeeper.acs import AcsErrorCode, sign_request
from turnkeeper.clock import epoch_ms
from turnkeeper.guardian.approvals import ApprovalAnswer, ApprovalRefused, Approver, approval_id_of
from turnkeeper.guardian.capabilities import ClientAbilities, ClientEntry
from turnkeeper.guardian.references import REFERENCE_UNRESOLVED
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.shipped import shipped_bundle
from turnkeeper.store.guardian_desk import SqliteGuardianDesk

NO_ASK: Final = GuardianSettings(clients=(ClientEntry(ClientAbilities(can_ask=False)),))
TOOL_RESULT: Final = "steps/toolCallResult"

_RULES: Final = "version: 1\nname: corpus\ndefault: allow\nrules:\n"
_BUDGET: Final = (
    _RULES
    + "  - {{id: budget, hooks: [toolCallRequest], tools: [{tool}], scope: turn, when: scope.tool_calls > {most},"
    " decision: deny, reasoning: The budget of the turn is used up.}}\n"
)
_ASK: Final = (
    _RULES + "  - {{id: ask, hooks: [toolCallRequest]{tools}, decision: ask, reasoning: Somebody has to look.,"
    " ask: {{question: 'May it?', timeout_seconds: 60, approver: {{type: human, id: {approver}}}}}}}\n"
)
_RESULT: Final = (
    _RULES + "  - {{id: result, hooks: [toolCallResult], decision: {decision}, reasoning: As the question has it.}}\n"
)


def asking(approver: str, tool: str | None = None) -> PolicyEngine:
    """A policy that asks before a tool, or before every tool."""
    tools = "" if tool is None else f", tools: [{tool}]"
    return engine(_ASK.format(approver=approver, tools=tools).encode())


def decided(question: Question) -> Said:
    """One request or several, under the policy that the question describes."""
    if "mandate_state" in question:
        return unmeasurable("nothing in the standard carries a mandate or its revocation")
    if "policy_verdict_before_mapping" in question:
        able = question.get("approver_capability") not in (None, "none")
        return played_steps(question, asking("operators"), None if able else NO_ASK)
    budget = question.get("policy", {}).get("budget")
    if budget is not None:
        text = _BUDGET.format(tool=budget["tool"], most=budget["max_calls_per_turn"])
        return played_steps(question, engine(text.encode()))
    if "intent" in question:
        return played_steps(question, CelEngine(shipped_bundle("intent").rules))
    return played_steps(question, engine())


def untrusted_producer(question: Question) -> Said:
    """Provenance that a model wrote is none: such an agent can only declare that it produces none."""
    by_model = str(question["record"].get("produced_by", "")).startswith("llm")
    producer = "none" if by_model else str(question["provenance_producer"])
    request = {"method": "handshake/hello", "request_id": str(uuid4())}

    async def work(play: Play) -> Said:
        agent = play.agent(request)
        await agent.hello(claims={"provenance_producer": producer})
        return of_answer(cast("dict[str, Any]", orjson.loads(agent.answers[-1])))

    settings = GuardianSettings(policy_requires_provenance=True)
    return played(work, engine(), at="2026-09-09T12:00:00Z", settings=settings)


def referred(question: Question) -> Said:
    """What is recorded of a result's reference, compared with what our Guardian records and answers."""
    request = cast("dict[str, Any]", question["request"])
    told = str(question["guardian_decision"])
    policy = engine() if told == "allow" else engine(_RESULT.format(decision=told).encode())
    recorded = any(REFERENCE_UNRESOLVED in entry.values() for entry in question["guardian_audit_record"])

    async def work(play: Play) -> Said:
        for session_id, calls in question["guardian_session_records"].items():
            await _called(play, session_id, calls)
        params = request["params"]
        agent = await play.framed({"metadata": params["metadata"]})
        payload = _result(params["payload"])
        body = agent.body(TOOL_RESULT, payload, request_id=params["request_id"], timestamp=params["timestamp"])
        decision = (await play.send(body))["result"]["decision"]
        ours = (decision, REFERENCE_UNRESOLVED in findings(play.here))
        known = params["metadata"]["session_id"] in question["guardian_session_records"]
        why = "" if known else "the session has no records; "
        return agreed(same=ours == (told, recorded), why=f"{why}decision and finding: {ours}")

    return played(work, policy, at=request["params"]["timestamp"])


async def _called(play: Play, session_id: str, calls: list[dict[str, Any]]) -> None:
    agent = await play.framed({"metadata": {"agent_id": "agent-acs-vectors", "session_id": session_id}})
    for call in calls:
        payload = {"tool": {"name": "tool"}, "arguments": {}}
        await agent.post(agent.body(call["method"], payload, request_id=call["request_id"]))


def _result(payload: Mapping[str, Any]) -> dict[str, object]:
    """The corpus's outputs are an object without a tool; the standard's are a list with one."""
    return {"tool": {"name": "tool"}, **payload, "outputs": [{"value": payload.get("outputs")}]}


def approved(question: Question) -> Said:
    """A grant for one agent's tool call, and whoever then comes with it."""
    approval = question["approval"]
    given, approver = approval["issued_for"], approval["approver"]
    request = cast("dict[str, Any]", question["request"])
    asked = {
        **request,
        "metadata": request["metadata"] | {"agent_id": given["agent_id"]},
        "params": {"tool": request["params"]["tool"] | {"name": given["tool"]}},
        "request_id": str(uuid4()),
    }

    async def work(play: Play) -> Said:
        await _ask(play, asked)
        if approval["state"] == "VALID":
            _answer(play, asked, ApprovalAnswer("approve"), approver)
        return await _again(play, request, asked)

    return played(work, asking(str(approver["id"]), given["tool"]), at=request["timestamp"])


def asked_back(question: Question) -> Said:
    """An approver who answers with a word that may be no answer."""
    word = str(question["approver_response"]["decision"]).lower()
    request = cast("dict[str, Any]", question["request"])
    asked = {**request, "request_id": str(uuid4())}
    words = {"allow": "approve"}

    async def work(play: Play) -> Said:
        await _ask(play, asked)
        try:
            _answer(play, asked, ApprovalAnswer(words.get(word, word)), {"type": "human", "id": "operators"})
        except ApprovalRefused as refused:
            said = await _again(play, request, asked)
            return denied(DENIED_BY_POLICY, f"{refused.error_code}; {said.why}")
        return await _again(play, request, asked)

    return played(work, asking("operators"), at=request["timestamp"])


async def _ask(play: Play, request: Mapping[str, Any]) -> None:
    agent = await play.framed(request)
    document = envelope(request, agent)
    answer = await play.send(orjson.dumps(sign_request(document, agent.session.key)))
    if answer["result"]["decision"] != "ask":
        raise ValueError("nobody was asked")


def _answer(play: Play, request: Mapping[str, Any], answer: ApprovalAnswer, approver: Mapping[str, Any]) -> None:
    agent = play.agent(request)
    asked_id = approval_id_of(agent.session_id, as_uuid(request["request_id"]))
    who = Approver("key", str(approver["id"]), str(approver["type"]), frozenset({str(approver["id"])}))
    SqliteGuardianDesk(play.here.path).decide(asked_id, answer, who, epoch_ms(play.here.clock.now()))


async def _again(play: Play, request: Mapping[str, Any], asked: Mapping[str, Any]) -> Said:
    """The step once more, with a reference to when it was asked about."""
    agent: Agent = play.agent(request)
    document = envelope(request, agent)
    document["params"]["payload"] = payload_of(request) | {"request_id_ref": as_uuid(asked["request_id"])}
    return of_answer(await play.send(orjson.dumps(sign_request(document, agent.session.key))))


def replayed(question: Question) -> Said:
    """A replay: the code it gets, and that nothing is reported of it."""
    request = cast("dict[str, Any]", question["request"])
    params = request["params"]
    told = question["guardian_response"].get("error", {}).get("code")

    async def work(play: Play) -> Said:
        agent = await play.framed({"metadata": params["metadata"]})
        before = findings(play.here)
        bodies = [agent.body(request["method"], params["payload"], request_id=params["request_id"]) for _ in range(2)]
        answers = [await play.send(body) for body in bodies]
        code = answers[1]["error"]["code"]
        events = findings(play.here)[len(before) :]
        same = (told, bool(question["guardian_trace_events"])) == (code, bool(events))
        return agreed(same=same, why=f"{AcsErrorCode(code).name}, and nothing is reported of it")

    return played(work, engine(ALLOW_ALL), at=params["timestamp"])
