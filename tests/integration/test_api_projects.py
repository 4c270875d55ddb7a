"""Projects: whatever belongs to one is not there for a key of another, on every route there is."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
from tests.integration.api_door import AGENT, Api, serve
from tests.unit.turns.test_skill_archives import SKILL, zipped

from turnkeeper.api.auth import generate_secret
from turnkeeper.turns.access import NewKey

OTHER = "prj_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
MINE_UNKNOWN = "01KBC3Y5M8Q2V7R9T4W6X1Z0AB"


@asynccontextmanager
async def other(api: Api) -> AsyncGenerator[Api]:
    """The same API as a key of another project sees it."""
    made = generate_secret()
    key = await api.store.access().make_key(NewKey("other", made.sha256, OTHER), actor=None)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(api.app),
        base_url="http://turnkeeper",
        headers={"Authorization": f"Bearer {made.secret}"},
    ) as client:
        yield replace(api, client=client, key=key, secret=made.secret)


async def ids_of_one_project(api: Api) -> dict[str, str]:
    """One of everything, by the name that paths give to its id."""
    endpoint = await api.made("/v1/webhook_endpoints", {"url": "https://1.1.1.1/hook"})
    session_id = await api.session()
    turn = await api.turn(session_id)
    events = (await api.seen(f"/v1/sessions/{session_id}/events"))["data"]
    deliveries = (await api.seen(f"/v1/webhook_endpoints/{endpoint['id']}/deliveries"))["data"]
    packed = zipped({"SKILL.md": SKILL})
    skill = (await api.client.post("/v1/skills", files={"file": ("a.zip", packed)})).json()
    return {
        "agent_id": turn["agent_id"],
        "session_id": session_id,
        "turn_id": turn["id"],
        "event_id": events[0]["id"],
        "endpoint_id": endpoint["id"],
        "delivery_id": deliveries[0]["id"],
        "key_id": api.key.id,
        "skill_id": skill["id"],
        "approval_id": f"apr_{MINE_UNKNOWN}",
        "budget_id": f"bud_{MINE_UNKNOWN}",
        "file_id": f"fil_{MINE_UNKNOWN}",
        "artifact_id": f"art_{MINE_UNKNOWN}",
        "tool_call_id": f"tcl_{MINE_UNKNOWN}",
    }


def test_on_every_route_the_ids_of_another_project_are_404(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        ids = await ids_of_one_project(api)
        paths = {path: on for path, on in (await api.seen("/openapi.json"))["paths"].items() if "_id}" in path}
        assert len(paths) > 20
        async with other(api) as stranger:
            for template, operations in paths.items():
                path = re.sub(r"\{(\w+)\}", lambda found: ids.get(found[1], "1"), template)
                for method in operations:
                    problem = await stranger.refused(method, path, json={})
                    assert (problem["status"], problem["code"]) == (404, "not_found"), (method, path)

    serve(tmp_path, work)


def test_lists_show_what_is_of_the_keys_own_project(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        await ids_of_one_project(api)
        async with other(api) as stranger:
            mine = await stranger.turn(await stranger.session())
            expected = {"agents": [mine["agent_id"]], "sessions": [mine["session_id"]], "turns": [mine["id"]]}
            expected |= {"skills": [], "webhook_endpoints": [], "approvals": [], "api_keys": [stranger.key.id]}
            for name, ids in expected.items():
                listed = await stranger.seen(f"/v1/{name}")
                assert [element["id"] for element in listed["data"]] == ids, name

    serve(tmp_path, work)


def test_a_session_cannot_be_opened_with_another_projects_agent(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        agent = await api.made("/v1/agents", AGENT)
        async with other(api) as stranger:
            for path, more in (("/v1/sessions", {}), ("/v1/turns", {"input": "hi"})):
                problem = await stranger.refused("POST", path, json={"agent_id": agent["id"], **more})
                assert (problem["status"], problem["code"]) == (404, "not_found"), path

    serve(tmp_path, work)


def test_events_go_to_the_endpoints_of_their_project_alone(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        mine = await api.made("/v1/webhook_endpoints", {"url": "https://1.1.1.1/hook"})
        async with other(api) as stranger:
            await stranger.turn(await stranger.session())
            await stranger.made("/v1/api_keys", {"name": "x", "scopes": ["*"]})
            listed = (await stranger.seen("/v1/turns"))["data"]
            event = (await stranger.seen(f"/v1/turns/{listed[0]['id']}/events"))["data"][0]
            assert event["project_id"] == OTHER
        assert (await api.seen(f"/v1/webhook_endpoints/{mine['id']}/deliveries"))["data"] == []

    serve(tmp_path, work)


def test_an_idempotency_key_is_the_projects_own(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        first = await api.made(f"/v1/sessions/{await api.session()}/turns", {"input": "a"}, Idempotency_Key="k")
        async with other(api) as stranger:
            path = f"/v1/sessions/{await stranger.session()}/turns"
            second = await stranger.made(path, {"input": "b"}, Idempotency_Key="k")
        assert first["id"] != second["id"]

    serve(tmp_path, work)
