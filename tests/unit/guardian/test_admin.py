"""The Guardian's HTTP API: keys with scopes, bounded pages, approvers' answers, and no fault of ours for anybody's."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.guardian.kit import House, engine, greeted, running
from tests.unit.guardian.test_approvals import POLICY, again, asked

from turnkeeper.guardian.admin import MAX_BODY_BYTES, admin_app
from turnkeeper.guardian.apikeys import DECIDE, READ, SCOPES, GuardianKey, secret_sha256
from turnkeeper.guardian.approvals import ANY_APPROVER
from turnkeeper.store.guardian_desk import SqliteGuardianDesk

SECRET = "gk_" + "s" * 43
UNKNOWN = "5f3c1c57-94a1-4f0e-8d2b-7c1f2b6f9a10"
Client = httpx.AsyncClient
NO_HEADERS: Mapping[str, str] = {}


def client(
    here: House, *, scopes: frozenset[str] = SCOPES, approvers: frozenset[str] = frozenset({ANY_APPROVER})
) -> Client:
    """A client with a key of its own."""
    desk = SqliteGuardianDesk(here.path)
    if desk.key_of_secret(secret_sha256(SECRET)) is None:
        desk.add_key(GuardianKey("key_1", "ana", scopes, "human", approvers, 0), secret_sha256(SECRET))
    transport = httpx.ASGITransport(admin_app(desk, here.clock))
    return Client(transport=transport, base_url="http://guardian", headers={"Authorization": f"Bearer {SECRET}"})


def serving(tmp_path: Path, work: Callable[[House], Awaitable[None]]) -> None:
    running(tmp_path, work, policy=engine(POLICY))


async def got(web: Client, path: str) -> dict[str, Any]:
    """What a path says."""
    answer = await web.get(f"/guardian/v1/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_approver_sees_the_question_with_its_input_and_answers_it(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = await asked(agent)
        async with client(here) as web:
            (row,) = (await got(web, "approvals?status=pending"))["data"]
            shown = await got(web, f"approvals/{row['approval_id']}")
            assert (shown["question"], shown["tool"], shown["agent_id"]) == ("Run it?", "shell", "agent")
            assert shown["input"]["arguments"] == {"command": {"value": "ls"}}
            answer = {"decision": "approve", "note": "fine", "input_hash": shown["input_hash"]}
            decided = await web.post(f"/guardian/v1/approvals/{row['approval_id']}/decision", json=answer)
            assert (decided.status_code, decided.json()["status"]) == (200, "approved")
            assert (decided.json()["decided_by"], decided.json()["decided_by_key"]) == ("operators", "key_1")
            assert (await again(agent, request_id)).decision == "allow"
            assert (await got(web, f"approvals/{row['approval_id']}"))["used_at"] is not None
            second = await web.post(f"/guardian/v1/approvals/{row['approval_id']}/decision", json=answer)
            assert (second.status_code, second.json()["code"]) == (409, "approval_not_pending")

    serving(tmp_path, work)


def test_a_question_can_be_taken_back(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        await asked(await greeted(here))
        async with client(here) as web:
            (row,) = (await got(web, "approvals?status=pending"))["data"]
            path = f"/guardian/v1/approvals/{row['approval_id']}/decision"
            taken = await web.post(path, json={"decision": "withdraw", "note": "canceled"})
            assert (taken.status_code, taken.json()["status"], taken.json()["note"]) == (200, "expired", "canceled")
            assert (await got(web, "approvals?status=pending"))["data"] == []
            second = await web.post(path, json={"decision": "withdraw"})
            assert (second.status_code, second.json()["code"]) == (409, "approval_not_pending")

    serving(tmp_path, work)


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        ({"decision": "ask"}, 422, "approver_decision_invalid"),
        ({"decision": "approve", "scope": "all"}, 422, "approval_scope_invalid"),
        ({"decision": "approve", "input_hash": "other"}, 409, "approval_input_differs"),
        ({"decision": "approve", "more": "x"}, 400, "unknown_field"),
        ({"decision": None}, 400, "invalid_field"),
        ({"note": "x"}, 400, "invalid_field"),
        ({"decision": "deny", "note": "x" * 1_001}, 400, "invalid_field"),
    ],
)
def test_an_answer_that_cannot_be_taken_changes_nothing(
    tmp_path: Path, answer: Mapping[str, object], status: int, code: str
) -> None:
    async def work(here: House) -> None:
        await asked(await greeted(here))
        async with client(here) as web:
            (row,) = (await got(web, "approvals"))["data"]
            refused = await web.post(f"/guardian/v1/approvals/{row['approval_id']}/decision", json=answer)
            assert (refused.status_code, refused.json()["code"]) == (status, code)
            assert refused.headers["content-type"] == "application/problem+json"
            assert (await got(web, "approvals"))["data"] == [row]

    serving(tmp_path, work)


def test_a_key_answers_only_for_the_approvers_it_was_made_for(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        await asked(await greeted(here))
        async with client(here, approvers=frozenset({"others"})) as web:
            (row,) = (await got(web, "approvals"))["data"]
            path = f"/guardian/v1/approvals/{row['approval_id']}/decision"
            refused = await web.post(path, json={"decision": "approve"})
            assert (refused.status_code, refused.json()["code"]) == (403, "approver_not_asked")

    serving(tmp_path, work)


@pytest.mark.parametrize(("scope", "reads", "decides"), [(READ, 200, 403), (DECIDE, 403, 404)])
def test_a_key_does_what_its_scopes_say(tmp_path: Path, scope: str, reads: int, decides: int) -> None:
    async def work(here: House) -> None:
        async with client(here, scopes=frozenset({scope})) as web:
            assert (await web.get("/guardian/v1/sessions")).status_code == reads
            path = f"/guardian/v1/approvals/{uuid4()}/decision"
            assert (await web.post(path, json={"decision": "deny"})).status_code == decides

    serving(tmp_path, work)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer x", f"Basic {SECRET}", "Bearer gk_" + "t" * 43])
def test_nobody_without_a_key_learns_anything(tmp_path: Path, header: str | None) -> None:
    async def work(here: House) -> None:
        async with client(here) as web:
            web.headers.pop("Authorization")
            headers = {} if header is None else {"Authorization": header}
            for path in ("sessions", "approvals", "nothing"):
                refused = await web.get(f"/guardian/v1/{path}", headers=headers)
                assert (refused.status_code, refused.json()["code"]) == (401, "key_invalid")
                assert refused.headers["www-authenticate"] == "Bearer"

    serving(tmp_path, work)


def test_a_revoked_key_opens_nothing(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        async with client(here) as web:
            await got(web, "sessions")
            assert SqliteGuardianDesk(here.path).revoke_key("key_1", 5)
            assert (await web.get("/guardian/v1/sessions")).status_code == 401

    serving(tmp_path, work)


def test_sessions_turns_entries_and_findings_come_in_pages(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agents = [await greeted(here) for _ in range(3)]
        agent = agents[0]
        for turn_id in ("a", "b", "c"):
            await agent.turn_start(turn_id)
            await agent.turn_end(turn_id, step_count=5)
        async with client(here) as web:
            seen: list[str] = []
            cursor = ""
            while True:
                page = await got(web, f"sessions?limit=2&after={cursor}")
                seen += [one["session_id"] for one in page["data"]]
                if not page["has_more"]:
                    break
                cursor = page["next_cursor"]
            assert seen == sorted(agent.session_id for agent in agents)
            one = await got(web, f"sessions/{agent.session_id}")
            assert (one["entries"], one["turns"], one["closed"]) == (6, 3, False)
            for name, count in (("turns", 3), ("entries", 6), ("findings", 3)):
                first = await got(web, f"sessions/{agent.session_id}/{name}?limit=2")
                rest = await got(web, f"sessions/{agent.session_id}/{name}?after={first['next_cursor']}")
                assert (len(first["data"]) + len(rest["data"]), rest["has_more"]) == (count, False)
            assert rest["data"][0]["code"] == "step_count_mismatch"
            entries = (await got(web, f"sessions/{agent.session_id}/entries"))["data"]
            assert entries[-1]["entry"]["entry_hash"] == one["chain_hash"]

    serving(tmp_path, work)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "", 404, "not_found"),
        ("GET", "nothing", 404, "not_found"),
        ("GET", f"sessions/{UNKNOWN}", 404, "not_found"),
        ("GET", "sessions/x%00y", 404, "not_found"),
        ("GET", "sessions/%ff", 404, "not_found"),
        ("GET", f"sessions/{UNKNOWN}/rows", 404, "not_found"),
        ("GET", f"approvals/{UNKNOWN}/decision", 405, "method_not_allowed"),
        ("DELETE", "sessions", 405, "method_not_allowed"),
        ("POST", "approvals", 405, "method_not_allowed"),
        ("GET", "sessions?limit=0", 400, "invalid_field"),
        ("GET", "sessions?limit=101", 400, "invalid_field"),
        ("GET", "sessions?limit=%EF%BC%91", 400, "invalid_field"),
        ("GET", "sessions?after=x%00", 400, "invalid_field"),
        ("GET", "sessions?limit=1&limit=2", 400, "invalid_field"),
        ("GET", "sessions?order=desc", 400, "unknown_field"),
        ("GET", "approvals?status=open", 400, "invalid_field"),
        ("GET", "approvals?after=99999999999999999", 400, "invalid_field"),
    ],
)
def test_what_is_asked_for_wrongly_is_a_problem_of_the_callers(
    tmp_path: Path, method: str, path: str, status: int, code: str
) -> None:
    async def work(here: House) -> None:
        async with client(here) as web:
            answer = await web.request(method, f"/guardian/v1/{path}")
            assert (answer.status_code, answer.json()["code"]) == (status, code)

    serving(tmp_path, work)


def test_a_body_is_bounded(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        async with client(here) as web:
            path = f"/guardian/v1/approvals/{uuid4()}/decision"
            refused = await web.post(path, content=b" " * (MAX_BODY_BYTES + 1))
            assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")

    serving(tmp_path, work)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.text(max_size=40), query=st.binary(max_size=40), body=st.binary(max_size=60))
def test_nothing_that_a_caller_sends_is_a_fault_of_ours(
    tmp_path_factory: pytest.TempPathFactory, path: str, query: bytes, body: bytes
) -> None:
    async def work(here: House) -> None:
        sent: list[Any] = []
        desk = SqliteGuardianDesk(here.path)
        desk.add_key(GuardianKey("k", "ana", SCOPES, "human", frozenset({"*"}), 0), secret_sha256(SECRET))
        for method, where in (("GET", path), ("POST", f"approvals/{uuid4()}/decision"), ("GET", "sessions")):
            scope = {
                "type": "http",
                "method": method,
                "path": f"/guardian/v1/{where}",
                "query_string": query,
                "headers": [(b"authorization", f"Bearer {SECRET}".encode())],
            }

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": body, "more_body": False}

            async def send(message: Any) -> None:
                sent.append(message)

            await admin_app(desk, here.clock)(scope, receive, send)
        assert all(message.get("status", 0) < 500 for message in sent)

    serving(tmp_path_factory.mktemp("guardian"), work)
