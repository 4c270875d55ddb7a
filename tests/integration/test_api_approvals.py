"""Approvals, remembered answers and client-side tools as an app meets them (contract 2.1, 2.3 and 2.5)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.pause_samples import a_pause
from tests.integration.api_door import Api, serve

from turnkeeper.turns.approval_desk import Question, QuestionRefused
from turnkeeper.turns.approvals import ApprovalAnswer
from turnkeeper.turns.pausing import NewPause, hash_of

INPUT_HASH = hash_of('{"command":"ls"}')
CLIENT_TOOL = {
    "kind": "client",
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def with_api(test: Callable[[Api], Awaitable[None]]) -> Callable[[Path], None]:
    """A test of an open API as one that pytest can run."""

    def run(tmp_path: Path) -> None:
        serve(tmp_path, test)

    run.__name__ = test.__name__
    return run


@dataclass
class Waiting:
    """A turn that waits, and for what."""

    session_id: str
    turn_id: str
    pause: NewPause

    @property
    def approval(self) -> str:
        assert self.pause.approval is not None
        return f"/v1/approvals/{self.pause.approval.id}"


async def waiting(api: Api, *, kind: str = "ask") -> Waiting:
    """A turn of a new session, paused and let go of."""
    session_id = await api.session()
    turn = await api.turn(session_id)
    claim = await api.started()
    pause = a_pause(api.deps.clock, api.deps.ids, claim.fence, kind=kind)
    await api.store.pause(claim.fence, pause, ())
    await api.store.park(claim.fence, ())
    return Waiting(session_id, turn["id"], pause)


@with_api
async def test_a_turn_that_waits_says_for_what(api: Api) -> None:
    found = await waiting(api, kind="deferral")
    turn = await api.seen(f"/v1/turns/{found.turn_id}")
    approval = await api.seen(found.approval)
    assert turn["status"] == "paused"
    assert turn["pause"] == {
        "reason": "deferral",
        "waits_for": [approval["id"]],
        "expires_at": approval["expires_at"],
        "deferrals": 1,
    }
    assert (await api.seen(f"/v1/sessions/{found.session_id}"))["status"] == "paused"
    assert (approval["status"], approval["kind"], approval["on_expiry"]) == ("pending", "deferral", "deny")
    assert approval["tool"] == {
        "name": "shell",
        "kind": "builtin",
        "server": None,
        "input_preview": {"command": "ls"},
        "input_hash": INPUT_HASH,
    }


@with_api
async def test_a_turn_behind_one_that_waits_names_the_approval(api: Api) -> None:
    found = await waiting(api)
    behind = await api.turn(found.session_id)
    approval_id = found.approval.rpartition("/")[2]
    assert behind["blocked_by"] == {"turn_id": found.turn_id, "reason": "paused", "approval_ids": [approval_id]}


@with_api
async def test_a_decision_is_taken_once(api: Api) -> None:
    found = await waiting(api)
    decision = f"{found.approval}/decision"
    body = {"decision": "approve", "input_hash": INPUT_HASH, "note": "go"}
    first = await api.made(decision, body)
    assert (first["status"], first["decided_by"]) == ("approved", {"type": "api_key", "id": api.key.id})
    assert await api.made(decision, body) == first
    other = await api.refused("POST", decision, json={"decision": "deny"})
    assert (other["status"], other["code"]) == (409, "approval_already_decided")
    assert (await api.seen(f"/v1/turns/{found.turn_id}"))["status"] == "starting"


@with_api
async def test_an_answer_about_another_input_is_refused(api: Api) -> None:
    found = await waiting(api)
    body = {"decision": "approve", "input_hash": "0" * 64}
    problem = await api.refused("POST", f"{found.approval}/decision", json=body)
    assert (problem["status"], problem["code"]) == (409, "approval_input_changed")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"decision": "maybe"},
        {"decision": "approve", "remember": "for ever"},
        {"decision": "deny", "modified_input": {}},
        {"decision": "deny", "remember": "session"},
        {"decision": "approve", "modified_input": {}, "remember": "session"},
        {"decision": "approve", "context": "text"},
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(tmp_path: Path, body: dict[str, Any]) -> None:
    async def scenario(api: Api) -> None:
        found = await waiting(api)
        problem = await api.refused("POST", f"{found.approval}/decision", json=body)
        assert (problem["status"], problem["code"]) == (400, "invalid_field")

    serve(tmp_path, scenario)


@with_api
async def test_approvals_are_listed_by_status_and_session(api: Api) -> None:
    first, second = await waiting(api), await waiting(api)
    await api.made(f"{first.approval}/decision", {"decision": "deny"})
    pending = await api.seen("/v1/approvals?status=pending")
    of_first = await api.seen(f"/v1/approvals?session_id={first.session_id}")
    assert [one["turn_id"] for one in pending["data"]] == [second.turn_id]
    assert [one["status"] for one in of_first["data"]] == ["denied"]
    assert (await api.refused("GET", "/v1/approvals?status=open"))["code"] == "invalid_field"


@with_api
async def test_what_a_session_remembers_can_be_seen_and_taken_back(api: Api) -> None:
    found = await waiting(api)
    await api.made(f"{found.approval}/decision", {"decision": "approve", "remember": "session"})
    rules = f"/v1/sessions/{found.session_id}/approval_rules"
    rule = (await api.seen(rules))["data"][0]
    assert (rule["tool"], rule["input_hash"]) == ("shell", INPUT_HASH)
    assert (await api.client.delete(f"{rules}/{rule['id']}")).status_code == 204
    assert (await api.seen(rules))["data"] == []
    assert (await api.refused("DELETE", f"{rules}/{rule['id']}"))["code"] == "not_found"


@with_api
async def test_an_app_answers_its_tool_once(api: Api) -> None:
    found = await waiting(api, kind="client")
    results = f"/v1/turns/{found.turn_id}/tool_results"
    call = found.pause.call.tool_call_id
    answered = await api.made(results, {"tool_call_id": call, "output": {"sky": "grey", "n": 1.0}})
    assert answered["status"] == "starting"
    await api.made(results, {"tool_call_id": call, "output": {"sky": "grey", "n": 1.0}})
    other = await api.refused("POST", results, json={"tool_call_id": call, "error": "no"})
    assert (other["status"], other["code"]) == (409, "tool_result_conflict")
    pause = await api.store.open_pause(found.turn_id)
    assert pause is not None
    assert pause.answer is not None
    assert pause.answer.output == '{"sky":"grey","n":1.0}'
    assert (await api.refused("POST", results, json={"tool_call_id": call}))["code"] == "invalid_field"


@with_api
async def test_an_agent_keeps_the_tools_that_its_app_runs_and_its_permissions(api: Api) -> None:
    body = {
        "name": "a",
        "model": {"provider": "stub", "id": "m"},
        "tools": ["shell", CLIENT_TOOL],
        "permissions": {"get_*": "ask", "shell": "deny"},
        "limits": {"pause_expiry_ms": 1_000},
    }
    agent = await api.made("/v1/agents", body)
    assert (agent["tools"], agent["permissions"]) == (["shell", CLIENT_TOOL], {"get_*": "ask", "shell": "deny"})
    assert agent["limits"]["pause_expiry_ms"] == 1_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{**CLIENT_TOOL, "name": "shell"}]),
        ("tools", [{**CLIENT_TOOL, "name": "submit_result"}]),
        ("tools", [{**CLIENT_TOOL, "kind": "mcp"}]),
        ("tools", [{**CLIENT_TOOL, "input_schema": {"type": "array"}}]),
        ("tools", [CLIENT_TOOL, CLIENT_TOOL]),
        ("tools", [7]),
        ("permissions", {"shell": "sometimes"}),
        ("permissions", {"a b": "ask"}),
        ("limits", {"pause_expiry_ms": 604_800_001}),
    ],
)
def test_an_agent_that_makes_no_sense_is_refused(tmp_path: Path, field: str, value: object) -> None:
    async def scenario(api: Api) -> None:
        body = {"name": "a", "model": {"provider": "stub", "id": "m"}, field: value}
        problem = await api.refused("POST", "/v1/agents", json=body)
        assert (problem["status"], problem["code"]) == (400, "invalid_field")

    serve(tmp_path, scenario)


@with_api
async def test_an_answer_that_the_guardian_does_not_take_changes_nothing(api: Api) -> None:
    found = await waiting(api)
    api.app.state.deps = replace(api.deps, questions=OtherMind())
    problem = await api.refused("POST", f"{found.approval}/decision", json={"decision": "approve"})
    assert (problem["status"], problem["code"]) == (403, "approver_not_asked")
    assert (await api.seen(found.approval))["status"] == "pending"


class OtherMind:
    """A Guardian's questions that go to somebody else."""

    async def question(self, session_id: str, request_id: str) -> Question | None:
        return Question("pending")

    async def answer(self, session_id: str, request_id: str, answer: ApprovalAnswer) -> None:
        raise QuestionRefused("the question goes to another approver")
