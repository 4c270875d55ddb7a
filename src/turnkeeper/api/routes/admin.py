"""What operators do (contract 2.12): put a turn back, fail or cancel it, drain the platform. Scope: `admin`.

A turn is reached with a key of its own project; a drain holds for all projects and processes.
"""

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.admin_intake import parse_reason
from turnkeeper.api.answers import json_response, require_id
from turnkeeper.api.auth import Caller, canceled_by
from turnkeeper.api.bodies import read_json
from turnkeeper.api.deps import ApiDeps, Deps
from turnkeeper.api.intake import parse_cancel
from turnkeeper.api.openapi import answers, body
from turnkeeper.api.pages import Query
from turnkeeper.api.reads import read_turn, time_or_none
from turnkeeper.turns.operations import Drain, QueueState

router = APIRouter(prefix="/v1/admin", tags=["operations"])


@router.post("/turns/{turn_id}/requeue", status_code=202, responses=answers({202: "Turn", 200: "Turn"}))
async def requeue_turn(turn_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Takes a turn from its worker and has another one take it (202); one that nobody holds is as it was (200).

    A turn that runs loses its attempt, and is refused with 409 `attempts_used` where it has no other.
    """
    Query(request, ())
    turn, effect = await deps.operations.requeue_turn(require_id(turn_id, "trn", "turn"))
    return json_response(await read_turn(deps.store, turn), 200 if effect == "unchanged" else 202)


@router.post(
    "/turns/{turn_id}/fail", responses=answers({200: "Turn"}), openapi_extra=body("OperatorWord", required=False)
)
async def fail_turn(turn_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Ends a turn at once as `internal_error`, whoever holds it; its worker ends its boxes when it sees so."""
    Query(request, ())
    require_id(turn_id, "trn", "turn")
    reason = parse_reason(await read_json(request, max_bytes=deps.settings.max_body_bytes, optional=True))
    return json_response(await read_turn(deps.store, await deps.operations.fail_turn(turn_id, reason=reason)))


@router.post(
    "/turns/{turn_id}/cancel",
    status_code=202,
    responses=answers({202: "Turn", 200: "Turn"}),
    openapi_extra=body("CancelTurn", required=False),
)
async def cancel_turn(turn_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Cancels a turn as an app does, with the stop reason `operator`."""
    Query(request, ())
    require_id(turn_id, "trn", "turn")
    mode, reason = parse_cancel(await read_json(request, max_bytes=deps.settings.max_body_bytes, optional=True))
    turn, effect = await deps.operations.cancel_turn(turn_id, mode=mode, by=canceled_by(caller, reason))
    return json_response(await read_turn(deps.store, turn), 202 if effect == "requested" else 200)


@router.get("/drain", responses=answers({200: "Drain"}))
async def get_drain(request: Request, deps: Deps, _caller: Caller) -> Response:
    """Says whether the platform is drained, and which turns are not over."""
    Query(request, ())
    return await _drain(deps)


@router.post("/drain", responses=answers({200: "Drain"}), openapi_extra=body("OperatorWord", required=False))
async def begin_drain(request: Request, deps: Deps, caller: Caller) -> Response:
    """Accepts no turn (503 `draining`) and begins none, in every process, until the drain is taken back."""
    Query(request, ())
    reason = parse_reason(await read_json(request, max_bytes=deps.settings.max_body_bytes, optional=True))
    await deps.operations.begin_drain(reason=reason, by=canceled_by(caller))
    return await _drain(deps)


@router.delete("/drain", responses=answers({200: "Drain"}))
async def end_drain(request: Request, deps: Deps, _caller: Caller) -> Response:
    """Accepts and begins turns again."""
    Query(request, ())
    await deps.operations.end_drain()
    return await _drain(deps)


async def _drain(deps: ApiDeps) -> Response:
    drain, state = await deps.operations.drain(), await deps.operations.queue_state()
    return json_response(_rendered(drain, state))


def _rendered(drain: Drain | None, state: QueueState) -> bytes:
    return orjson.dumps(
        {
            "object": "drain",
            "draining": drain is not None,
            "since": time_or_none(None if drain is None else drain.since),
            "reason": None if drain is None else drain.reason,
            "asked_by": None if drain is None else {"type": drain.asked_by.type, "id": drain.asked_by.id},
            "drained": drain is not None and not state.busy_runners,
            "turns": {
                "queued": state.queued,
                "starting": state.starting,
                "running": state.running,
                "paused": state.paused,
            },
        }
    )
