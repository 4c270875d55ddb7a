"""A turn that is posted with its stream outlives the connection and the server; a lone turn's session goes with it."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
from tests.acceptance.server import Json, Server
from tests.acceptance.stub import StubModel

AGENT = {"name": "streamed", "model": {"provider": "stub", "id": "stub"}, "tools": ["shell"]}
KEY = {"Idempotency-Key": "once"}


def events_of(answer: httpx.Response) -> Iterator[Json]:
    """What a stream carries as `data`, frames of the stream itself left out."""
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name == "data" and '"object":"event"' in value:
            yield json.loads(value)


def test_a_lone_turn_streamed_through_a_crash_is_one_turn_and_closes_its_session(tmp_path: Path) -> None:
    with StubModel() as model, Server(tmp_path, model.config(), environment={"STUB_KEY": "k"}) as server:
        agent = server.post("/v1/agents", AGENT)
        body = {"agent_id": agent["id"], "input": "tools=1 command=sleep+1 text=done", "max_attempts": 3}
        with server.client() as client, client.stream("POST", "/v1/turns?stream=true", json=body, headers=KEY) as first:
            assert first.status_code == 200
            next(event for event in events_of(first) if event["type"] == "turn.started")
            server.kill()
        server.start()
        with server.client() as client, client.stream("POST", "/v1/turns?stream=true", json=body, headers=KEY) as again:
            assert again.headers["Location"] == first.headers["Location"]
            seen = list(events_of(again))
        session_id = seen[0]["session_id"]
        with server.client() as client:
            path = f"/v1/sessions/{session_id}/events/stream?after=0"
            with client.stream("GET", path) as stream:
                whole = list(events_of(stream))
        session = server.get(f"/v1/sessions/{session_id}")

    assert [event["type"] for event in seen if event["type"].startswith("turn.c")] == ["turn.completed"]
    assert seen[-1]["data"]["output"] == {"text": "done"}
    assert [event["sequence"] for event in whole] == list(range(1, len(whole) + 1))
    assert (whole[-1]["type"], session["status"]) == ("session.closed", "closed")
