"""Files that apps upload and artifacts that turns leave (contract 2.6)."""

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, require_id
from turnkeeper.api.auth import Caller
from turnkeeper.api.deps import Deps
from turnkeeper.api.file_reads import (
    render_artifact,
    render_deleted,
    render_file,
    stream_content,
    text_content,
)
from turnkeeper.api.keyed import created_response
from turnkeeper.api.openapi import LIST_QUERY, answers, query
from turnkeeper.api.openapi_files import CONTENT, UPLOAD
from turnkeeper.api.pages import Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.api.uploads import take_upload
from turnkeeper.turns.files import Artifact, File

router = APIRouter(prefix="/v1", tags=["files"])

_FILE: Final = "/files/{file_id}"
_ARTIFACT: Final = "/artifacts/{artifact_id}"


@router.post(
    "/files",
    status_code=201,
    responses=answers({201: "File", 200: "File"}),
    openapi_extra=UPLOAD | query("Idempotency-Key"),
)
async def upload_file(request: Request, deps: Deps, caller: Caller) -> Response:
    """Takes a file. 201 for a new one, 200 for a replay of its Idempotency-Key."""
    Query(request, ())
    made = await take_upload(request, deps, caller)
    return created_response(made, render_file(made.thing), f"/v1/files/{made.thing.id}")


@router.get("/files", responses=answers({200: "FileList"}), openapi_extra=query(*LIST_QUERY))
async def list_files(request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists the project's files, newest first unless `order` says otherwise."""
    values = Query(request, {"limit", "after", "order"})
    wanted = list_query(values, deps.cursor_secret, list="files", project=caller.project_id)

    async def element(file: File) -> Rendered:
        return Rendered(render_file(file), file.id)

    page = await read_page(wanted.page, lambda part: deps.files.files(caller.project_id, part), element)
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get(_FILE, responses=answers({200: "File"}))
async def get_file(file_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows a file."""
    Query(request, ())
    return json_response(render_file(await deps.files.file(require_id(file_id, "fil", "file"))))


@router.get(f"{_FILE}/content", responses=answers({200: None}) | CONTENT)
async def get_file_content(file_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Hands out the bytes of a file, to be saved and not to be shown."""
    Query(request, ())
    file = await deps.files.file(require_id(file_id, "fil", "file"))
    return await stream_content(deps.contents.read(file.sha256), file.name, file.media_type, file.size_bytes)


@router.delete(_FILE, responses=answers({200: "DeletedFile"}))
async def delete_file(file_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Deletes a file. Turns that were accepted with it keep it until they end; no new one can have it."""
    Query(request, ())
    file = await deps.files.delete_file(require_id(file_id, "fil", "file"))
    return json_response(render_deleted(file.id, "file"))


@router.get("/turns/{turn_id}/artifacts", responses=answers({200: "ArtifactList"}), openapi_extra=query(*LIST_QUERY))
async def list_artifacts(turn_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Lists what a turn left, newest first unless `order` says otherwise."""
    values = Query(request, {"limit", "after", "order"})
    require_id(turn_id, "trn", "turn")
    wanted = list_query(values, deps.cursor_secret, list="artifacts", turn_id=turn_id)

    async def element(artifact: Artifact) -> Rendered:
        return Rendered(render_artifact(artifact), artifact.id)

    page = await read_page(wanted.page, lambda part: deps.files.artifacts(turn_id, part), element)
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get(_ARTIFACT, responses=answers({200: "Artifact"}))
async def get_artifact(artifact_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows an artifact."""
    Query(request, ())
    return json_response(render_artifact(await deps.files.artifact(_artifact_id(artifact_id))))


@router.get(f"{_ARTIFACT}/content", responses=answers({200: None}) | CONTENT)
async def get_artifact_content(artifact_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Hands out the bytes of an artifact, to be saved and not to be shown."""
    Query(request, ())
    artifact = await deps.files.artifact(_artifact_id(artifact_id))
    text = await deps.files.artifact_text(artifact.id)
    if text is not None:
        return text_content(text, artifact.name, artifact.media_type)
    pieces = deps.contents.read(artifact.sha256)
    return await stream_content(pieces, artifact.name, artifact.media_type, artifact.size_bytes)


@router.delete(_ARTIFACT, responses=answers({200: "DeletedFile"}))
async def delete_artifact(artifact_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Deletes an artifact before its session's time is over."""
    Query(request, ())
    artifact = await deps.files.delete_artifact(_artifact_id(artifact_id))
    return json_response(render_deleted(artifact.id, "artifact"))


def _artifact_id(artifact_id: str) -> str:
    return require_id(artifact_id, "art", "artifact")
