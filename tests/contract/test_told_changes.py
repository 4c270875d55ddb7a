"""What changes outside of a turn is told with the change itself, once, on both databases (contract 10.3)."""

import orjson
import pytest
from tests.contract.store_rig import BY_APP, Rig, with_store
from tests.contract.test_file_store import a_file, created
from tests.contract.test_webhook_store import an_endpoint, claimed

from turnkeeper.turns.ports import NotFound, PageRequest
from turnkeeper.turns.retention import SessionChange


async def told(rig: Rig, *types: str) -> list[tuple[str, dict[str, object]]]:
    """What an endpoint for these types is owed, oldest first."""
    found = [orjson.loads(one.body) for one in await claimed(rig)]
    return [(event["type"], event["data"]) for event in found if event["type"] in types]


@with_store
async def test_a_file_is_told_of_when_it_comes_and_when_it_goes(rig: Rig) -> None:
    await an_endpoint(rig, types=("file.*",))
    file = await a_file(rig)
    await rig.store.files().delete_file(file.id)
    with pytest.raises(NotFound):
        await rig.store.files().delete_file(file.id)
    data = {"file_id": file.id, "bytes": file.size_bytes, "sha256": file.sha256}
    assert await told(rig, "file.uploaded", "file.deleted") == [("file.uploaded", data), ("file.deleted", data)]


@with_store
async def test_an_artifact_is_told_of_when_it_goes(rig: Rig) -> None:
    await an_endpoint(rig, types=("artifact.deleted",))
    fence = await rig.running()
    await rig.store.record(fence, [created(rig.ids, fence.turn_id)])
    [artifact] = (await rig.store.files().artifacts(fence.turn_id, PageRequest())).items
    await rig.store.files().delete_artifact(artifact.id)
    data = {"artifact_id": artifact.id, "bytes": artifact.size_bytes, "sha256": artifact.sha256}
    assert await told(rig, "artifact.deleted") == [("artifact.deleted", data)]


@with_store
async def test_a_session_that_was_changed_says_what_was_and_only_then(rig: Rig) -> None:
    session = await rig.session()
    await rig.store.retention().change_session(session.id, SessionChange(title="new", retention_days=3))
    await rig.store.retention().change_session(session.id, SessionChange(title="new"))
    events = [event for event in await rig.events(session.id) if event.type == "session.updated"]
    assert [orjson.loads(event.data)["changed"] for event in events] == [["title", "retention_days"]]


@with_store
async def test_a_session_that_was_erased_is_told_of_once(rig: Rig) -> None:
    await an_endpoint(rig, types=("session.deleted",))
    session = await rig.session()
    await rig.store.retention().delete_session(session.id, by=BY_APP)
    await rig.store.close_ended(session.id, "completed", None)
    for _ in range(2):
        await rig.store.retention().erase(10)
    assert await told(rig, "session.deleted") == [("session.deleted", {"session_id": session.id})]
