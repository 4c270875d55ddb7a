"""The operations of the OpenAPI document, requests by it and against it, and what is owed to each.

A request goes into the application itself, without a client between that would tidy it, and a stream is left as soon
as it has begun.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

from fastapi import FastAPI
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from tests.integration.described_values import ANY_JSON, Described, Json

from turnkeeper.acs.schemas import Validator

ANSWER_S: Final = 20
MAX_WAIT_MS: Final = 5
"""`wait_ms` is taken up to here: what else it may be is the same wait, longer."""

DESCRIBED_HEADERS: Final = frozenset(
    {
        "events-after",
        "idempotent-replayed",
        "location",
        "ratelimit-limit",
        "ratelimit-remaining",
        "ratelimit-reset",
        "request-id",
        "retry-after",
        "www-authenticate",
    }
)
"""What an answer may have only where its description says so."""

_METHODS = ("get", "post", "put", "patch", "delete")
_ODD_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=30)
_ODD_SEGMENTS = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=30)
_PLACE = re.compile(r"\{[a-z_]+\}")
_ODD_HEADERS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
_ODD_BODIES = st.binary(max_size=40) | st.sampled_from(
    [b"", b"[]", b'{"a":1,"a":2}', b'{"input":NaN}', b'{"input":"\\ud800"}', b"[" * 2_000, b'{"input":1e999}']
)


@dataclass(frozen=True)
class Operation:
    """One operation as the document describes it."""

    path: str
    method: str
    described: Json

    @property
    def name(self) -> str:
        return f"{self.method.upper()} {self.path}"

    @property
    def body(self) -> Json | None:
        content: Json = self.described.get("requestBody", {}).get("content", {})
        return content["application/json"]["schema"] if "application/json" in content else None

    @property
    def takes_files(self) -> bool:
        """Whether its body is something else than JSON."""
        return "requestBody" in self.described and self.body is None

    def parameters(self, place: str) -> dict[str, Json]:
        found = self.described.get("parameters", [])
        return {one["name"]: one["schema"] for one in found if one["in"] == place}


@dataclass(frozen=True)
class Request:
    """A request on its way, every part as text or bytes."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict[str, str])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    """What came back; the body of a stream is not read."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0]


def operations(document: Json) -> Iterator[Operation]:
    """Every operation of the document."""
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                yield Operation(path, method, methods[method])


def good(described: Described, operation: Operation) -> SearchStrategy[Request]:
    """Requests that the document describes, about things of which many exist."""

    places = {name: _ids(described, name, schema) for name, schema in operation.parameters("path").items()}
    query = _chosen(described, operation.parameters("query"))
    headers = _chosen(described, operation.parameters("header"))
    body = st.just(b"") if operation.body is None else described.of(operation.body).map(_encoded)

    @st.composite
    def requests(draw: DrawFn) -> Request:
        path = _PLACE.sub(lambda found: draw(places[found[0][1:-1]]), operation.path)
        return Request(operation.method, path, draw(query), draw(headers), draw(body))

    return requests()


def bad(described: Described, operation: Operation) -> SearchStrategy[Request]:
    """Requests of which one part is anything at all."""

    asked = good(described, operation)

    @st.composite
    def requests(draw: DrawFn) -> Request:
        request = draw(asked)
        parts = ["query", "header"] + ["path"] * ("{" in operation.path)
        match draw(st.sampled_from(parts + ["json", "bytes", "type"] * (operation.body is not None))):
            case "path":
                return replace(request, path=_PLACE.sub(lambda _: draw(_ODD_SEGMENTS), operation.path, count=1))
            case "query":
                names = st.sampled_from([*operation.parameters("query"), "unknown", "metadata[k]"])
                return replace(request, query={**_unhurried(request.query), draw(names): draw(_ODD_TEXTS)})
            case "header":
                names = st.sampled_from(("Idempotency-Key", "Last-Event-ID", "Accept", "Api-Version", "Authorization"))
                return replace(request, headers={**request.headers, draw(names): draw(_ODD_HEADERS)})
            case "json":
                return replace(request, body=_encoded(draw(ANY_JSON | _spoiled(request.body))))
            case "bytes":
                return replace(request, body=draw(_ODD_BODIES))
            case _:
                return replace(request, headers={**request.headers, "Content-Type": draw(_ODD_HEADERS)})

    return requests()


async def send(app: FastAPI, request: Request, secret: str) -> Answer:
    """What the application answers."""
    left, begun, parts = asyncio.Event(), list[Json](), list[bytes]()
    incoming = [{"type": "http.request", "body": request.body, "more_body": False}]

    async def receive() -> Json:
        if incoming:
            return incoming.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def take(message: Any) -> None:
        if message["type"] == "http.response.start":
            begun.append(message)
            if dict(message["headers"]).get(b"content-type", b"").startswith(b"text/event-stream"):
                left.set()
        else:
            parts.append(message.get("body", b""))

    async with asyncio.timeout(ANSWER_S):
        await app(_scope(request, secret), receive, take)
    (start,) = begun
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(parts))


def check_answer(document: Json, operation: Operation, answer: Answer) -> None:
    """Raises `AssertionError` or `SchemaViolation` for an answer that the operation does not describe."""
    assert answer.status < 500, (answer.status, answer.body)
    described: Json | None = operation.described["responses"].get(str(answer.status))
    assert described is not None, f"no word of {answer.status}: {answer.body[:300]!r}"
    _check_headers(document, described.get("headers", {}), answer)
    content: Json = described.get("content", {})
    if not content:
        assert answer.body == b""
        return
    assert answer.media_type in content or "*/*" in content, f"{answer.media_type} is not described"
    if answer.media_type.endswith("json") and "*/*" not in content:
        _validator(document, content[answer.media_type]["schema"]).check(json.loads(answer.body))


def _check_headers(document: Json, described: Json, answer: Answer) -> None:
    for name, header in described.items():
        said = answer.headers.get(name.lower())
        assert said is not None or not header.get("required"), f"{name} is missing from {answer.status}"
        if said is not None:
            schema = header["schema"]
            _validator(document, schema).check(int(said) if schema.get("type") == "integer" else said)
    known = {name.lower() for name in described}
    unknown = {name for name in answer.headers if name in DESCRIBED_HEADERS} - known
    assert not unknown, f"no word of {unknown} in {answer.status}"


def is_described(document: Json, operation: Operation, body: bytes) -> bool:
    """Whether a body is one that the operation's schema takes."""
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return False
    return operation.body is None or _validator(document, operation.body).is_valid(value)


def _validator(document: Json, schema: Json) -> Validator:
    return Validator({"components": document["components"], **schema}, {})


def _ids(described: Described, name: str, schema: Json) -> SearchStrategy[str]:
    if schema.get("type") == "integer":
        return st.integers(1, 3).map(str)
    prefixes = {"agent_id": "agt", "approval_id": "apr", "delivery_id": "whd", "endpoint_id": "whe"}
    prefix = prefixes.get(name) or {"session_id": "ses", "turn_id": "trn", "event_id": "evt"}.get(name, name[:3])
    return st.sampled_from((*described.ids.get(prefix, ()), f"{prefix}_{'0' * 26}"))


def _chosen(described: Described, parameters: dict[str, Json]) -> SearchStrategy[dict[str, str]]:
    """Any of the values, apart from those that only the server could have made."""
    values = {name: described.of(_spoken(schema)) for name, schema in parameters.items() if name != "stream_token"}
    chosen = st.fixed_dictionaries({}, optional=values)
    return chosen.map(lambda found: _unhurried(dict(_flat(found))))


def _flat(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Objects as the query has them: a value per member, its name in brackets."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield from ((f"{name}[{member}]", str(text)) for member, text in cast("Json", value).items())
        else:
            yield name, str(value)


def _spoken(schema: Json) -> Json:
    """What a query says of what a schema means: `title` and `type` of FastAPI, and no null."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return choices[0] if choices else schema


def _unhurried(query: dict[str, str]) -> dict[str, str]:
    waits = query.get("wait_ms", "0")
    return {**query, "wait_ms": str(min(int(waits), MAX_WAIT_MS))} if "wait_ms" in query else query


def _spoiled(body: bytes) -> SearchStrategy[Any]:
    """A body that was good, with one member gone, changed or added."""
    value: Json = json.loads(body or b"{}")
    names = st.sampled_from([*value, "unknown"])

    def spoil(name: str, other: Any, *, gone: bool) -> Json:
        kept = {member: found for member, found in value.items() if member != name}
        return kept if gone else {**kept, name: other}

    return st.builds(spoil, names, ANY_JSON, gone=st.booleans())


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def _scope(request: Request, secret: str) -> Json:
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json", **request.headers}
    if not request.body and request.method in {"get", "delete"}:
        headers.pop("Content-Type")
    headers["Content-Length"] = str(len(request.body))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method.upper(),
        "scheme": "http",
        "path": request.path,
        "raw_path": quote(request.path).encode(),
        "root_path": "",
        "query_string": urlencode(request.query).encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("turnkeeper", 80),
    }
