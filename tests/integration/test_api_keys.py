"""API keys over the API: what each may do, how much, until when, and how a secret is exchanged."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.api_door import AGENT, Api, Json, serve

from turnkeeper.api.auth import generate_secret
from turnkeeper.clock import render_time
from turnkeeper.turns.access import NewKey
from turnkeeper.turns.model import PROJECT_ID, KeyLimits


async def key(api: Api, **fields: Any) -> Json:
    """A fresh key, its secret with it."""
    return await api.made("/v1/api_keys", {"name": "app", "scopes": ["*"], **fields})


def showing(made: Json) -> dict[str, str]:
    """The header with a key's secret."""
    return {"Authorization": f"Bearer {made['secret']}"}


async def limited(api: Api, limits: KeyLimits) -> dict[str, str]:
    """The header of a fresh key that has these limits."""
    made = generate_secret()
    await api.store.access().make_key(NewKey("limited", made.sha256, PROJECT_ID, limits=limits), actor=None)
    return {"Authorization": f"Bearer {made.secret}"}


def test_a_key_is_made_listed_changed_and_revoked_and_its_secret_shown_once(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        made = await key(api, scopes=["turns:read"], limits={"streams": 2})
        path = f"/v1/api_keys/{made['id']}"
        shown = await api.seen(path)
        assert shown == {name: value for name, value in made.items() if name != "secret"}
        assert [element["id"] for element in (await api.seen("/v1/api_keys"))["data"]] == [made["id"], api.key.id]
        changed = (await api.client.patch(path, json={"name": "other", "limits": {}})).json()
        assert (changed["name"], changed["scopes"], changed["limits"]["streams"]) == ("other", ["turns:read"], None)
        assert (await api.client.delete(path)).json()["revoked_at"] is not None
        problem = await api.refused("GET", "/v1/turns", headers=showing(made))
        assert (problem["status"], problem["code"]) == (401, "key_invalid")

    serve(tmp_path, work)


@pytest.mark.parametrize(
    ("scope", "method", "path"),
    [
        ("agents:read", "GET", "/v1/agents"),
        ("sessions:read", "GET", "/v1/sessions"),
        ("turns:read", "GET", "/v1/turns"),
        ("approvals:read", "GET", "/v1/approvals"),
        ("webhooks:read", "GET", "/v1/webhook_endpoints"),
        ("keys:write", "GET", "/v1/api_keys"),
    ],
)
def test_a_key_does_what_its_scope_says_and_nothing_else(tmp_path: Path, scope: str, method: str, path: str) -> None:
    async def work(api: Api) -> None:
        good, bare = await key(api, scopes=[scope]), await key(api, scopes=["usage:read"])
        assert (await api.client.request(method, path, headers=showing(good))).status_code == 200
        problem = await api.refused(method, path, headers=showing(bare))
        assert (problem["status"], problem["code"], problem["scope"]) == (403, "scope_missing", scope)
        assert (await api.refused("POST", "/v1/agents", headers=showing(good)))["code"] == "scope_missing"

    serve(tmp_path, work)


def test_a_key_for_one_agent_sees_and_uses_no_other(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        mine, other = await api.made("/v1/agents", AGENT), await api.made("/v1/agents", AGENT)
        session = await api.made("/v1/sessions", {"agent_id": other["id"]})
        only = showing(await key(api, agent_ids=[mine["id"]]))
        for path in (f"/v1/agents/{other['id']}", f"/v1/sessions/{session['id']}"):
            assert (await api.refused("GET", path, headers=only))["code"] == "agent_not_allowed"
        body = {"agent_id": other["id"]}
        assert (await api.refused("POST", "/v1/sessions", json=body, headers=only))["code"] == "agent_not_allowed"
        listed = [(await api.client.get(path, headers=only)).json()["data"] for path in ("/v1/agents", "/v1/sessions")]
        assert [[element["id"] for element in data] for data in listed] == [[mine["id"]], []]

    serve(tmp_path, work)


def test_a_key_hands_on_no_more_than_it_has(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        agent = await api.made("/v1/agents", AGENT)
        maker = showing(await key(api, scopes=["keys:write", "turns:read"], agent_ids=[agent["id"]]))
        wanted = {"name": "x", "scopes": ["turns:read"], "agent_ids": [agent["id"]]}
        assert (await api.client.post("/v1/api_keys", json=wanted, headers=maker)).status_code == 201
        agents: list[str] = []
        for more in ({"scopes": ["turns:write"]}, {"scopes": ["*"]}, {"agent_ids": agents}):
            problem = await api.refused("POST", "/v1/api_keys", json={**wanted, **more}, headers=maker)
            assert problem["status"] == 403
        assert (await api.refused("POST", f"/v1/api_keys/{api.key.id}/rotate", headers=maker))["status"] == 403

    serve(tmp_path, work)


def test_an_expired_key_says_that_it_has_expired(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        made, now = generate_secret(), api.deps.clock.now()
        new = NewKey("old", made.sha256, PROJECT_ID, expires_at=now - timedelta(seconds=1))
        await api.store.access().make_key(new, actor=None)
        problem = await api.refused("GET", "/v1/turns", headers={"Authorization": f"Bearer {made.secret}"})
        assert (problem["status"], problem["code"]) == (401, "key_expired")
        past = {"name": "x", "scopes": ["*"], "expires_at": render_time(now)}
        assert (await api.refused("POST", "/v1/api_keys", json=past))["param"] == "/expires_at"

    serve(tmp_path, work)


def test_both_secrets_work_while_they_overlap_and_one_where_they_do_not(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        first = await key(api)
        second = await api.made(f"/v1/api_keys/{first['id']}/rotate", {"overlap_hours": 1})
        assert second["overlap_until"] is not None
        for made in (first, second):
            assert (await api.client.get("/v1/turns", headers=showing(made))).status_code == 200
        third = await api.made(f"/v1/api_keys/{first['id']}/rotate", {"overlap_hours": 0})
        for made in (first, second):
            assert (await api.refused("GET", "/v1/turns", headers=showing(made)))["code"] == "key_invalid"
        assert (await api.client.get("/v1/turns", headers=showing(third))).status_code == 200

    serve(tmp_path, work)


def test_a_key_that_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        slow = await limited(api, KeyLimits(requests_per_minute=2))
        for _ in range(2):
            assert (await api.client.get("/v1/turns", headers=slow)).status_code == 200
        answer = await api.client.get("/v1/turns", headers=slow)
        assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
        assert 1 <= int(answer.headers["Retry-After"]) <= 30
        assert (answer.headers["RateLimit-Limit"], answer.headers["RateLimit-Remaining"]) == ("2", "0")

    serve(tmp_path, work)


def test_a_replay_is_answered_before_every_limit_of_the_key(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        path = f"/v1/sessions/{await api.session()}/turns"
        slow = await limited(api, KeyLimits(requests_per_minute=1, queued_turns=1, concurrent_turns=1))
        once = {**slow, "Idempotency-Key": "k"}

        async def post(headers: dict[str, str]) -> httpx.Response:
            return await api.client.post(path, json={"input": "hi"}, headers=headers)

        assert (await post(once)).status_code == 202
        assert [(await post(once)).status_code for _ in range(3)] == [200, 200, 200]
        assert (await post({**slow, "Idempotency-Key": "other"})).status_code == 429

    serve(tmp_path, work)


@pytest.mark.parametrize(
    ("limits", "name"),
    [(KeyLimits(queued_turns=1), "queued_turns"), (KeyLimits(concurrent_turns=1), "concurrent_turns")],
)
def test_a_key_has_no_more_turns_at_one_time_than_it_may(tmp_path: Path, limits: KeyLimits, name: str) -> None:
    async def work(api: Api) -> None:
        headers = await limited(api, limits)
        paths = [f"/v1/sessions/{await api.session()}/turns" for _ in range(2)]
        answers = [await api.client.post(path, json={"input": "hi"}, headers=headers) for path in paths]
        assert [answer.status_code for answer in answers] == [202, 429]
        problem = answers[1].json()
        assert (problem["limit"], problem["limit_name"]) == (1, name)
        assert answers[1].headers["RateLimit-Limit"] == "1"
        await api.completed(await api.started())
        assert (await api.client.post(paths[1], json={"input": "hi"}, headers=headers)).status_code == 202

    serve(tmp_path, work)


def test_a_key_opens_no_more_streams_than_it_may(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        made = generate_secret()
        new = NewKey("one", made.sha256, PROJECT_ID, limits=KeyLimits(streams=1))
        one = await api.store.access().make_key(new, actor=None)
        headers = {"Authorization": f"Bearer {made.secret}"}
        with api.deps.streams.admit(one.id, key_limit=1):
            path = f"/v1/sessions/{await api.session()}/events/stream"
            assert (await api.refused("GET", path, headers=headers))["code"] == "too_many_streams"

    serve(tmp_path, work)


def test_use_is_noted_once_a_minute_and_not_with_every_request(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        await api.seen("/v1/turns")
        first = (await api.store.access().key(api.key.id)).last_used_at
        await asyncio.gather(*(api.seen("/v1/turns") for _ in range(5)))
        assert first is not None
        assert (await api.store.access().key(api.key.id)).last_used_at == first

    serve(tmp_path, work)


def test_what_happens_to_a_key_is_an_event_with_who_did_it(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        endpoint = await api.made("/v1/webhook_endpoints", {"url": "https://1.1.1.1/hook", "types": ["api_key.*"]})
        made = await key(api)
        await api.made(f"/v1/api_keys/{made['id']}/rotate")
        for _ in range(2):
            await api.client.delete(f"/v1/api_keys/{made['id']}")
        listed = (await api.seen(f"/v1/webhook_endpoints/{endpoint['id']}/deliveries?order=asc"))["data"]
        assert [one["event_type"] for one in listed] == ["api_key.created", "api_key.rotated", "api_key.revoked"]
        event = await api.seen(f"/v1/events/{listed[0]['event_id']}")
        assert event["data"] == {"api_key_id": made["id"], "actor": {"type": "api_key", "id": api.key.id}}

    serve(tmp_path, work)
