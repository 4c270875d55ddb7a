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


def test_neither_is_shown_to_a_key_without_the_scope_admin(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        made = await api.made("/v1/api_keys", {"name": "app", "scopes": ["turns:read"]})
        headers = {"Authorization": f"Bearer {made['secret']}"}
        for path in ("/v1/admin/queue", "/metrics"):
            assert (await api.refused("GET", path, headers=headers))["code"] == "scope_missing"

    serve(tmp_path, work)
