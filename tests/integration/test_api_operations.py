"""What operators see: the queue and the figures, with a key that may."""

from pathlib import Path

from tests.integration.api_door import Api, serve
from tests.integration.test_api_openapi import component


def test_the_queue_is_counted_by_where_turns_are(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        empty = await api.seen("/v1/admin/queue")
        assert (empty["depth"], empty["oldest_queued_ms"], empty["runners"]["busy"]) == (0, 0, 0)
        session_id = await api.session()
        await api.turn(session_id)
        await api.started()
        await api.turn(session_id)
        state = await api.seen("/v1/admin/queue")
        assert (state["depth"], state["running"], state["runners"]["busy"]) == (1, 1, 1)
        component(await api.seen("/openapi.json"), "QueueState").check(state)

    serve(tmp_path, work)


def test_figures_are_in_the_text_format_of_prometheus(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        await api.turn(await api.session())
        answer = await api.client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = answer.text.splitlines()
        assert 'turnkeeper_turns{status="queued"} 1' in lines
        assert "turnkeeper_dead_letters 0" in lines
        assert "turnkeeper_stuck_turns 0" in lines
        assert 'turnkeeper_outbox_depth{to="webhooks"} 0' in lines
        samples = [line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")]
        assert {f"# TYPE {name} gauge" for name in samples} <= set(lines)

    serve(tmp_path, work)


def test_an_operator_puts_a_turn_back_fails_and_cancels_it(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        await api.turn(session_id)
        claim = await api.started()
        path = f"/v1/admin/turns/{claim.turn.id}"
        refused = await api.refused("POST", f"{path}/requeue")
        assert (refused["status"], refused["code"], refused["max_attempts"]) == (409, "attempts_used", 1)
        failed = await api.made(f"{path}/fail", {"reason": "stuck"})
        assert (failed["status"], failed["stop_reason"], failed["error"]["code"]) == (
            "failed",
            "internal_error",
            "operator",
        )
        assert (await api.refused("POST", f"{path}/fail"))["code"] == "turn_ended"
        waiting = await api.turn(session_id)
        assert (await api.made(f"/v1/admin/turns/{waiting['id']}/requeue"))["status"] == "queued"
        canceled = await api.made(f"/v1/admin/turns/{waiting['id']}/cancel", {"reason": "upgrade"})
        assert (canceled["status"], canceled["stop_reason"]) == ("canceled", "operator")

    serve(tmp_path, work)


def test_a_drained_platform_refuses_turns_says_so_and_takes_them_again(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        posted = await api.made(f"/v1/sessions/{session_id}/turns", {"input": "hi"}, Idempotency_Key="k")
        drain = await api.made("/v1/admin/drain", {"reason": "upgrade"})
        assert (drain["draining"], drain["drained"], drain["reason"]) == (True, True, "upgrade")
        assert drain["turns"]["queued"] == 1
        answer = await api.client.post(f"/v1/sessions/{session_id}/turns", json={"input": "hi"})
        assert (answer.status_code, answer.json()["code"], answer.headers["Retry-After"]) == (503, "draining", "10")
        again = await api.made(f"/v1/sessions/{session_id}/turns", {"input": "hi"}, Idempotency_Key="k")
        assert again["id"] == posted["id"]
        assert (await api.client.delete("/v1/admin/drain")).json()["draining"] is False
        await api.turn(session_id)

    serve(tmp_path, work)


def test_neither_is_shown_to_a_key_without_the_scope_admin(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        made = await api.made("/v1/api_keys", {"name": "app", "scopes": ["turns:read"]})
        headers = {"Authorization": f"Bearer {made['secret']}"}
        for path in ("/v1/admin/queue", "/metrics", "/v1/admin/drain"):
            assert (await api.refused("GET", path, headers=headers))["code"] == "scope_missing"

    serve(tmp_path, work)
