"""The Guardian's own HTTP API under `/guardian/v1`: read what was decided, answer for an approver.

Answers for who may do what (API keys with scopes), for bounded pages and bodies, and for problem+json. Must never let
somebody answer a question who has not shown a key that may, nor what a caller sends become a fault of ours.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar, cast
from urllib.parse import parse_qsl

import orjson
import structlog

from turnkeeper.acs import JsonLimits, JsonRejected, parse_object
from turnkeeper.clock import Clock, epoch_ms
from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.apikeys import DECIDE, READ, GuardianKey, is_secret, secret_sha256
from turnkeeper.guardian.approvals import MAX_NOTE_CHARACTERS, WITHDRAW, ApprovalAnswer, ApprovalStatus, ApprovalStore
from turnkeeper.guardian.http import AsgiApp, Receive, Scope, Send
from turnkeeper.guardian.ports import SessionSummary, StoredEntry, StoredFinding, TurnSummary
from turnkeeper.guardian.problems import ProblemRefused, problem_of, render_problem
from turnkeeper.guardian.views import approval_view, entry_view, finding_view, input_of, session_view, turn_view

ADMIN_PREFIX: Final = "/guardian/v1"
DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 100
MAX_BODY_BYTES: Final = 16_384
BODY_TIMEOUT_S: Final = 10.0
MAX_AT_ONCE: Final = 4
"""Requests that read or write the store at one time; the others wait."""

_MAX_ID_CHARACTERS = 64
_ID_CHARACTERS = frozenset("0123456789abcdefABCDEF-")
_LIMITS = JsonLimits(max_bytes=MAX_BODY_BYTES, max_depth=8)
_ANSWER_MEMBERS = ("decision", "scope", "note", "input_hash")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_log = structlog.get_logger(__name__)


class AdminStore(ApprovalStore, Protocol):
    """What the API reads and writes. Every call blocks."""

    def key_of_secret(self, sha256: str) -> GuardianKey | None:
        """The key with this secret."""
        ...

    def sessions(self, *, after: str, limit: int) -> Sequence[SessionSummary]:
        """Sessions by id."""
        ...

    def session(self, session_id: str) -> SessionSummary | None:
        """One session."""
        ...

    def turns(self, session_id: str, *, after: int, limit: int) -> Sequence[TurnSummary]:
        """A session's turn windows."""
        ...

    def entries(self, session_id: str, *, after: int, limit: int) -> Sequence[StoredEntry]:
        """A session's chain."""
        ...

    def findings(self, session_id: str, *, after: int, limit: int) -> Sequence[StoredFinding]:
        """What an auditor should see of a session."""
        ...

    def request(self, session_id: str, request_id: str) -> bytes | None:
        """A request as it was received."""
        ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that was let in."""

    parts: tuple[str, ...]
    query: Mapping[str, str]
    body: bytes
    key: GuardianKey


def admin_app(store: AdminStore, clock: Clock) -> AsgiApp:
    """An ASGI application for every path under `ADMIN_PREFIX`."""
    room = asyncio.Semaphore(MAX_AT_ONCE)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            document = await _serve(scope, receive, store, clock, room)
        except TurnkeeperError as error:
            await render_problem(problem_of(error), send)
        except Exception:  # noqa: BLE001  the request handler
            _log.exception("guardian_admin_failed", path=str(scope["path"])[:200])
            await render_problem(problem_of(None), send)
        else:
            await _respond(send, orjson.dumps(document))

    return app


async def _serve(
    scope: Scope, receive: Receive, store: AdminStore, clock: Clock, room: asyncio.Semaphore
) -> Mapping[str, object]:
    parts = tuple(str(scope["path"]).removeprefix(ADMIN_PREFIX).strip("/").split("/"))
    decides = parts[0] == "approvals" and parts[2:] == ("decision",)
    if scope["method"] != ("POST" if decides else "GET"):
        raise ProblemRefused("method_not_allowed", f"This path takes {'POST' if decides else 'GET'}.")
    needed = DECIDE if decides else READ
    key = await _in_thread(room, partial(_authenticated, dict(scope["headers"]), store, needed))
    asked = _Asked(parts, _query(scope), await _body(receive) if decides else b"", key)
    return await _in_thread(room, partial(_answer, asked, store, epoch_ms(clock.now())))


def _answer(asked: _Asked, store: AdminStore, now_ms: int) -> Mapping[str, object]:
    match asked.parts:
        case ("sessions",):
            document = _sessions(asked, store)
        case ("sessions", session_id):
            document = session_view(_session(store, session_id))
        case ("sessions", session_id, "turns" | "entries" | "findings" as name):
            document = _part(asked, store, _session(store, session_id).session_id, name)
        case ("approvals",):
            document = _approvals(asked, store, now_ms)
        case ("approvals", approval_id):
            document = _approval(store, approval_id, now_ms)
        case ("approvals", approval_id, "decision"):
            document = _decide(asked, store, approval_id, now_ms)
        case _:
            raise ProblemRefused("not_found", f"The Guardian has no such path under {ADMIN_PREFIX}.")
    return document


def _part(asked: _Asked, store: AdminStore, session_id: str, name: str) -> Mapping[str, object]:
    if name == "turns":
        return _numbered(asked, partial(store.turns, session_id), lambda turn: turn.ordinal, turn_view)
    if name == "entries":
        return _numbered(asked, partial(store.entries, session_id), lambda entry: entry.recorded, entry_view)
    return _numbered(asked, partial(store.findings, session_id), lambda finding: finding.id, finding_view)


def _sessions(asked: _Asked, store: AdminStore) -> Mapping[str, object]:
    limit, after = _page(asked, "after")
    if after:
        _check_id(after, "after")
    found = store.sessions(after=after, limit=limit + 1)
    return _list([session_view(one) for one in found[:limit]], found[limit - 1].session_id if found[limit:] else None)


def _session(store: AdminStore, session_id: str) -> SessionSummary:
    _check_id(session_id, "session_id")
    found = store.session(session_id)
    if found is None:
        raise ProblemRefused("not_found", "There is no such session.")
    return found


class _Numbered(Protocol[_T_co]):
    """A list whose elements have numbers."""

    def __call__(self, *, after: int, limit: int) -> Sequence[_T_co]:
        """A page."""
        ...


def _numbered(
    asked: _Asked, fetch: _Numbered[_T], number: Callable[[_T], int], view: Callable[[_T], Mapping[str, object]]
) -> Mapping[str, object]:
    limit, after = _page(asked, "after")
    found = fetch(after=_number(after or "0", "after"), limit=limit + 1)
    return _list([view(one) for one in found[:limit]], str(number(found[limit - 1])) if found[limit:] else None)


def _approvals(asked: _Asked, store: AdminStore, now_ms: int) -> Mapping[str, object]:
    limit, after = _page(asked, "after", "status")
    status = asked.query.get("status")
    if status is not None and status not in tuple(ApprovalStatus):
        raise ProblemRefused("invalid_field", f"status is not one of {', '.join(ApprovalStatus)}.", "status")
    found = store.approvals(
        status=None if status is None else ApprovalStatus(status),
        after=_number(after or "0", "after"),
        limit=limit + 1,
        now_ms=now_ms,
    )
    shown = [approval_view(approval, now_ms) for _, approval in found[:limit]]
    return _list(shown, str(found[limit - 1][0]) if found[limit:] else None)


def _approval(store: AdminStore, approval_id: str, now_ms: int) -> Mapping[str, object]:
    _check_id(approval_id, "approval_id")
    approval = store.approval(approval_id)
    if approval is None:
        raise ProblemRefused("not_found", "There is no such approval.")
    request = store.request(approval.session_id, approval.request_id)
    return approval_view(approval, now_ms) | {"input": input_of(request)}


def _decide(asked: _Asked, store: AdminStore, approval_id: str, now_ms: int) -> Mapping[str, object]:
    _check_id(approval_id, "approval_id")
    answer, approver = _read_answer(asked.body), asked.key.approver
    if answer.decision == WITHDRAW:
        result = store.withdraw(approval_id, approver, answer.note, now_ms)
    else:
        result = store.decide(approval_id, answer, approver, now_ms)
    if result is None:
        raise ProblemRefused("not_found", "There is no such approval.")
    return approval_view(result, now_ms)


def _read_answer(body: bytes) -> ApprovalAnswer:
    try:
        members = parse_object(body, _LIMITS)
    except JsonRejected as rejected:
        raise ProblemRefused("invalid_json", f"The body is not a usable JSON object: {rejected.message}.") from rejected
    for name, value in members.items():
        if name not in _ANSWER_MEMBERS:
            raise ProblemRefused("unknown_field", f"{name[:100]!r} is not one of {', '.join(_ANSWER_MEMBERS)}.")
        if not isinstance(value, str) or len(value) > MAX_NOTE_CHARACTERS:
            raise ProblemRefused("invalid_field", f"{name} is not a text of {MAX_NOTE_CHARACTERS} characters.", name)
    if "decision" not in members:
        raise ProblemRefused("invalid_field", "decision is missing: approve, deny or withdraw.", "decision")
    return ApprovalAnswer(**cast("dict[str, str]", members))


def _authenticated(headers: Mapping[bytes, bytes], store: AdminStore, scope: str) -> GuardianKey:
    scheme, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not is_secret(secret):
        raise ProblemRefused("key_invalid", "The Authorization header is not `Bearer` with a key secret.")
    key = store.key_of_secret(secret_sha256(secret))
    if key is None or key.revoked_at_ms is not None:
        raise ProblemRefused("key_invalid", "This API key is not known here or was revoked.")
    if scope not in key.scopes:
        raise ProblemRefused("scope_missing", f"This API key does not have the scope {scope}.")
    return key


def _query(scope: Scope) -> Mapping[str, str]:
    raw = cast("bytes", scope["query_string"]).decode("latin-1")
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, max_num_fields=10, errors="strict")
    except ValueError as error:
        raise ProblemRefused("invalid_field", "The query cannot be read.") from error
    query = dict(pairs)
    if len(query) != len(pairs):
        raise ProblemRefused("invalid_field", "A query value is given twice.")
    return query


def _page(asked: _Asked, *known: str) -> tuple[int, str]:
    for name in asked.query:
        if name not in ("limit", *known):
            raise ProblemRefused("unknown_field", f"{name[:100]!r} is not a query value of this path.")
    limit = _number(asked.query.get("limit", str(DEFAULT_LIMIT)), "limit")
    if not 1 <= limit <= MAX_LIMIT:
        raise ProblemRefused("invalid_field", f"limit is not from 1 to {MAX_LIMIT}.", "limit")
    return limit, asked.query.get("after", "")


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 16):
        raise ProblemRefused("invalid_field", f"{name} is not a whole number.", name)
    return int(text)


def _check_id(text: str, name: str) -> None:
    if not text or len(text) > _MAX_ID_CHARACTERS or not _ID_CHARACTERS.issuperset(text):
        raise ProblemRefused("not_found" if name != "after" else "invalid_field", f"{name} is no id.", name)


def _list(data: Sequence[Mapping[str, object]], cursor: str | None) -> Mapping[str, object]:
    return {"object": "list", "data": data, "has_more": cursor is not None, "next_cursor": cursor}


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ProblemRefused("invalid_json", "The body did not arrive.")
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    raise ProblemRefused("body_too_large", f"The body has more than {MAX_BODY_BYTES} bytes.")
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError as error:
        raise ProblemRefused("body_timeout", f"The body did not arrive within {BODY_TIMEOUT_S:g} s.") from error


async def _in_thread(room: asyncio.Semaphore, work: Callable[[], _T]) -> _T:
    async with room:
        return await asyncio.get_running_loop().run_in_executor(None, work)


async def _respond(send: Send, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
