"""What stands before every route: keys, ids, versions, media types, limits, and what is not built."""

from collections.abc import AsyncIterator
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.integration.api_door import AGENT, Api, serve

from turnkeeper.acs.strictjson import member_slices
from turnkeeper.api.deps import ApiSettings
from turnkeeper.api.unbuilt import AGENT_FIELDS, ENDPOINTS, RESOURCES, SESSION_FIELDS, TURN_FIELDS
from turnkeeper.ids import is_id

BUILT_PATHS = (
    ("GET", "/v1/agents"),
    ("POST", "/v1/agents"),
    ("GET", "/v1/sessions"),
    ("GET", "/v1/turns/trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"),
    ("GET", "/v1/events/evt_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"),
    ("GET", "/v1/sessions/ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB/events/stream"),
    ("GET", "/v1/approvals"),
    ("GET", "/v1/nothing"),
)


@pytest.mark.parametrize(("method", "path"), BUILT_PATHS)
@pytest.mark.parametrize("header", [None, "", "tk_x", "Basic dXNlcg==", "Bearer tk_" + "a" * 43, "Bearer \xff"])
def test_without_a_known_key_nothing_is_served(tmp_path: Path, method: str, path: str, header: str | None) -> None:
    async def work(api: Api) -> None:
        del api.client.headers["Authorization"]
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        problem = await api.refused(method, path, headers=headers)
        assert (problem["status"], problem["code"]) == (401, "key_invalid")
        assert "turnkeeper keys create" in problem["hint"]

    serve(tmp_path, work)


def test_a_revoked_key_is_refused(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        await api.store.revoke_key(api.key.id)
        assert (await api.refused("GET", "/v1/agents"))["code"] == "key_invalid"

    serve(tmp_path, work)


def test_a_browser_with_a_made_up_stream_token_is_refused(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        del api.client.headers["Authorization"]
        path = "/v1/sessions/ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB/events/stream?stream_token=x"
        assert (await api.refused("GET", path))["code"] == "key_invalid"

    serve(tmp_path, work)


def test_health_readiness_schemas_and_openapi_need_no_key(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        del api.client.headers["Authorization"]
        assert await api.seen("/healthz") == {"status": "ok"}
        assert await api.seen("/readyz") == {
            "ready": True,
            "stopping": False,
            "draining": False,
            "checks": {"store": True},
            "counters": {"dead_letters": 0},
        }
        assert "/v1/sessions/{session_id}/turns" in (await api.seen("/openapi.json"))["paths"]

    serve(tmp_path, work)


def test_a_stopping_server_is_not_ready(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        api.deps.streams.drain()
        answer = await api.client.get("/readyz")
        assert (answer.status_code, answer.json()["ready"]) == (503, False)

    serve(tmp_path, work)


def test_the_founding_schemas_are_served_byte_for_byte(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        shipped = {
            "turn.completed.json": files("turnkeeper.events").joinpath("schemas", "turn.completed.json"),
            "turn-end.json": files("turnkeeper.acs").joinpath("schemas", "v0_1_0", "hooks", "turn-end.json"),
        }
        for name, file in shipped.items():
            answer = await api.client.get(f"/schemas/2026-12-01/{name}")
            assert sha256(answer.content).digest() == sha256(file.read_bytes()).digest()
            assert answer.headers["content-type"] == "application/schema+json"

    serve(tmp_path, work)


@pytest.mark.parametrize(
    "path",
    ["/schemas/2026-12-01/nope.json", "/schemas/2020-01-01/usage.json", "/schemas/2026-12-01/%2e%2e%2fcatalogue.py"],
)
def test_a_schema_that_is_not_served_is_not_found(tmp_path: Path, path: str) -> None:
    async def work(api: Api) -> None:
        assert (await api.refused("GET", path))["code"] == "not_found"

    serve(tmp_path, work)


def test_every_answer_has_an_id_and_the_correlation_id_comes_back(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        for path in ("/healthz", "/v1/agents", "/v1/turns/x", "/nowhere"):
            answer = await api.client.get(path, headers={"X-Correlation-Id": "order-4711"})
            assert is_id(answer.headers["Request-Id"], "req")
            assert answer.headers["X-Correlation-Id"] == "order-4711"
        problem = await api.refused("GET", "/healthz", headers={"X-Correlation-Id": "a b"})
        assert (problem["code"], problem["param"]) == ("invalid_field", "X-Correlation-Id")

    serve(tmp_path, work)


def test_another_version_or_form_of_events_is_refused(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        assert (await api.client.get("/v1/agents", headers={"Api-Version": "2026-12-01"})).status_code == 200
        problem = await api.refused("GET", "/v1/agents", headers={"Api-Version": "2019-01-01"})
        assert problem["code"] == "api_version_unknown"
        problem = await api.refused("GET", "/v1/agents", headers={"Accept": "application/cloudevents+json"})
        assert (problem["code"], problem["param"]) == ("not_supported_yet", "Accept")

    serve(tmp_path, work)


def test_every_endpoint_that_is_not_built_is_named(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        calls = [(method, path.replace("{}", "x")) for method, path in ENDPOINTS]
        calls += [(method, f"/v1/{resource}") for resource in RESOURCES for method in ("GET", "POST")]
        for method, path in calls:
            problem = await api.refused(method, path)
            assert (problem["status"], problem["code"]) == (422, "not_supported_yet")
            assert path in problem["detail"]

    serve(tmp_path, work)


def test_a_wrong_method_is_told_which_ones_there_are(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        answer = await api.client.put("/v1/agents", json={})
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, POST")
        assert (await api.refused("POST", "/healthz"))["code"] == "method_not_allowed"
        assert (await api.refused("GET", "/v1/nothing"))["code"] == "not_found"

    serve(tmp_path, work)


def test_every_field_that_is_not_built_is_named(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        agent_id = (await api.seen("/v1/agents"))["data"][0]["id"]
        bodies: tuple[tuple[str, dict[str, Any], Any], ...] = (
            ("/v1/agents", AGENT, AGENT_FIELDS),
            ("/v1/sessions", {"agent_id": agent_id}, SESSION_FIELDS),
            (f"/v1/sessions/{session_id}/turns", {"input": "hi"}, TURN_FIELDS),
        )
        for path, body, unbuilt in bodies:
            for field in unbuilt:
                problem = await api.refused("POST", path, json={**body, field: "something else"})
                assert (problem["status"], problem["code"]) == (422, "not_supported_yet")
                assert problem["param"] == f"/{field}"

    serve(tmp_path, work)


def test_a_key_where_nothing_is_made_is_refused_rather_than_ignored(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        path = f"/v1/sessions/{await api.session()}/stream_tokens"
        problem = await api.refused("POST", path, json={}, headers={"Idempotency-Key": "k"})
        assert (problem["code"], problem["param"]) == ("not_supported_yet", "Idempotency-Key")

    serve(tmp_path, work)


def test_an_agent_keeps_what_it_was_made_of(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        body = '{"name":"a","model":{"provider":"stub","id":"m","params":{"temperature":0.5}},"metadata":{"v":1.0}}'
        answer = await api.client.post("/v1/agents", content=body, headers={"Content-Type": "application/json"})
        agent = answer.json()
        assert answer.status_code == 201
        assert (agent["version"], agent["tools"], agent["instructions"]) == (1, [], "")
        assert agent["model"] == {"provider": "stub", "id": "m", "params": {"temperature": 0.5}}
        assert member_slices(answer.text)["metadata"] == '{"v":1.0}'
        assert (await api.client.get(answer.headers["Location"])).text == answer.text

    serve(tmp_path, work)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"name": ""}, "/name"),
        ({"name": "a\nb"}, "/name"),
        ({"model": None}, "/model"),
        ({"model": {"provider": "stub"}}, "/model/id"),
        ({"model": {"provider": "nobody", "id": "m"}}, "/model/provider"),
        ({"model": {"provider": "stub", "id": "m", "params": {"stream": True}}}, "/model/params/stream"),
        ({"model": {"provider": "stub", "id": "m", "params": {"temperature": 2**70}}}, "/model/params"),
        ({"tools": ["shell", "rm"]}, "/tools"),
        ({"tools": ["shell", "shell"]}, "/tools"),
        ({"limits": {"timeout_ms": 0}}, "/limits/timeout_ms"),
        ({"limits": {"max_attempts": 6}}, "/limits/max_attempts"),
        ({"metadata": {"a": "x" * 20_000}}, "/metadata"),
        ({"nmae": "x"}, "/nmae"),
    ],
)
def test_an_agent_that_could_not_run_is_refused(tmp_path: Path, change: dict[str, Any], param: str) -> None:
    async def work(api: Api) -> None:
        assert (await api.refused("POST", "/v1/agents", json={**AGENT, **change}))["param"] == param

    serve(tmp_path, work)


def test_an_unknown_provider_is_answered_with_those_there_are(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        body = {**AGENT, "model": {"provider": "nobody", "id": "m"}}
        assert "configured: stub" in (await api.refused("POST", "/v1/agents", json=body))["detail"]

    serve(tmp_path, work)


def test_a_session_is_idle_busy_closing_and_listed_by_agent(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        first, _ = await api.session(title="T", budget={"max_model_calls": 3}), await api.session()
        shown = await api.seen(f"/v1/sessions/{first}")
        assert (shown["status"], shown["title"], shown["budget"]) == ("idle", "T", {"max_model_calls": 3})
        await api.turn(first)
        assert (await api.seen(f"/v1/sessions/{first}"))["status"] == "busy"
        assert (await api.made(f"/v1/sessions/{first}/close"))["status"] == "closing"
        listed = await api.seen(f"/v1/sessions?agent_id={shown['agent_id']}")
        assert [session["id"] for session in listed["data"]] == [first]

    serve(tmp_path, work)


def test_events_are_listed_in_order_by_sequence_or_cursor(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        turn = await api.turn(session_id)
        await api.completed(await api.started())
        path = f"/v1/sessions/{session_id}/events"
        first = await api.seen(f"{path}?limit=2")
        rest = await api.seen(f"{path}?limit=1000&after={first['next_cursor']}")
        assert [event["sequence"] for event in first["data"] + rest["data"]] == [1, 2, 3, 4, 5, 6, 7]
        assert [event["sequence"] for event in (await api.seen(f"{path}?after=5"))["data"]] == [6, 7]
        assert len((await api.seen(f"{path}?turn_id={turn['id']}"))["data"]) == 4
        assert len((await api.seen(f"{path}?types=turn.queued,turn.completed"))["data"]) == 2
        assert await api.seen(f"/v1/events/{first['data'][0]['id']}") == first["data"][0]

    serve(tmp_path, work)


def test_a_cursor_of_one_list_is_refused_by_another(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        await api.turn(session_id)
        cursor = (await api.seen(f"/v1/sessions/{session_id}/events?limit=1"))["next_cursor"]
        other = f"/v1/sessions/{await api.session()}/events?after={cursor}"
        assert (await api.refused("GET", other))["code"] == "cursor_invalid"

    serve(tmp_path, work)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Content-Type": "text/plain"}, "media_type_unsupported"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "media_type_unsupported"),
        ({"Content-Type": "application/json; charset=latin-1"}, "media_type_unsupported"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, "media_type_unsupported"),
    ],
)
def test_a_body_of_another_kind_is_refused(tmp_path: Path, headers: dict[str, str], code: str) -> None:
    async def work(api: Api) -> None:
        assert (await api.refused("POST", "/v1/agents", content=b"{}", headers=headers))["code"] == code

    serve(tmp_path, work)


def test_a_body_over_the_limit_is_refused_with_and_without_its_length(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    async def work(api: Api) -> None:
        headers = {"Content-Type": "application/json"}
        for content in (b" " * 2_000, chunks()):
            problem = await api.refused("POST", "/v1/agents", content=content, headers=headers)
            assert (problem["status"], problem["code"]) == (413, "body_too_large")
            assert "1000" in problem["hint"]

    serve(tmp_path, work, ApiSettings(max_body_bytes=1_000))


def test_an_unexpected_error_is_logged_once_and_told_to_nobody(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        async def explode() -> None:
            raise ZeroDivisionError("the password is hunter2")

        api.app.add_api_route("/explode", explode)
        with capture_logs() as logs:
            problem = await api.refused("GET", "/explode")
        assert (problem["status"], problem["code"]) == (500, "internal_error")
        assert "hunter2" not in str(problem)
        [entry] = [log for log in logs if log["event"] == "request_failed"]
        assert entry["request_id"] == problem["request_id"]
        assert api.secret not in str(entry)

    serve(tmp_path, work)


def test_a_problem_type_is_a_page_that_is_served(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        problem = await api.refused("GET", "/v1/nothing")
        answer = await api.client.get(problem["type"])
        assert (answer.status_code, problem["title"] in answer.text) == (200, True)
        assert (await api.client.get("/problems/nope")).status_code == 404

    serve(tmp_path, work)
