"""Promises that are seen only across several requests (contract 2.2, 7 and 9)."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from tests.integration.api_door import Api, serve

from turnkeeper.turns.lifecycle import Happening
from turnkeeper.turns.model import Claim, Ending, StopReason, TurnError, TurnStatus

KEY = {"Idempotency-Key": "k"}


async def post(api: Api, session_id: str, **headers: str) -> httpx.Response:
    path = f"/v1/sessions/{session_id}/turns"
    return await api.client.post(path, json={"input": "hi"}, headers={**KEY, **headers})


async def fail(api: Api, claim: Claim) -> None:
    ending = Ending(
        happening=Happening.SANDBOX_LOST,
        status=TurnStatus.FAILED,
        stop_reason=StopReason.SANDBOX_LOST,
        source="platform",
        text="",
        result_json=None,
        result_error=None,
        duration_ms=5,
        turn_outcome="error",
        error=TurnError("sandbox_lost", "sandbox_lost", "It is gone.", True),
    )
    await api.store.end(claim.fence, ending)


def test_a_key_of_a_turn_that_failed_still_means_that_turn(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        first = (await post(api, session_id)).json()
        await fail(api, await api.started())
        repeated = await post(api, session_id)
        assert (repeated.status_code, repeated.headers["Idempotent-Replayed"]) == (200, "true")
        assert (repeated.json()["id"], repeated.json()["status"]) == (first["id"], "failed")
        assert (await api.made(f"/v1/turns/{first['id']}/retry"))["retry_of"] == first["id"]

    serve(tmp_path, work)


def test_an_idempotency_key_belongs_to_the_project_and_not_to_the_api_key(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        first = (await post(api, session_id)).json()
        other = await api.made("/v1/api_keys", {"name": "after a rotation", "scopes": ["*"]})
        repeated = await post(api, session_id, Authorization=f"Bearer {other['secret']}")
        assert (repeated.status_code, repeated.json()["id"]) == (200, first["id"])

    serve(tmp_path, work)


async def nothing(api: Api, session_id: str) -> None:
    assert session_id


async def queued(api: Api, session_id: str) -> None:
    await api.turn(session_id)


async def running(api: Api, session_id: str) -> None:
    await api.turn(session_id)
    await api.started()


async def ended(api: Api, session_id: str) -> None:
    await api.turn(session_id)
    await api.completed(await api.started())


async def closed(api: Api, session_id: str) -> None:
    await api.made(f"/v1/sessions/{session_id}/close")


@pytest.mark.parametrize("before", [nothing, queued, running, ended, closed])
def test_what_a_session_says_of_itself_is_what_a_post_meets(
    tmp_path: Path, before: Callable[[Api, str], Awaitable[None]]
) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        await before(api, session_id)
        said = (await api.seen(f"/v1/sessions/{session_id}"))["status"]
        body = {"input": "hi", "on_busy": "reject"}
        met = await api.client.post(f"/v1/sessions/{session_id}/turns", json=body)
        expected = {"idle": None, "busy": "session_busy"}.get(said, "session_closed")
        assert met.json().get("code") == expected, (said, met.text)

    serve(tmp_path, work)


def test_the_turn_behind_an_interrupted_one_is_claimed(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        first = await api.turn(session_id)
        claim = await api.started()
        second = await api.turn(session_id, on_busy="interrupt")
        assert (await api.seen(f"/v1/turns/{first['id']}"))["cancel_requested_at"] is not None
        await fail(api, claim)
        assert (await api.started()).turn.id == second["id"]

    serve(tmp_path, work)
