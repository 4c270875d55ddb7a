"""Versions of agents over the API (contract 2.1): they never change, and sessions keep theirs."""

from pathlib import Path

from tests.integration.api_door import AGENT, Api, serve


def test_a_change_makes_the_next_version_and_the_first_stays_as_it_was(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        first = await api.made("/v1/agents", {**AGENT, "metadata": {"n": 1.0}})
        path = f"/v1/agents/{first['id']}"
        second = await api.made(path, {"instructions": "Be kind.", "expected_version": 1})
        assert (second["version"], second["instructions"], second["name"]) == (2, "Be kind.", first["name"])
        assert (await api.client.get(path)).text.count('"metadata":{"n":1.0}') == 1
        assert await api.seen(f"{path}/versions/1") == first
        assert [one["version"] for one in (await api.seen(f"{path}/versions"))["data"]] == [2, 1]
        page = await api.seen(f"{path}/versions?limit=1&order=asc")
        rest = await api.seen(f"{path}/versions?limit=1&order=asc&after={page['next_cursor']}")
        assert [page["data"][0]["version"], rest["data"][0]["version"], rest["has_more"]] == [1, 2, False]
        assert (await api.refused("GET", f"{path}/versions/3"))["status"] == 404

    serve(tmp_path, work)


def test_a_change_of_another_version_is_a_conflict_that_names_it(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        agent = await api.made("/v1/agents", AGENT)
        path = f"/v1/agents/{agent['id']}"
        await api.made(path, {"name": "b", "expected_version": 1})
        problem = await api.refused("POST", path, json={"name": "c", "expected_version": 1})
        assert (problem["status"], problem["code"], problem["version"]) == (409, "version_conflict", 2)
        assert (await api.refused("POST", path, json={"name": "c"}))["param"] == "/expected_version"

    serve(tmp_path, work)


def test_a_session_keeps_the_version_it_was_opened_with(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        agent = await api.made("/v1/agents", AGENT)
        old = await api.made("/v1/sessions", {"agent_id": agent["id"]})
        await api.made(f"/v1/agents/{agent['id']}", {"instructions": "New.", "expected_version": 1})
        new = await api.made("/v1/sessions", {"agent_id": agent["id"]})
        pinned = await api.made("/v1/sessions", {"agent_id": agent["id"], "agent_version": 1})
        assert [one["agent_version"] for one in (old, new, pinned)] == [1, 2, 1]
        await api.turn(old["id"])
        claim = await api.store.claim("worker", slot=True)
        assert claim is not None
        assert (claim.turn.agent_version, claim.agent.instructions) == (1, AGENT["instructions"])

    serve(tmp_path, work)


def test_an_archived_agent_takes_no_session_and_no_version_while_open_sessions_go_on(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        agent_id = (await api.seen(f"/v1/sessions/{session_id}"))["agent_id"]
        assert (await api.made(f"/v1/agents/{agent_id}/archive"))["archived_at"] is not None
        for path, body in (
            ("/v1/sessions", {"agent_id": agent_id}),
            (f"/v1/agents/{agent_id}", {"expected_version": 1}),
        ):
            problem = await api.refused("POST", path, json=body)
            assert (problem["status"], problem["code"]) == (409, "agent_archived")
        assert (await api.turn(session_id))["status"] == "queued"

    serve(tmp_path, work)
