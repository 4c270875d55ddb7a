"""Events: list them, look at one, follow them as they come (contract 2.4, 10 and 11)."""

import re
from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, require_id
from turnkeeper.api.auth import Caller
from turnkeeper.api.deps import ApiDeps, Deps
from turnkeeper.api.openapi import EVENT_QUERY, STREAM_QUERY, answers, query
from turnkeeper.api.pages import (
    DEFAULT_LIMIT,
    MAX_EVENTS_LIMIT,
    Query,
    Rendered,
    cursor_maker,
    read_page,
    render_list,
)
from turnkeeper.api.problems import RequestRefused
from turnkeeper.api.stream_access import STREAM_TOKEN, StreamReader
from turnkeeper.api.stream_texts import text_scope
from turnkeeper.api.streams import EventStreamResponse, StreamPlan
from turnkeeper.events.cursors import parse_cursor
from turnkeeper.events.envelope import Event, render_event
from turnkeeper.turns.model import Session, Turn
from turnkeeper.turns.ports import NotFound, Page, PageRequest

MAX_TYPES: Final = 50
MAX_SEQUENCE: Final = 2**53 - 1
LAST_EVENT_ID: Final = "Last-Event-ID"

router = APIRouter(prefix="/v1", tags=["events"])

_LISTED: Final = frozenset({"after", "limit", "order", "types"})
_STREAMED: Final = frozenset({"after", "types", "deltas", STREAM_TOKEN})
_TYPES = re.compile(r"[a-z_]{1,40}(\.[a-z_]{1,40}){1,3}\Z")


@router.get("/events/{event_id}", responses=answers({200: "Event"}))
async def get_event(event_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows an event."""
    Query(request, ())
    require_id(event_id, "evt", "event")
    try:
        event = await deps.store.event(event_id)
    except NotFound:
        event = await deps.webhooks.project_event(event_id)
    return json_response(render_event(event))


@router.get(
    "/sessions/{session_id}/events", responses=answers({200: "EventList"}), openapi_extra=query(*EVENT_QUERY, "turn_id")
)
async def list_session_events(session_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Lists the events of a session in their order."""
    values = Query(request, _LISTED | {"turn_id"})
    session = await deps.store.session(require_id(session_id, "ses", "session"))
    return await _list(deps, values, session, _turn_filter(values))


@router.get("/turns/{turn_id}/events", responses=answers({200: "EventList"}), openapi_extra=query(*EVENT_QUERY))
async def list_turn_events(turn_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Lists the events of a turn in their order."""
    values = Query(request, _LISTED)
    turn = await deps.store.turn(require_id(turn_id, "trn", "turn"))
    return await _list(deps, values, await deps.store.session(turn.session_id), turn.id)


@router.get(
    "/sessions/{session_id}/events/stream",
    responses=answers({200: "stream", 204: None}),
    openapi_extra=query(*STREAM_QUERY, "turn_id"),
)
async def stream_session(session_id: str, request: Request, deps: Deps, reader: StreamReader) -> Response:
    """Streams the events of a session until it is closed."""
    values = Query(request, _STREAMED | {"turn_id"})
    reader.check(session_id)
    session = await deps.store.session(require_id(session_id, "ses", "session"))
    after = _start(request, values, session)
    if session.status == "closed" and after >= session.last_sequence:
        return Response(status_code=204)
    plan = await _plan(deps, values, session, after, turn_id=_turn_filter(values), to_turn_end=False)
    return EventStreamResponse(deps, reader.key, plan)


@router.get(
    "/turns/{turn_id}/events/stream",
    responses=answers({200: "stream", 204: None}),
    openapi_extra=query(*STREAM_QUERY),
)
async def stream_turn(turn_id: str, request: Request, deps: Deps, reader: StreamReader) -> Response:
    """Streams the events of a turn until its end."""
    values = Query(request, _STREAMED)
    turn = await deps.store.turn(require_id(turn_id, "trn", "turn"))
    reader.check(turn.session_id)
    session = await deps.store.session(turn.session_id)
    after = _start(request, values, session)
    if after >= await _end_sequence(deps, turn):
        return Response(status_code=204)
    plan = await _plan(deps, values, session, after, turn_id=turn.id, to_turn_end=True)
    return EventStreamResponse(deps, reader.key, plan)


async def _plan(
    deps: ApiDeps, values: Query, session: Session, after: int, *, turn_id: str | None, to_turn_end: bool
) -> StreamPlan:
    types = frozenset(_types(values))
    off = values.choice("deltas", ("true", "false"), "true") == "false"
    texts = None if off else await text_scope(deps.store, session, turn_id=turn_id, types=types)
    return StreamPlan(
        session_id=session.id,
        after=after,
        head_sequence=session.last_sequence,
        oldest_sequence=session.oldest_sequence,
        turn_id=turn_id,
        types=types,
        to_turn_end=to_turn_end,
        closed=session.status == "closed",
        deltas="off" if off else "withheld" if texts is None else "live",
        texts=texts,
    )


async def _end_sequence(deps: ApiDeps, turn: Turn) -> int:
    if turn.terminal_event_id is None:
        return MAX_SEQUENCE + 1
    return (await deps.store.event(turn.terminal_event_id)).sequence


def _start(request: Request, values: Query, session: Session) -> int:
    # The header wins: a browser reconnects with the old URL.
    header = request.headers.get(LAST_EVENT_ID)
    name, text = (LAST_EVENT_ID, header) if header else ("after", values.text("after"))
    if text is None:
        return session.last_sequence
    after = _sequence(text)
    if after is None:
        raise RequestRefused("cursor_invalid", f"{name} is not the sequence of an event.", param=name)
    if after > session.last_sequence:
        ahead = RequestRefused(
            "cursor_ahead", f"{name} is {after}, but the last event is {session.last_sequence}.", param=name
        )
        ahead.detail["head_sequence"] = session.last_sequence
        raise ahead
    _check_kept(name, after, session)
    return after


def _check_kept(name: str, after: int, session: Session) -> None:
    """Raises `RequestRefused` (`cursor_expired`) where events behind `after` are gone. 0 is the oldest that is kept."""
    if 0 < after < session.oldest_sequence - 1:
        expired = RequestRefused(
            "cursor_expired", f"{name} is {after}, but the oldest kept event is {session.oldest_sequence}.", param=name
        )
        expired.detail["oldest_sequence"] = session.oldest_sequence
        raise expired


async def _list(deps: ApiDeps, values: Query, session: Session, turn_id: str | None) -> Response:
    limit = values.integer("limit", low=1, high=MAX_EVENTS_LIMIT) or DEFAULT_LIMIT
    if values.choice("order", ("asc", "desc"), "asc") == "desc":
        raise RequestRefused("not_supported_yet", "order=desc is not supported yet for events.", param="order")
    types = _types(values)
    filters = {"list": "events", "session_id": session.id, "turn_id": turn_id, "types": ",".join(types)}

    async def fetch(part: PageRequest) -> Page[Event]:
        found = await deps.store.events(
            session.id, after=int(part.after or 0), limit=part.limit + 1, types=types, turn_id=turn_id
        )
        return Page(found[: part.limit], has_more=len(found) > part.limit)

    after = _after(values, filters, deps.cursor_secret)
    _check_kept("after", after, session)
    wanted = PageRequest(limit=limit, after=str(after), order="asc")
    page = await read_page(wanted, fetch, _element)
    return render_list(page, cursor_maker(filters, deps.cursor_secret))


async def _element(event: Event) -> Rendered:
    return Rendered(render_event(event), str(event.sequence))


def _after(values: Query, filters: Mapping[str, str | None], secret: bytes) -> int:
    text = values.text("after")
    if text is None:
        return 0
    sequence = _sequence(text)
    return int(parse_cursor(text, filters, secret)) if sequence is None else sequence


def _sequence(text: str) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) <= 16):
        return None
    return min(int(text), MAX_SEQUENCE)


def _turn_filter(values: Query) -> str | None:
    turn_id = values.text("turn_id")
    return None if turn_id is None else require_id(turn_id, "trn", "turn")


def _types(values: Query) -> tuple[str, ...]:
    text = values.text("types")
    if text is None:
        return ()
    types = tuple(sorted(set(text.split(","))))
    if len(types) > MAX_TYPES or not all(_TYPES.match(name) for name in types):
        raise RequestRefused(
            "invalid_field",
            f"types is not a list of at most {MAX_TYPES} event types.",
            param="types",
            hint="Separate types by commas, as in types=turn.queued,turn.completed.",
        )
    return types
