"""What operators look at: the queue, and figures for a monitor (contract 2.12). Both need the scope `admin`."""

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response
from turnkeeper.api.auth import Caller
from turnkeeper.api.deps import Deps
from turnkeeper.api.metrics import MEDIA_TYPE, oldest_queued_ms, render_metrics
from turnkeeper.api.openapi import answers
from turnkeeper.api.pages import Query
from turnkeeper.turns.operations import STUCK_AFTER_MS

router = APIRouter(tags=["operations"])


@router.get("/v1/admin/queue", responses=answers({200: "QueueState"}))
async def get_queue(request: Request, deps: Deps, _caller: Caller) -> Response:
    """Counts the turns that are not over, in all projects."""
    Query(request, ())
    state = await deps.operations.queue_state()
    document: dict[str, object] = {
        "object": "queue",
        "depth": state.queued,
        "oldest_queued_ms": oldest_queued_ms(state, deps.clock.now()),
        "starting": state.starting,
        "running": state.running,
        "paused": state.paused,
        "runners": {"idle": None, "busy": state.busy_runners},
        "by_pool": [],
    }
    return json_response(orjson.dumps(document))


@router.get("/metrics", include_in_schema=False)
async def get_metrics(request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows the figures of this process and its database in the text format of Prometheus."""
    Query(request, ())
    state, backlog = await deps.operations.queue_state(), await deps.operations.backlog(STUCK_AFTER_MS)
    readiness = await deps.readiness()
    now, streams = deps.clock.now(), deps.streams.open_count
    gauges = render_metrics(state, backlog, now, open_streams=streams, counters=readiness.counters)
    return Response(gauges + deps.measures.render(), media_type=MEDIA_TYPE)
