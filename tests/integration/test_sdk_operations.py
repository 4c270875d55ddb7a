"""The SDK and the OpenAPI document: what one has the other has, save for what is named here."""

import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import httpx
import pytest
from tests.integration.api_door import Api, Json, serve
from tests.integration.test_api_openapi import operations

from turnkeeper.client import Agent, Artifact, File, Retries, Session, Turn, Turnkeeper
from turnkeeper.client.turn_api.connection_blocking import Connection

WITHOUT_A_METHOD: Final = {
    ("GET", "/healthz"): "asked by load balancers, without a key",
    ("GET", "/readyz"): "asked by load balancers, without a key",
}
QUERY_LEFT_OUT: Final = {
    "stream": "a turn is posted and followed by two requests, so that a connection lost between them loses nothing",
    "stream_token": "for browsers; whoever has a key needs none",
    "turn_id": "a turn lists and streams its own events",
}
AT = datetime(2026, 12, 1, tzinfo=UTC)
ANSWER: Final[Json] = {
    "id": "x_1",
    "session_id": "ses_1",
    "status": "completed",
    "last_sequence": 0,
    "first_sequence": 1,
    "data": [{"id": "x_1", "status": "completed"}],
    "has_more": False,
}
CONTENT: Final = b"bytes"
STORED: Final[Json] = {"id": "x_1", "sha256": hashlib.sha256(CONTENT).hexdigest()}
VALUES: Final[Mapping[str, Any]] = {
    "content": CONTENT,
    "what": File(STORED),
    "agent": Agent({"id": "x_1", "version": 1}),
    "metadata": {"k": "v"},
    "input": "hi",
    "changes": {"title": "x"},
    "limits": {"max_turns": 1},
    "model": {"provider": "p", "id": "m"},
    "scope": {"type": "project"},
    "prices": [],
    "types": ["turn.started"],
    "since": AT,
    "until": AT,
    "created_after": AT,
    "created_before": AT,
    "start_by": AT,
    "expires_at": AT,
    "hosts": ["api.example.com"],
    "limit": 1,
    "after": 1,
    "version": 1,
    "timeout_ms": 1_000,
    "overlap_hours": 1,
    "order": "asc",
    "deltas": True,
    "extra": None,
}


Asked: TypeAlias = tuple[str, str, frozenset[str]]
"""A request: its method, its path, and the names of its query values and headers."""


@dataclass
class Recorder:
    """A server that grants everything and remembers what it was asked."""

    seen: list[Asked] = field(default_factory=list[Asked])

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Notes the request."""
        names = {
            *(name.partition("[")[0] for name in request.url.params),
            *(name for name in ("Idempotency-Key", "Last-Event-ID") if name in request.headers),
        }
        self.seen.append((request.method, request.url.path, frozenset(names)))
        if request.headers.get("accept") == "text/event-stream":
            return httpx.Response(204)
        if request.url.path.endswith("/content"):
            return httpx.Response(200, content=CONTENT)
        return httpx.Response(200, json=ANSWER)


def methods_of(value: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods, by their names."""
    for name, _ in inspect.getmembers(type(value), inspect.isfunction):
        if not name.startswith("_"):
            yield f"{type(value).__name__}.{name}", getattr(value, name)


def called(method: Callable[..., Any]) -> None:
    """Calls the method with a value for everything it takes, and reads what it gives to the end."""
    parameters = inspect.signature(method).parameters.values()
    values = {each.name: VALUES.get(each.name, "x_1") for each in parameters}
    given = [values[each.name] for each in parameters if each.kind is not each.KEYWORD_ONLY]
    answer = method(*given, **{each.name: values[each.name] for each in parameters if each.kind is each.KEYWORD_ONLY})
    if inspect.isgenerator(answer) or type(answer).__name__ == "EventStream":
        list(answer)


def requests_by_method() -> dict[str, list[Asked]]:
    """What every method of the SDK asks a server for."""
    recorder, found = Recorder(), dict[str, list[Asked]]()
    http = httpx.Client(transport=httpx.MockTransport(recorder.answer))
    with http, Turnkeeper("http://server", "k", http=http) as turnkeeper:
        connection = Connection("http://server", "k", retries=Retries(), http=http)
        handles = [Turn({**ANSWER, "status": "running"}, connection), Session(ANSWER, connection)]
        for value in [*vars(turnkeeper).values(), *handles]:
            for name, method in methods_of(value):
                if not isinstance(value, Connection):
                    recorder.seen = []
                    called(method)
                    found[name] = recorder.seen
        recorder.seen = []
        turnkeeper.files.download(Artifact(STORED))
        found["Files.download of an artifact"] = recorder.seen
    return found


def described(document: Json) -> dict[tuple[str, str], frozenset[str]]:
    """The operations, each with the names of its query values and headers."""
    return {
        (method.upper(), path): frozenset(
            each["name"] for each in operation.get("parameters", ()) if each["in"] != "path"
        )
        for path, method, operation in operations(document)
    }


def operation_of(asked: Asked, known: Mapping[tuple[str, str], frozenset[str]]) -> tuple[str, str] | None:
    """The operation that a request is for. The recorder's ids hold an underscore and a digit, so no word of a path."""
    for method, path in known:
        if method == asked[0] and re.fullmatch(re.sub(r"\{\w+\}", r"(\\w+_[0-9]|[0-9]+)", path), asked[1]):
            return method, path
    return None


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], frozenset[str]]:
    """What the document has."""
    found: list[Json] = []

    async def work(api: Api) -> None:
        found.append(await api.seen("/openapi.json"))

    serve(tmp_path_factory.mktemp("server"), work)
    return described(found[0])


@pytest.fixture(scope="module")
def methods() -> dict[str, list[Asked]]:
    """What the SDK asks for."""
    return requests_by_method()


def test_every_method_of_the_sdk_asks_for_an_operation_that_is_described(
    methods: dict[str, list[Asked]], known: dict[tuple[str, str], frozenset[str]]
) -> None:
    for name, seen in methods.items():
        assert seen, f"{name} asks for nothing"
        for asked in seen:
            operation = operation_of(asked, known)
            assert operation is not None, f"{name} asks for {asked}"
            assert asked[2] <= known[operation], f"{name} sends what {operation} does not take"


def test_every_operation_has_a_method_in_the_sdk_or_a_reason(
    methods: dict[str, list[Asked]], known: dict[tuple[str, str], frozenset[str]]
) -> None:
    reached = {operation_of(asked, known) for seen in methods.values() for asked in seen}
    assert known.keys() - reached == WITHOUT_A_METHOD.keys()


def test_whatever_makes_something_is_sent_under_a_key(
    methods: dict[str, list[Asked]], known: dict[tuple[str, str], frozenset[str]]
) -> None:
    """Contract 9: so that a lost answer is asked for again and nothing is made twice."""
    for name, seen in methods.items():
        for asked in seen:
            operation = operation_of(asked, known)
            assert operation is not None
            takes = "Idempotency-Key" in known[operation]
            assert ("Idempotency-Key" in asked[2]) == takes, f"{name}: {operation}"


def test_every_query_value_can_be_given_to_the_sdk_or_has_a_reason(
    methods: dict[str, list[Asked]], known: dict[tuple[str, str], frozenset[str]]
) -> None:
    sent: dict[tuple[str, str] | None, set[str]] = {}
    for asked in (each for seen in methods.values() for each in seen):
        sent.setdefault(operation_of(asked, known), set()).update(asked[2])
    paging = {"after", "limit"}
    missing = {
        name
        for operation, names in known.items()
        if operation not in WITHOUT_A_METHOD
        for name in names - sent[operation] - paging
    }
    assert missing == QUERY_LEFT_OUT.keys()
