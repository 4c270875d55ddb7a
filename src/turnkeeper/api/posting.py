"""Posting a turn, whichever way (contract 2.3, 9 and 11): its key, its schema, and the answer or the stream.

Answers for a stream that has its place before the turn is accepted, so that `too_many_streams` never means that a turn
was made. Losing the stream loses nothing else.
"""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from fastapi import Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response
from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.deps import ApiDeps
from turnkeeper.api.intake import TurnBody
from turnkeeper.api.keyed import fingerprint_of, idempotency_key
from turnkeeper.api.pages import Query
from turnkeeper.api.reads import read_turn
from turnkeeper.api.stream_texts import text_scope
from turnkeeper.api.streams import EventStreamResponse, StreamPlan
from turnkeeper.turns.access import check_scope
from turnkeeper.turns.files import FileNotReady
from turnkeeper.turns.model import AgentLimits, ApiKey
from turnkeeper.turns.ports import Accepted, NewTurn
from turnkeeper.turns.schema_rules import OutputSchemaInvalid


def wants_stream(request: Request, caller: ApiKey) -> bool:
    """Whether the answer is to be the turn's stream. Raises `RequestRefused`, `AccessDenied`."""
    wanted = Query(request, {"stream"}).choice("stream", ("true", "false"), "false") == "true"
    if wanted:
        check_scope(caller, "events:read")
    return wanted


async def check_schema(deps: ApiDeps, schema_json: str | None) -> None:
    """Raises `OutputSchemaInvalid`."""
    if schema_json is None:
        return
    try:
        await deps.schema_checker.compile(schema_json)
    except OutputSchemaInvalid as invalid:
        invalid.detail["pointer"] = f"/output_schema{invalid.detail.get('pointer', '')}"
        raise


def new_turn(
    request: Request, received: JsonBody, caller: ApiKey, parsed: TurnBody, limits: AgentLimits, *, session_id: str
) -> NewTurn:
    """The turn that a body asks for, with the agent's numbers where it says nothing."""
    key, repairs, attempts = idempotency_key(request), parsed.max_repair_attempts, parsed.max_attempts
    return NewTurn(
        session_id=session_id,
        input_text=parsed.input_text,
        input_json=parsed.input_json,
        output_schema_json=parsed.output_schema_json,
        metadata_json=parsed.metadata_json,
        budget=parsed.budget,
        max_repair_attempts=limits.max_repair_attempts if repairs is None else repairs,
        max_attempts=limits.max_attempts if attempts is None else attempts,
        on_busy=parsed.on_busy,
        start_by=parsed.start_by,
        idempotency_key=key,
        fingerprint=None if key is None else fingerprint_of(request, received),
        api_key_id=caller.id,
        file_ids=tuple(parsed.files),
    )


async def with_files(accepting: Awaitable[Accepted], parsed: TurnBody) -> Accepted:
    """The accepted turn. A file that is not ready is pointed at in the body that named it. Raises `FileNotReady`."""
    try:
        return await accepting
    except FileNotReady as missing:
        missing.detail["pointer"] = parsed.files.get(str(missing.detail["file_id"]), "/input")
        raise


async def answer_post(
    deps: ApiDeps, caller: ApiKey, accept: Callable[[], Awaitable[Accepted]], *, key: str | None, stream: bool
) -> Response:
    """202 with the new turn, 200 with the one that the key stands for already; or 200 with the turn's stream.

    Raises `IdempotencyInProgress`, and what `accept` raises.
    """
    if not stream:
        async with deps.in_flight.held(caller.project_id, key):
            accepted = await accept()
        document = await read_turn(deps.store, accepted.turn)
        return json_response(document, 200 if accepted.replayed else 202, _headers(accepted))
    with ExitStack() as place:
        place.enter_context(deps.streams.admit(caller.id, key_limit=caller.limits.streams))
        async with deps.in_flight.held(caller.project_id, key):
            accepted = await accept()
        plan = await _plan(deps, accepted)
        answer = EventStreamResponse(deps, caller, plan, place=place.pop_all())
    answer.headers.update(_headers(accepted))
    return answer


async def _plan(deps: ApiDeps, accepted: Accepted) -> StreamPlan:
    session = await deps.store.session(accepted.turn.session_id)
    texts = await text_scope(deps.store, session, turn_id=accepted.turn.id, types=frozenset())
    return StreamPlan(
        session_id=session.id,
        after=accepted.events_after,
        head_sequence=session.last_sequence,
        oldest_sequence=session.oldest_sequence,
        turn_id=accepted.turn.id,
        types=frozenset(),
        to_turn_end=True,
        closed=session.status == "closed",
        deltas="withheld" if texts is None else "live",
        texts=texts,
    )


def _headers(accepted: Accepted) -> dict[str, str]:
    headers = {"Location": f"/v1/turns/{accepted.turn.id}", "Events-After": str(accepted.events_after)}
    return headers | ({"Idempotent-Replayed": "true"} if accepted.replayed else {})
