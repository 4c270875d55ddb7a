"""`on_busy`, `start_by`, `max_attempts` and `blocked_by` as an app sees them (contract 2.3, 3 and 7)."""

from pathlib import Path

from tests.integration.api_door import AGENT, Api, Json, serve


def test_a_turn_that_would_not_wait_is_refused_with_the_active_turn(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        active = await api.turn(session_id)
        await api.started()
        body = {"input": "hi", "on_busy": "reject"}
        problem = await api.refused("POST", f"/v1/sessions/{session_id}/turns", json=body)
        assert (problem["status"], problem["code"]) == (409, "session_busy")
        assert problem["active_turn_id"] == active["id"]

    serve(tmp_path, work)


def test_a_refused_turn_leaves_its_key_free(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        await api.turn(session_id)
        claim = await api.started()
        path, headers = f"/v1/sessions/{session_id}/turns", {"Idempotency-Key": "k"}
        body = {"input": "hi", "on_busy": "reject"}
        await api.refused("POST", path, json=body, headers=headers)
        await api.completed(claim)
        assert (await api.client.post(path, json=body, headers=headers)).status_code == 202

    serve(tmp_path, work)


def test_an_interrupting_turn_supersedes_and_waiting_turns_name_what_they_wait_for(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        active = await api.turn(session_id)
        await api.started()
        waiting = await api.turn(session_id)
        urgent = await api.turn(session_id, on_busy="interrupt")
        blocker: Json = {"turn_id": active["id"], "reason": "running", "approval_ids": []}
        assert (urgent["queue_position"], urgent["blocked_by"]) == (0, blocker)
        assert (await api.seen(f"/v1/turns/{waiting['id']}"))["queue_position"] == 1
        assert (await api.seen(f"/v1/turns/{active['id']}"))["cancel_requested_at"] is not None

    serve(tmp_path, work)


def test_attempts_are_the_turns_own_or_its_agents(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        agent = await api.made("/v1/agents", {**AGENT, "limits": {"max_attempts": 3}})
        session = await api.made("/v1/sessions", {"agent_id": agent["id"]})
        assert agent["limits"]["max_attempts"] == 3
        assert (await api.turn(str(session["id"])))["max_attempts"] == 3
        assert (await api.turn(str(session["id"]), max_attempts=1))["max_attempts"] == 1

    serve(tmp_path, work)


def test_a_time_to_start_by_is_kept_in_utc_and_counts(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        turn = await api.turn(session_id, start_by="2020-01-01T01:00:00+01:00")
        assert turn["start_by"] == "2020-01-01T00:00:00.000Z"
        await api.store.expire_starts(10)
        ended = await api.seen(f"/v1/turns/{turn['id']}")
        assert (ended["status"], ended["stop_reason"], ended["error"]["retryable"]) == ("failed", "queue_expired", True)

    serve(tmp_path, work)
