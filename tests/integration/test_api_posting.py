"""Turns posted with a stream, with their own session, or again; and what a browser follows them with."""

import asyncio
from pathlib import Path

import pytest
from tests.integration.api_door import AGENT, Api, Json, serve
from tests.integration.test_api_openapi import component
from tests.integration.test_api_streams import Door, frames, listening

from turnkeeper.api.deps import ApiSettings
from turnkeeper.api.stream_registry import StreamRegistry


def test_a_snapshot_tells_where_to_go_on(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        api = door.api
        session_id = await api.session()
        first, second = await api.turn(session_id), await api.turn(session_id, output_schema={"type": "object"})
        claim = await api.started()
        snapshot = await api.seen(f"/v1/sessions/{session_id}/snapshot")
        assert snapshot["active_turn"]["id"] == first["id"]
        assert [turn["id"] for turn in snapshot["queued_turns"]] == [second["id"]]
        assert snapshot["queued_turns"][0] == await api.seen(f"/v1/turns/{second['id']}")
        assert snapshot["session"] == await api.seen(f"/v1/sessions/{session_id}")
        component(await api.seen("/openapi.json"), "SessionSnapshot").check(snapshot)
        async with door.stream(f"/v1/sessions/{session_id}/events/stream?after={snapshot['as_of']}") as found:
            await anext(found)
            await api.completed(claim)
            assert (await anext(found)).id == snapshot["as_of"] + 1

    listening(tmp_path, work)


async def a_token(api: Api, session_id: str, **body: int) -> str:
    made = await api.made(f"/v1/sessions/{session_id}/stream_tokens", body)
    component(await api.seen("/openapi.json"), "StreamToken").check(made)
    return str(made["token"])


def test_a_stream_token_opens_the_streams_of_its_session_and_nothing_else(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id, other_id = await door.api.session(), await door.api.session()
        turn, elsewhere = await door.api.turn(session_id), await door.api.turn(other_id)
        token = await a_token(door.api, session_id)
        del door.client.headers["Authorization"]
        for path in (f"/v1/sessions/{session_id}", f"/v1/turns/{turn['id']}"):
            async with door.stream(f"{path}/events/stream?stream_token={token}") as found:
                assert (await anext(found)).event == "stream.ready"
            assert (await door.client.get(f"{path}?stream_token={token}")).status_code == 401
        for path in (f"/v1/sessions/{other_id}", f"/v1/turns/{elsewhere['id']}"):
            refused = await door.client.get(f"{path}/events/stream?stream_token={token}")
            assert (refused.status_code, refused.json()["code"]) == (401, "key_invalid")

    listening(tmp_path, work)


def test_a_token_of_a_revoked_key_opens_nothing_and_ends_what_is_open(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id = await door.api.session()
        path = f"/v1/sessions/{session_id}/events/stream?stream_token={await a_token(door.api, session_id, ttl_s=900)}"
        del door.client.headers["Authorization"]
        async with door.stream(path) as found:
            await anext(found)
            await door.api.store.revoke_key(door.api.key.id)
            assert (await anext(found)).data["reason"] == "unauthorized"
        assert (await door.client.get(path)).json()["code"] == "key_invalid"

    listening(tmp_path, work, ApiSettings(sse_heartbeat_ms=20, poll_ms=600_000))


@pytest.mark.parametrize("ttl_s", [0, 901, "60", 1.5])
def test_a_stream_token_lives_for_a_quarter_of_an_hour_at_most(tmp_path: Path, ttl_s: object) -> None:
    async def work(api: Api) -> None:
        path = f"/v1/sessions/{await api.session()}/stream_tokens"
        problem = await api.refused("POST", path, json={"ttl_s": ttl_s})
        assert (problem["code"], problem["param"]) == ("invalid_field", "/ttl_s")

    serve(tmp_path, work)


def test_a_turn_posted_with_a_stream_answers_with_its_events_to_the_end(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id = await door.api.session()
        path = f"/v1/sessions/{session_id}/turns?stream=true"
        named = {"Idempotency-Key": "k"}
        async with door.client.stream("POST", path, json={"input": "hi"}, headers=named) as answer:
            assert (answer.status_code, answer.headers["Events-After"]) == (200, "1")
            found = frames(answer)
            assert (await anext(found)).event == "stream.ready"
            await door.api.completed(await door.api.started())
            types = [frame.event for frame in [frame async for frame in found]]
        assert types == ["turn.queued", "turn.starting", "turn.started", "turn.completed", "stream.closing"]
        async with door.client.stream("POST", path, json={"input": "hi"}, headers=named) as again:
            assert again.headers["Idempotent-Replayed"] == "true"
            assert again.headers["Location"] == answer.headers["Location"]
            assert [frame.event async for frame in frames(again)][1:] == types

    listening(tmp_path, work)


def test_losing_the_stream_of_a_posted_turn_cancels_nothing(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        path = f"/v1/sessions/{await door.api.session()}/turns?stream=true"
        async with door.client.stream("POST", path, json={"input": "hi"}) as answer:
            await anext(frames(answer))
            claim = await door.api.started()
        while door.api.deps.streams.open_count:
            await asyncio.sleep(0.005)
        assert (await door.api.store.turn(claim.turn.id)).cancel_requested_at is None
        await door.api.completed(claim)
        assert (await door.api.seen(f"/v1/turns/{claim.turn.id}"))["status"] == "completed"

    listening(tmp_path, work)


def test_a_turn_whose_stream_has_no_place_is_not_made(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        path = f"/v1/sessions/{session_id}/turns?stream=true"
        assert (await api.refused("POST", path, json={"input": "hi"}))["code"] == "too_many_streams"
        assert (await api.seen(f"/v1/sessions/{session_id}/turns"))["data"] == []
        assert (await api.refused("POST", path, json={}))["code"] == "invalid_field"

    serve(tmp_path, work, streams=StreamRegistry(max_streams=0))


async def a_lone_turn(api: Api, **fields: object) -> Json:
    agent = await api.made("/v1/agents", AGENT)
    return await api.made("/v1/turns", {"agent_id": agent["id"], "input": "hi", **fields})


def test_a_turn_with_its_own_session_closes_it_behind_it(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        turn = await a_lone_turn(api, title="once", metadata={"n": 1}, workspace={"mode": "ephemeral"})
        session = await api.seen(f"/v1/sessions/{turn['session_id']}")
        assert (session["title"], session["workspace"], session["metadata"]) == ("once", {"mode": "ephemeral"}, {})
        assert (session["status"], turn["metadata"]) == ("closing", {"n": 1})
        events = (await api.seen(f"/v1/sessions/{session['id']}/events"))["data"]
        assert [event["type"] for event in events] == ["session.created", "turn.queued"]
        problem = await api.refused("POST", f"/v1/sessions/{session['id']}/turns", json={"input": "hi"})
        assert problem["code"] == "session_closed"

    serve(tmp_path, work)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"input": "hi"}, "invalid_field", "/agent_id"),
        ({"agent_id": "agt_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"}, "invalid_field", "/input"),
        ({"agent_id": "agt_01KBC3Y5M8Q2V7R9T4W6X1Z0AB", "input": "hi"}, "not_found", None),
        ({"agent_id": "agt_01KBC3Y5M8Q2V7R9T4W6X1Z0AB", "input": "hi", "nope": 1}, "unknown_field", "/nope"),
    ],
)
def test_a_lone_turn_that_is_not_whole_makes_no_session(
    tmp_path: Path, body: Json, code: str, param: str | None
) -> None:
    async def work(api: Api) -> None:
        problem = await api.refused("POST", "/v1/turns", json=body)
        assert (problem["code"], problem["param"]) == (code, param)
        assert (await api.seen("/v1/sessions"))["data"] == []

    serve(tmp_path, work)


def test_an_ended_turn_is_done_again_as_a_new_one(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        turn = await api.turn(await api.session(), metadata={"n": 1})
        path = f"/v1/turns/{turn['id']}/retry"
        assert (await api.refused("POST", path))["code"] == "turn_not_terminal"
        await api.completed(await api.started())
        again = await api.made(path, {"metadata": {"n": 2}}, Idempotency_Key="k")
        component(await api.seen("/openapi.json"), "Turn").check(again)
        assert (again["retry_of"], again["metadata"], again["input"]) == (turn["id"], {"n": 2}, "hi")
        assert (await api.made(path, {"metadata": {"n": 2}}, Idempotency_Key="k"))["id"] == again["id"]
        assert (await api.refused("POST", path, json={"input": "x"}))["code"] == "unknown_field"

    serve(tmp_path, work)
