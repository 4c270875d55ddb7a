"""Sessions that are changed, deleted and erased, as apps see it."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.api_door import DEADLINE_S, Api, Json, serve

from turnkeeper.turns.model import StepAnswer
from turnkeeper.turns.retention import Retention
from turnkeeper.turns.wakeups import LocalWakeups

SECRET = "do not keep this"


async def swept(api: Api, workspaces: Path) -> None:
    """One sweep, as a worker makes it."""
    news = api.deps.news
    assert isinstance(news, LocalWakeups)
    with news.watch("retention") as bell:
        await Retention(api.deps.retention, workspaces, bell).sweep()


async def deleted(api: Api, session_id: str) -> None:
    """The session deleted, closed and swept."""
    assert (await api.client.delete(f"/v1/sessions/{session_id}")).status_code == 202
    for step in await api.store.pending_steps(session_id):
        await api.store.answer_step(session_id, step.request_id, StepAnswer(state="answered"), None, [])
    await api.store.close_ended(session_id, "cancelled", None)


def test_title_metadata_and_retention_change_and_the_event_names_what_did(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session(title="old", retention_days=1)
        path = f"/v1/sessions/{session_id}"
        body: Json = {"title": "new", "metadata": {"k": 1.0}, "retention_days": 1}
        answer = await api.client.patch(path, json=body)
        assert (answer.json()["title"], answer.json()["metadata"]) == ("new", {"k": 1.0})
        await api.client.patch(path, json=body)
        events = (await api.seen(f"{path}/events?types=session.updated"))["data"]
        assert [event["data"]["changed"] for event in events] == [["title", "metadata"]]
        assert (await api.seen(path))["expires_at"] is not None

    serve(tmp_path, work)


def test_a_session_with_a_turn_that_is_not_over_does_not_expire(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session(retention_days=1)
        await api.turn(session_id)
        assert (await api.seen(f"/v1/sessions/{session_id}"))["expires_at"] is None

    serve(tmp_path, work)


def test_a_deleted_session_is_gone_at_once_with_all_that_is_in_it(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        turn = await api.turn(session_id)
        event = (await api.seen(f"/v1/sessions/{session_id}/events"))["data"][0]
        assert (await api.client.delete(f"/v1/sessions/{session_id}")).status_code == 202
        for path in (f"sessions/{session_id}", f"turns/{turn['id']}", f"events/{event['id']}"):
            problem = await api.refused("GET", f"/v1/{path}")
            assert (problem["status"], problem["code"], problem["session_id"]) == (410, "session_deleted", session_id)
        assert (await api.seen("/v1/sessions"))["data"] == (await api.seen("/v1/turns"))["data"] == []

    serve(tmp_path, work)


def test_what_was_said_is_erased_and_ids_times_and_usage_are_left(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        endpoint = await api.made(
            "/v1/webhook_endpoints", {"url": "https://1.1.1.1/hook", "types": ["session.deleted"]}
        )
        session_id = await api.session(title=SECRET, metadata={"k": SECRET})
        turn = await api.turn(session_id, input=SECRET, metadata={"k": SECRET})
        await api.completed(await api.started(), text=SECRET)
        workspace = tmp_path / "workspaces" / session_id
        workspace.mkdir(parents=True)
        (workspace / "notes").write_text(SECRET)
        await deleted(api, session_id)
        await swept(api, tmp_path / "workspaces")
        assert not workspace.exists()
        kept = await api.store.turn(turn["id"])
        assert (kept.input_text, kept.text, kept.status) == ("", None, "completed")
        assert kept.ended_at is not None
        assert SECRET not in repr((kept, await api.store.session(session_id)))
        assert await api.store.events(session_id, after=0, limit=9) == ()
        listed = (await api.seen(f"/v1/webhook_endpoints/{endpoint['id']}/deliveries"))["data"]
        assert [one["event_type"] for one in listed] == ["session.deleted"]

    serve(tmp_path, work)


@pytest.mark.parametrize("lone", [True, False])
def test_the_key_of_a_deleted_turn_is_not_run_again(tmp_path: Path, lone: bool) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        agent_id = (await api.seen(f"/v1/sessions/{session_id}"))["agent_id"]
        path = "/v1/turns" if lone else f"/v1/sessions/{session_id}/turns"
        body = {"input": "hi", "agent_id": agent_id} if lone else {"input": "hi"}
        turn = await api.made(path, body, Idempotency_Key="k")
        await api.client.delete(f"/v1/sessions/{turn['session_id']}")
        problem = await api.refused("POST", path, json=body, headers={"Idempotency-Key": "k"})
        assert (problem["status"], problem["code"]) == (410, "idempotency_turn_deleted")

    serve(tmp_path, work)


def test_a_stream_of_a_deleted_session_says_why_it_ends(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        path = f"/v1/sessions/{session_id}/events/stream?after=1"
        reading = asyncio.create_task(api.client.get(path))
        while api.deps.streams.open_count == 0:
            await asyncio.sleep(0)
        await api.client.delete(f"/v1/sessions/{session_id}")
        async with asyncio.timeout(DEADLINE_S):
            assert '"reason":"session_deleted"' in (await reading).text

    serve(tmp_path, work)


def test_a_cursor_before_what_is_kept_is_told_where_events_begin(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        for _ in range(4):
            await api.turn(session_id)
        with closing(sqlite3.connect(tmp_path / "turnkeeper.db")) as other, other:
            other.execute("DELETE FROM events WHERE sequence < 4")
        path = f"/v1/sessions/{session_id}/events"
        for asked in (f"{path}?after=1", f"{path}/stream?after=2"):
            problem = await api.refused("GET", asked)
            assert (problem["status"], problem["code"], problem["oldest_sequence"]) == (410, "cursor_expired", 4)
        for asked in (f"{path}?after=0", f"{path}?after=3"):
            assert (await api.seen(asked))["data"][0]["sequence"] == 4
        assert (await api.seen(f"/v1/sessions/{session_id}"))["oldest_sequence"] == 4

    serve(tmp_path, work)
