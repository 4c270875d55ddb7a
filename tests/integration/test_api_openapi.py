"""The OpenAPI document: whole, and true of what is answered."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.api_door import AGENT, Api, Json, serve

from turnkeeper.acs.schemas import SchemaViolation, Validator

METHODS = {"get", "post", "put", "patch", "delete"}


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Every operation with its path and method."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method in METHODS:
                yield path, method, operation


def references(value: Any) -> Iterator[str]:
    """Every `$ref` in a document."""
    if isinstance(value, dict):
        for name, member in value.items():  # pyright: ignore[reportUnknownVariableType]
            if name == "$ref" and isinstance(member, str):
                yield member
            else:
                yield from references(member)
    elif isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from references(item)


def component(document: Json, name: str) -> Validator:
    """A validator of one component."""
    return Validator({**document, "$ref": f"#/components/schemas/{name}"}, {})


BODILESS = ("/test", "/archive", "/requeue", "/webhook_deliveries/{delivery_id}/retry")
"""Requests that say everything with their path."""


def test_every_reference_leads_somewhere_and_every_operation_is_described(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        document = await api.seen("/openapi.json")
        components = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert set(references(document)) <= components
        for path, method, operation in operations(document):
            assert operation["summary"], path
            assert operation["description"], path
            assert path.startswith("/v1/") == ("security" in operation), path
            takes_body = method in {"post", "patch", "put"} and not path.endswith(BODILESS)
            assert ("requestBody" in operation) == takes_body, path
            assert "HTTPValidationError" not in str(operation), path

    serve(tmp_path, work)


def test_what_is_answered_is_what_is_described(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        document = await api.seen("/openapi.json")
        session_id = await api.session()
        queued = await api.turn(session_id, output_schema={"type": "object"}, budget={"max_model_calls": 2})
        path = f"/v1/turns/{queued['id']}"
        answers = [("Turn", queued)]
        await api.completed(await api.started(), result_json="{}")
        answers += [
            ("Turn", await api.seen(path)),
            ("TurnList", await api.seen("/v1/turns")),
            ("AgentList", await api.seen("/v1/agents")),
            ("SessionList", await api.seen("/v1/sessions")),
            ("EventList", await api.seen(f"{path}/events")),
            ("SubmissionList", await api.seen(f"{path}/submissions")),
            ("Health", await api.seen("/healthz")),
            ("Readiness", await api.seen("/readyz")),
            ("Problem", await api.refused("POST", "/v1/agents", json={})),
        ]
        for name, answer in answers:
            component(document, name).check(answer)

    serve(tmp_path, work)


def test_what_is_described_is_what_is_taken(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        document = await api.seen("/openapi.json")
        bodies: tuple[tuple[str, Json, bool], ...] = (
            ("NewAgent", AGENT, True),
            ("NewAgent", {**AGENT, "name": " "}, False),
            ("NewAgent", {**AGENT, "limits": {"timeout_ms": 0}}, False),
            ("NewAgent", {**AGENT, "mcp_servers": ["x"]}, False),
            ("NewAgent", {**AGENT, "tools": ["shell", "shell"]}, False),
        )
        for name, body, good in bodies:
            taken = (await api.client.post("/v1/agents", json=body)).status_code == 201
            assert (taken, described(document, name, body)) == (good, good)

    serve(tmp_path, work)


def described(document: Json, name: str, body: Json) -> bool:
    try:
        component(document, name).check(body)
    except SchemaViolation:
        return False
    return True
