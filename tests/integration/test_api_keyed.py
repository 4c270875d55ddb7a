"""`Idempotency-Key` on everything that is made (contract 2 and 9)."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.api_door import AGENT, Api, serve

from turnkeeper.api.app import build_api
from turnkeeper.api.in_flight import KeysInFlight
from turnkeeper.turns.model import PROJECT_ID

KEYED = {"Idempotency-Key": "k"}
MADE: dict[str, dict[str, Any]] = {
    "/v1/agents": AGENT,
    "/v1/sessions": {},
    "/v1/budgets": {"scope": {"type": "project"}, "limits": {"max_model_calls": 5}},
    "/v1/api_keys": {"name": "app", "scopes": ["turns:read"]},
    "/v1/webhook_endpoints": {"url": "https://1.1.1.1/hook", "types": ["*"]},
}
SECRETS = ("/v1/api_keys", "/v1/webhook_endpoints")


@pytest.mark.parametrize("path", MADE)
def test_the_same_request_makes_one_thing_and_shows_it_again_without_its_secret(tmp_path: Path, path: str) -> None:
    async def work(api: Api) -> None:
        body = MADE[path] or {"agent_id": (await api.made("/v1/agents", AGENT))["id"]}
        first = await api.client.post(path, json=body, headers=KEYED)
        again = await api.client.post(path, json=body, headers=KEYED)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.headers["Idempotent-Replayed"] == "true"
        assert again.headers["Location"] == first.headers["Location"]
        assert ("secret" in first.json(), "secret" in again.json()) == (path in SECRETS, False)
        assert again.json() == {name: value for name, value in first.json().items() if name != "secret"}
        problem = await api.refused("POST", path, json={**body, "nothing": 1}, headers=KEYED)
        assert problem["code"] == "unknown_field"

    serve(tmp_path, work)


def test_another_request_with_the_key_is_refused_with_what_it_stands_for(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        agent = await api.made("/v1/agents", AGENT, Idempotency_Key="k")
        problem = await api.refused("POST", "/v1/agents", json={**AGENT, "name": "b"}, headers=KEYED)
        assert (problem["status"], problem["code"]) == (422, "idempotency_key_reused")
        assert problem["resource_id"] == agent["id"]
        session_id = await api.session()
        problem = await api.refused("POST", f"/v1/sessions/{session_id}/turns", json={"input": "x"}, headers=KEYED)
        assert (problem["code"], problem["resource_id"]) == ("idempotency_key_reused", agent["id"])

    serve(tmp_path, work)


def test_a_repeat_is_answered_before_the_keys_rate_is_counted(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        limited = {"name": "app", "scopes": ["*"], "limits": {"requests_per_minute": 1}}
        secret = (await api.made("/v1/api_keys", limited))["secret"]
        headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": "k"}
        answers = [await api.client.post("/v1/agents", json=AGENT, headers=headers) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 200]
        headers["Idempotency-Key"] = "another"
        assert (await api.refused("POST", "/v1/agents", json=AGENT, headers=headers))["code"] == "rate_limited"

    serve(tmp_path, work)


def test_a_request_whose_first_is_still_committing_is_told_to_come_again(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        impatient = replace(api.deps, in_flight=KeysInFlight(wait_ms=20))
        transport, headers = httpx.ASGITransport(build_api(impatient)), {**api.client.headers, **KEYED}
        path, body = f"/v1/sessions/{session_id}/turns", {"input": "hi"}
        async with httpx.AsyncClient(transport=transport, base_url="http://turnkeeper", headers=headers) as client:
            with closing(sqlite3.connect(tmp_path / "turnkeeper.db", isolation_level=None)) as another_process:
                another_process.execute("BEGIN IMMEDIATE")
                posting = asyncio.create_task(client.post(path, json=body))
                while not impatient.in_flight.count:
                    await asyncio.sleep(0.01)
                answer = await client.post(path, json=body)
                another_process.execute("ROLLBACK")
            first = await posting
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_in_progress")
        assert answer.headers["Retry-After"] == "1"
        assert first.status_code == 202

    serve(tmp_path, work)


def test_the_key_of_a_deleted_endpoint_makes_it_not_again(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        body = MADE["/v1/webhook_endpoints"]
        made = await api.made("/v1/webhook_endpoints", body, Idempotency_Key="k")
        await api.client.delete(f"/v1/webhook_endpoints/{made['id']}")
        problem = await api.refused("POST", "/v1/webhook_endpoints", json=body, headers=KEYED)
        assert (problem["status"], problem["code"]) == (410, "idempotency_resource_deleted")
        assert await api.deps.access.knows_request(PROJECT_ID, "k")

    serve(tmp_path, work)
