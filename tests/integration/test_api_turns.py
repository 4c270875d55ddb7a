"""Turns over HTTP: accepted once, shown as they are, waited for, canceled."""

import asyncio
from pathlib import Path

import httpx
import pytest
from tests.integration.api_door import Api, serve

from turnkeeper.acs.strictjson import member_slices
from turnkeeper.turns.model import Submission

CONTRACT_KEYS = [
    "id",
    "object",
    "session_id",
    "agent_id",
    "agent_version",
    "status",
    "stop_reason",
    "input",
    "output_schema",
    "output",
    "result",
    "result_error",
    "usage",
    "metadata",
    "idempotency_key",
    "budget",
    "on_busy",
    "priority",
    "queue_position",
    "blocked_by",
    "attempt",
    "max_attempts",
    "repair_attempts_left",
    "pause",
    "error",
    "parent_turn_id",
    "retry_of",
    "cancel_requested_at",
    "created_at",
    "started_at",
    "ended_at",
    "start_by",
    "duration_ms",
    "first_sequence",
    "last_sequence",
]
SEED_FIELDS = [
    "status",
    "stop_reason",
    "output",
    "result",
    "result_error",
    "usage",
    "metadata",
    "idempotency_key",
    "duration_ms",
]
UNKNOWN_TURN = "trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
UNKNOWN_SESSION = "ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"


async def post_raw(api: Api, session_id: str, body: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.client.post(
        f"/v1/sessions/{session_id}/turns", content=body, headers={"Content-Type": "application/json", **named}
    )


def test_an_accepted_turn_is_queued_and_says_where_it_is(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        answer = await post_raw(api, session_id, '{"input":"hi"}')
        turn = answer.json()
        assert answer.status_code == 202
        assert list(turn) == CONTRACT_KEYS
        assert answer.headers["Location"] == f"/v1/turns/{turn['id']}"
        assert int(answer.headers["Events-After"]) == turn["first_sequence"] - 1
        assert (turn["status"], turn["output"], turn["stop_reason"], turn["duration_ms"]) == (
            "queued",
            None,
            None,
            None,
        )

    serve(tmp_path, work)


def test_what_the_app_sent_comes_back_token_for_token(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        body = (
            '{ "metadata": {"z": 1.0, "a": 1e2, "n": 12345678901234567890123, "u": "\\u0000"},\n'
            '  "output_schema": {"type": "object", "properties": {"b": {}, "a": {}}},\n'
            '  "input": [{"type":"text", "text":"x"}] }'
        )
        answer = await post_raw(api, await api.session(), body)
        turn = await api.client.get(answer.headers["Location"])
        for text in (answer.text, turn.text):
            assert {name: member_slices(text)[name] for name in ("metadata", "output_schema", "input")} == {
                "metadata": '{"z":1.0,"a":1e2,"n":12345678901234567890123,"u":"\\u0000"}',
                "output_schema": '{"type":"object","properties":{"b":{},"a":{}}}',
                "input": '[{"type":"text","text":"x"}]',
            }

    serve(tmp_path, work)


def test_after_the_end_the_seed_fields_are_the_terminal_event_byte_for_byte(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        schema = {"type": "object"}
        turn = await api.turn(session_id, output_schema=schema, metadata={"k": 1.0})
        claim = await api.started()
        await api.completed(claim, result_json='{"n":1.0,"a":[1e2]}')
        events = await api.client.get(f"/v1/turns/{turn['id']}/events?types=turn.completed")
        shown = member_slices((await api.client.get(f"/v1/turns/{turn['id']}")).text)
        data = member_slices(member_slices(_only(events.text))["data"])
        assert {name: shown[name] for name in SEED_FIELDS} == {name: data[name] for name in SEED_FIELDS}
        assert shown["result"] == '{"n":1.0,"a":[1e2]}'

    serve(tmp_path, work)


def _only(list_text: str) -> str:
    data = member_slices(list_text)["data"]
    return data.removeprefix("[").removesuffix("]")


def test_the_same_key_and_body_give_the_same_turn_and_another_body_is_refused(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        first = await post_raw(api, session_id, '{"input":"hi","metadata":{"a":1,"b":2}}', Idempotency_Key="k-1")
        again = await post_raw(api, session_id, '{"metadata":{"b":2,"a":1.0}, "input":"hi"}', Idempotency_Key='"k-1"')
        assert (first.status_code, again.status_code) == (202, 200)
        assert again.headers["Idempotent-Replayed"] == "true"
        assert again.headers["Events-After"] == first.headers["Events-After"]
        assert again.json()["id"] == first.json()["id"]
        other = await post_raw(api, session_id, '{"input":"else"}', Idempotency_Key="k-1")
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
        assert other.json()["turn_id"] == first.json()["id"]

    serve(tmp_path, work)


@pytest.mark.parametrize("key", ["", '""', "x" * 256, "ümlaut", "a\tb"])
def test_a_malformed_key_is_refused_and_no_turn_made(tmp_path: Path, key: str) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        headers = [(b"Content-Type", b"application/json"), (b"Idempotency-Key", key.encode("latin-1"))]
        path = f"/v1/sessions/{session_id}/turns"
        problem = await api.refused("POST", path, content=b'{"input":"hi"}', headers=headers)
        assert problem["code"] == "idempotency_key_invalid"
        assert (await api.seen(path))["data"] == []

    serve(tmp_path, work)


def test_a_replay_is_answered_although_the_queue_is_full(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        await api.turn(session_id)
        await post_raw(api, session_id, '{"input":"hi"}', Idempotency_Key="k")
        full = await post_raw(api, session_id, '{"input":"one more"}')
        assert (full.status_code, full.json()["code"], full.headers["Retry-After"]) == (429, "queue_full", "1")
        assert (await post_raw(api, session_id, '{"input":"hi"}', Idempotency_Key="k")).status_code == 200

    serve(tmp_path, work, queue_depth=2)


def test_a_refused_first_try_does_not_use_the_key(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        assert (await post_raw(api, session_id, '{"input":""}', Idempotency_Key="k")).status_code == 400
        assert (await post_raw(api, session_id, '{"input":"hi"}', Idempotency_Key="k")).status_code == 202

    serve(tmp_path, work)


def test_a_waiting_request_is_answered_at_the_end_of_the_turn(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        turn = await api.turn(await api.session())
        claim = await api.started()
        waiting = asyncio.create_task(api.seen(f"/v1/turns/{turn['id']}?wait_ms=60000"))
        await asyncio.sleep(0)
        await api.completed(claim, "the answer")
        assert (await waiting)["output"] == {"text": "the answer"}
        assert (await api.seen(f"/v1/turns/{turn['id']}?wait_ms=60000"))["status"] == "completed"

    serve(tmp_path, work)


def test_a_wait_that_is_over_shows_the_turn_as_it_is(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        turn = await api.turn(await api.session())
        assert (await api.seen(f"/v1/turns/{turn['id']}?wait_ms=5"))["status"] == "queued"

    serve(tmp_path, work)


def test_a_stopping_server_answers_long_waits_at_once(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        turn = await api.turn(await api.session())
        waiting = asyncio.create_task(api.seen(f"/v1/turns/{turn['id']}?wait_ms=60000"))
        await asyncio.sleep(0)
        api.deps.streams.drain()
        assert (await waiting)["status"] == "queued"

    serve(tmp_path, work)


def test_canceling_tells_a_queued_a_running_and_an_ended_turn_apart(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        running, queued = await api.turn(session_id), await api.turn(session_id)
        await api.started()
        asked = await api.client.post(f"/v1/turns/{running['id']}/cancel", json={"reason": "late"})
        assert asked.status_code == 202
        assert asked.json()["cancel_requested_at"] is not None
        ended = await api.client.post(f"/v1/turns/{queued['id']}/cancel")
        assert (ended.status_code, ended.json()["status"]) == (200, "canceled")
        again = await api.client.post(f"/v1/turns/{queued['id']}/cancel", json={"mode": "immediate"})
        assert (again.status_code, again.json()["last_sequence"]) == (200, ended.json()["last_sequence"])

    serve(tmp_path, work)


def test_a_waiting_turn_says_what_it_waits_for(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        running, waiting = await api.turn(session_id), await api.turn(session_id)
        await api.started()
        shown = await api.seen(f"/v1/turns/{waiting['id']}")
        assert shown["blocked_by"] == {"turn_id": running["id"], "reason": "running", "approval_ids": []}
        assert (await api.seen(f"/v1/turns/{running['id']}"))["blocked_by"] is None

    serve(tmp_path, work)


def test_a_submitted_value_is_shown_only_once_it_was_allowed_out(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        turn = await api.turn(await api.session(), output_schema={"type": "object"})
        claim = await api.started()
        error = {"instance_path": "", "schema_path": "/type", "keyword": "type", "message": "7 is not an object"}
        await api.store.submit(claim.fence, Submission(1, False, "7", (error,)), [])
        await api.store.submit(claim.fence, Submission(2, True, '{"n":1.0}', (), published=True), [])
        answer = await api.client.get(f"/v1/turns/{turn['id']}/submissions")
        withheld, shown = answer.json()["data"]
        assert (withheld["value"], withheld["errors"], withheld["withheld"]) == (None, [], True)
        assert '"value":{"n":1.0}' in answer.text
        assert shown["valid"] is True
        assert (await api.seen(f"/v1/turns/{turn['id']}"))["repair_attempts_left"] == 2

    serve(tmp_path, work)


def test_turns_are_listed_in_pages_that_meet(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id, other = await api.session(), await api.session()
        made = [(await api.turn(session_id))["id"] for _ in range(5)]
        await api.turn(other)
        found: list[str] = []
        after = ""
        while True:
            page = await api.seen(f"/v1/sessions/{session_id}/turns?limit=2{after}")
            found += [turn["id"] for turn in page["data"]]
            if not page["has_more"]:
                break
            after = f"&after={page['next_cursor']}"
        assert found == made[::-1]
        assert len((await api.seen("/v1/turns?order=asc"))["data"]) == 6

    serve(tmp_path, work)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ('{"$schema":"http://json-schema.org/draft-07/schema#"}', "/output_schema/$schema"),
        ('{"properties":{"a":{"$ref":"http://127.0.0.1:1/x"}}}', "/output_schema/properties/a/$ref"),
        ('{"type":"banana"}', "/output_schema/type"),
        ('{"description":"' + "x" * 65_536 + '"}', "/output_schema"),
        ("7", "/output_schema"),
    ],
)
def test_an_output_schema_that_cannot_be_used_is_refused_with_its_place(
    tmp_path: Path, schema: str, pointer: str
) -> None:
    async def work(api: Api) -> None:
        answer = await post_raw(api, await api.session(), f'{{"input":"hi","output_schema":{schema}}}')
        assert (answer.status_code, answer.json()["code"]) == (422, "output_schema_invalid")
        assert answer.json()["param"] == pointer

    serve(tmp_path, work)


def test_an_output_schema_that_takes_for_ever_is_refused_and_others_are_served(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        levels = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(30)}
        attack = {"$defs": {**levels, "d30": {}}, "$ref": "#/$defs/d0"}
        session_id = await api.session()
        path = f"/v1/sessions/{session_id}/turns"
        attacked = asyncio.create_task(api.refused("POST", path, json={"input": "hi", "output_schema": attack}))
        await api.turn(session_id, output_schema={"type": "object"})
        assert (await attacked)["code"] == "output_schema_invalid"

    serve(tmp_path, work)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/v1/turns/{UNKNOWN_TURN}"),
        ("GET", "/v1/turns/not-an-id"),
        ("GET", f"/v1/turns/{UNKNOWN_TURN}/submissions"),
        ("GET", f"/v1/turns/{UNKNOWN_TURN}/events"),
        ("GET", f"/v1/turns/{UNKNOWN_TURN}/events/stream"),
        ("POST", f"/v1/turns/{UNKNOWN_TURN}/cancel"),
        ("GET", f"/v1/sessions/{UNKNOWN_SESSION}"),
        ("GET", f"/v1/sessions/{UNKNOWN_SESSION}/turns"),
        ("GET", f"/v1/sessions/{UNKNOWN_SESSION}/events"),
        ("POST", f"/v1/sessions/{UNKNOWN_SESSION}/close"),
        ("GET", "/v1/agents/agt_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"),
        ("GET", "/v1/events/evt_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"),
    ],
)
def test_an_id_that_names_nothing_is_not_found(tmp_path: Path, method: str, path: str) -> None:
    async def work(api: Api) -> None:
        assert (await api.refused(method, path))["code"] == "not_found"

    serve(tmp_path, work)


def test_a_turn_in_an_unknown_session_is_not_found_and_in_a_closed_one_refused(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        assert (await post_raw(api, UNKNOWN_SESSION, '{"input":"hi"}')).status_code == 404
        session_id = await api.session()
        await api.made(f"/v1/sessions/{session_id}/close", {"mode": "drain"})
        refused = await post_raw(api, session_id, '{"input":"hi"}')
        assert (refused.status_code, refused.json()["code"]) == (409, "session_closed")

    serve(tmp_path, work)
