"""Whether the server lives, whether it can serve, and what its documents are (contract 2.12, 13 and 14)."""

from typing import Final

import orjson
from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from turnkeeper.api.answers import json_response
from turnkeeper.api.deps import Deps
from turnkeeper.api.openapi import answers
from turnkeeper.api.problems import PROBLEMS, not_found
from turnkeeper.api.schema_files import schema_files
from turnkeeper.events.envelope import API_VERSION

SCHEMA_MEDIA_TYPE: Final = "application/schema+json"

router = APIRouter(tags=["operations"])


@router.get("/healthz", responses=answers({200: "Health"}, protected=False))
async def health() -> Response:
    """Answers while the process serves requests at all."""
    return json_response(b'{"status":"ok"}')


@router.get("/readyz", responses=answers({200: "Readiness", 503: "Readiness"}, protected=False))
async def ready(deps: Deps) -> Response:
    """Says whether requests can be served: by part yes or no, with counters, within seconds whatever hangs."""
    readiness = await deps.readiness()
    stopping = deps.streams.draining.is_set()
    serving = readiness.ready and not stopping
    document = {
        "ready": serving,
        "checks": dict(readiness.checks),
        "counters": dict(readiness.counters),
        "draining": readiness.drained,
        "stopping": stopping,
    }
    return json_response(orjson.dumps(document), 200 if serving else 503)


@router.get("/problems/{code}", include_in_schema=False)
async def explain(code: str) -> Response:
    """Says what a problem code means; `type` of a problem points here."""
    kind = PROBLEMS.get(code)
    if kind is None:
        raise not_found("problem with this code")
    return PlainTextResponse(f"{code} ({kind.status})\n\n{kind.title}.\n{kind.hint}\n")


@router.get("/schemas/{version}/{name:path}", include_in_schema=False)
async def get_schema(version: str, name: str) -> Response:
    """Serves an event schema, byte for byte as shipped."""
    content = schema_files().get(name) if version == API_VERSION else None
    if content is None:
        raise not_found(f"schema of this name in version {API_VERSION}")
    return Response(content, media_type=SCHEMA_MEDIA_TYPE)
