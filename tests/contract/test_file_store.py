"""Files and artifacts in the turn store: made with their event, counted, kept apart by project, erased."""

import asyncio
import hashlib
from dataclasses import replace

import pytest
from tests.contract.store_rig import ANSWER, BY_APP, Rig, has_started, open_store, with_store

from turnkeeper.events.envelope import NewEvent
from turnkeeper.events.files import artifact_created
from turnkeeper.ids import RandomIds
from turnkeeper.store.tx import StoreLimits
from turnkeeper.turns.creations import Created
from turnkeeper.turns.files import File, FileNotReady, NewFile, StorageFull
from turnkeeper.turns.idempotency import IdempotencyKeyReused, IdempotencyResourceDeleted, KeyedRequest
from turnkeeper.turns.model import PROJECT_ID, StepAnswer
from turnkeeper.turns.ports import NotFound, PageRequest

SHA256 = hashlib.sha256(b"hello").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()
FILE = NewFile(PROJECT_ID, "a.txt", "turn_input", "text/plain", 5, SHA256)
ELSEWHERE = "prj_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"


async def a_file(rig: Rig, new: NewFile = FILE) -> File:
    return (await rig.store.files().add_file(new)).thing


def created(ids: RandomIds, turn_id: str, *, text: str | None = "hello", sha256: str = SHA256) -> NewEvent:
    return artifact_created(
        turn_id=turn_id,
        attempt=1,
        artifact_id=ids.new("art"),
        name="a.txt",
        path=None if text is not None else "outputs/a.txt",
        media_type="text/plain",
        size_bytes=5,
        sha256=sha256,
        kind="output" if text is None else "tool_output",
        content=text,
    )


@with_store
async def test_a_file_is_there_until_it_is_deleted(rig: Rig) -> None:
    file = await a_file(rig)
    files = rig.store.files()
    assert await files.file(file.id) == file
    assert (await files.files(PROJECT_ID, PageRequest())).items == (file,)
    assert await files.delete_file(file.id) == file
    assert (await files.files(PROJECT_ID, PageRequest())).items == ()
    for attempt in (files.file, files.delete_file):
        with pytest.raises(NotFound):
            await attempt(file.id)


@with_store
async def test_a_project_lists_only_its_own_files(rig: Rig) -> None:
    await a_file(rig)
    theirs = await a_file(rig, replace(FILE, project_id=ELSEWHERE))
    assert (await rig.store.files().files(ELSEWHERE, PageRequest())).items == (theirs,)


@with_store
async def test_an_idempotency_key_stands_for_one_file(rig: Rig) -> None:
    files, request = rig.store.files(), KeyedRequest(PROJECT_ID, "k", "f")
    first = await files.add_file(FILE, request)
    assert not first.replayed
    assert await files.add_file(FILE, request) == Created(first.thing, replayed=True)
    with pytest.raises(IdempotencyKeyReused):
        await files.add_file(FILE, replace(request, fingerprint="g"))
    await files.delete_file(first.thing.id)
    with pytest.raises(IdempotencyResourceDeleted):
        await files.add_file(FILE, request)


def test_a_project_that_is_full_takes_no_more(sqlite_url: str) -> None:
    async def main() -> None:
        rig = await open_store(sqlite_url, limits=StoreLimits(project_bytes=12))
        try:
            files = rig.store.files()
            first = await a_file(rig)
            await a_file(rig)
            with pytest.raises(StorageFull) as refused:
                await a_file(rig)
            assert refused.value.detail["limit_name"] == "files.project_bytes"
            assert await files.room(PROJECT_ID) == 2
            await files.delete_file(first.id)
            await a_file(rig)
        finally:
            await rig.store.close()

    asyncio.run(main())


@with_store
async def test_a_turn_has_its_files_as_they_were(rig: Rig) -> None:
    first, second = await a_file(rig), await a_file(rig)
    session = await rig.session()
    turn = await rig.post(session.id, file_ids=(second.id, first.id))
    assert [(file.file_id, file.path) for file in turn.input_files] == [
        (second.id, "inputs/a.txt"),
        (first.id, "inputs/a-2.txt"),
    ]
    await rig.store.files().delete_file(first.id)
    assert (await rig.store.turn(turn.id)).input_files == turn.input_files


@with_store
async def test_a_turn_cannot_name_a_file_that_is_deleted_or_somebody_elses(rig: Rig) -> None:
    session, gone = await rig.session(), await a_file(rig)
    await rig.store.files().delete_file(gone.id)
    theirs = await a_file(rig, replace(FILE, project_id=ELSEWHERE))
    for file_id in (gone.id, theirs.id, rig.ids.new("fil")):
        with pytest.raises(FileNotReady):
            await rig.post(session.id, file_ids=(file_id,))
    assert await rig.types(session.id) == ["session.created"]


@with_store
async def test_bytes_are_named_by_files_artifacts_and_open_turns(rig: Rig) -> None:
    files, file = rig.store.files(), await a_file(rig)
    session = await rig.session()
    await rig.post(session.id, file_ids=(file.id,))
    await files.delete_file(file.id)
    assert await files.unnamed([SHA256, OTHER]) == {OTHER}
    fence = await rig.starting()
    await rig.store.started(fence, [has_started(fence.turn_id)])
    await rig.store.end(fence, ANSWER, before=[created(rig.ids, fence.turn_id, text=None, sha256=OTHER)])
    assert await files.unnamed([SHA256, OTHER]) == {SHA256}


@with_store
async def test_an_artifact_is_there_with_its_event(rig: Rig) -> None:
    fence = await rig.running()
    files, event = rig.store.files(), created(rig.ids, fence.turn_id)
    await rig.store.record(fence, [event])
    (artifact,) = (await files.artifacts(fence.turn_id, PageRequest())).items
    assert (artifact.kind, artifact.size_bytes, artifact.session_id) == ("tool_output", 5, fence.session_id)
    assert await files.artifact_text(artifact.id) == "hello"
    assert (await rig.types(fence.session_id))[-1] == "artifact.created"
    assert await files.delete_artifact(artifact.id) == artifact
    with pytest.raises(NotFound):
        await files.artifact_text(artifact.id)


@with_store
async def test_an_old_fence_leaves_no_artifact(rig: Rig) -> None:
    fence = await rig.running()
    with pytest.raises(Exception, match="no longer"):
        await rig.store.record(replace(fence, number=fence.number - 1), [created(rig.ids, fence.turn_id)])
    assert (await rig.store.files().artifacts(fence.turn_id, PageRequest())).items == ()


@with_store
async def test_outputs_of_earlier_turns_are_known_deleted_ones_too(rig: Rig) -> None:
    fence, files = await rig.running(), rig.store.files()
    await rig.store.record(fence, [created(rig.ids, fence.turn_id, text=None)])
    assert await files.known_outputs(fence.session_id) == {("outputs/a.txt", SHA256)}
    (artifact,) = (await files.artifacts(fence.turn_id, PageRequest())).items
    await files.delete_artifact(artifact.id)
    assert await files.known_outputs(fence.session_id) == {(None, SHA256)}


@with_store
async def test_an_erased_session_has_no_artifacts_and_its_files_are_the_projects(rig: Rig) -> None:
    file, fence = await a_file(rig), await rig.running()
    await rig.store.end(fence, ANSWER, before=[created(rig.ids, fence.turn_id)])
    (due,) = await rig.store.pending_steps(fence.session_id)
    answered = StepAnswer("answered", "allow", "head")
    await rig.store.answer_step(fence.session_id, due.request_id, answered, None, ())
    room = await rig.store.files().room(PROJECT_ID)
    await rig.store.retention().delete_session(fence.session_id, by=BY_APP)
    await rig.store.close_ended(fence.session_id, "completed", None)
    assert await rig.store.retention().erase(10) == 1
    assert (await rig.store.files().artifacts(fence.turn_id, PageRequest())).items == ()
    assert await rig.store.files().room(PROJECT_ID) == room + 5
    assert await rig.store.files().file(file.id) == file
