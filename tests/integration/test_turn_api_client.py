"""The turn API's client, awaiting and blocking, against a real server and through a proxy that spoils what it can."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.api_door import AGENT, Api
from tests.integration.both_halves import HALVES, QUICK, client_of
from tests.integration.hostile_proxy import Cut, Fault, HostileProxy, Lose, Refuse, Say, hostile_proxy
from tests.integration.test_api_streams import Door, listening, text

from turnkeeper.api.deps import ApiSettings
from turnkeeper.client import (
    ApiProblem,
    AsyncSession,
    AsyncTurnkeeper,
    Conflict,
    Event,
    KeyRefused,
    NotFound,
    RequestInvalid,
    Retries,
    ServerFailed,
    ServerUnreachable,
    TooMany,
    WaitTimedOut,
)

BUSY = "503 Service Unavailable"
OURS = "Content-Type: application/problem+json\r\nRetry-After: 0\r\n"


@dataclass(frozen=True)
class Place:
    """A server, a proxy before it, and a client that knows the proxy only."""

    api: Api
    proxy: HostileProxy
    turnkeeper: AsyncTurnkeeper

    async def session(self) -> AsyncSession:
        """A fresh session with a fresh agent."""
        agent = await self.turnkeeper.agents.create("a", AGENT["model"], tools=["shell"])
        return await self.turnkeeper.sessions.create(agent)


Work = Callable[[Place], Awaitable[None]]
Run = Callable[..., None]


@pytest.fixture(params=HALVES)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a piece of work at such a place, with either half of the client."""

    def run(work: Work, *, retries: Retries = QUICK, settings: ApiSettings | None = None, key: str = "") -> None:
        async def at_door(door: Door) -> None:
            port = door.client.base_url.port
            assert port is not None
            async with (
                hostile_proxy(port) as proxy,
                client_of(request.param, proxy.url, key or door.api.secret, retries) as turnkeeper,
            ):
                await work(Place(door.api, proxy, turnkeeper))

        listening(tmp_path, at_door, settings)

    return run


async def posted(api: Api, session_id: str) -> int:
    """How many turns the session has."""
    return len((await api.seen(f"/v1/sessions/{session_id}/turns?limit=100"))["data"])


def test_a_turn_is_posted_waited_for_and_read(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        turn = await session.post_turn("hi", metadata={"invoice": 4711})
        assert (turn.status, turn.ended, turn.metadata, turn.replayed) == ("queued", False, {"invoice": 4711}, False)
        ending = asyncio.ensure_future(turn.wait(20_000))
        await place.api.completed(await place.api.started(), "forty-two")
        done = await ending
        assert (done.status, done.stop_reason, done.text) == ("completed", "end_turn", "forty-two")
        assert done.usage is not None
        assert done.usage.total_tokens == 0
        assert (await turn.refresh()).ended

    run(work)


def test_a_wait_that_is_too_short_says_so_and_ends_nothing(run: Run) -> None:
    async def work(place: Place) -> None:
        turn = await (await place.session()).post_turn("hi")
        with pytest.raises(WaitTimedOut) as late:
            await turn.wait(30)
        assert (late.value.turn.id, late.value.turn.status) == (turn.id, "queued")
        assert not (await turn.refresh()).ended

    run(work)


ANSWERS_SPOILED: list[list[Fault]] = [
    [Lose()],
    [Refuse(), Refuse()],
    [Cut(40)],
    [Cut(600)],
    [Say(BUSY)],
    [Say("502 Bad Gateway"), Lose()],
    [Say("200 OK")],
    [Say("429 Too Many Requests", "{}", OURS)],
    [Say("409 Conflict", '{"code":"idempotency_in_progress"}', OURS)],
]


def test_a_turn_is_posted_once_whatever_happens_to_the_answer(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        for number, faults in enumerate(ANSWERS_SPOILED, start=1):
            place.proxy.seen.clear()
            place.proxy.faults["POST /v1/sessions/"] = list(faults)
            turn = await session.post_turn("hi")
            assert await posted(place.api, session.id) == number, faults
            assert turn.idempotency_key is not None
            assert place.proxy.seen[f"POST /v1/sessions/{session.id}/turns"] == len(faults) + 1, faults

    run(work)


def test_two_posts_are_two_turns_and_a_key_of_ones_own_is_one(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        first, second = await session.post_turn("hi"), await session.post_turn("hi")
        assert first.id != second.id
        mine = await session.post_turn("hi", idempotency_key="invoice-4711")
        again = await session.post_turn("hi", idempotency_key="invoice-4711")
        assert (again.id, again.replayed) == (mine.id, True)
        with pytest.raises(RequestInvalid) as other:
            await session.post_turn("something else", idempotency_key="invoice-4711")
        assert other.value.error_code == "idempotency_key_reused"

    run(work)


def test_what_cannot_be_repeated_safely_is_sent_once(run: Run) -> None:
    async def work(place: Place) -> None:
        agent = await place.turnkeeper.agents.create("a", AGENT["model"])
        changes = f"POST /v1/agents/{agent.id}"
        place.proxy.faults[changes] = [Lose()]
        with pytest.raises(ServerUnreachable):
            await place.turnkeeper.agents.change(agent, {"name": "b"})
        place.proxy.faults[changes] = [Say(BUSY)]
        with pytest.raises(ServerFailed) as failed:
            await place.turnkeeper.agents.change(agent, {"name": "c"})
        assert (failed.value.error_code, failed.value.status) == ("http_error", 503)
        assert place.proxy.seen[changes] == 2

    run(work)


@pytest.mark.parametrize("fault", [Lose(), Say(BUSY), Cut(40)], ids=["lost", "busy", "cut"])
def test_whatever_is_made_is_made_once_whatever_happens_to_the_answer(run: Run, fault: Fault) -> None:
    async def work(place: Place) -> None:
        server, faults = place.turnkeeper, place.proxy.faults
        for path in ("agents", "sessions", "budgets", "api_keys", "webhook_endpoints"):
            faults[f"POST /v1/{path}"] = [fault]
        agent = await server.agents.create("once", AGENT["model"])
        session = await server.sessions.create(agent)
        budget = await server.budgets.create({"type": "agent", "id": agent.id}, {"max_model_calls": 9})
        key = await server.api_keys.create("once", scopes=["turns:read"])
        endpoint = await server.webhooks.create("https://example.com/hook")
        assert [one.id async for one in server.agents.list() if one.name == "once"] == [agent.id]
        assert [one.id async for one in server.sessions.list(agent_id=agent.id)] == [session.id]
        assert [one.id async for one in server.budgets.list(scope_id=agent.id)] == [budget.id]
        assert [one.id async for one in server.api_keys.list() if one.name == "once"] == [key.id]
        assert [one.id async for one in server.webhooks.list()] == [endpoint.id]

    run(work)


def test_retries_are_bounded_and_the_last_refusal_is_what_is_raised(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        place.proxy.faults["/turns"] = [Say("429 Too Many Requests", '{"code":"queue_full"}', OURS)] * 9
        with pytest.raises(TooMany) as full:
            await session.post_turn("hi")
        assert full.value.error_code == "queue_full"
        assert len(place.proxy.faults["/turns"]) == 9 - QUICK.max_attempts

    run(work)


def test_a_retry_after_beyond_patience_is_not_waited_for(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        later = OURS.replace("Retry-After: 0", "Retry-After: 3600")
        place.proxy.faults["/turns"] = [Say("429 Too Many Requests", '{"code":"queue_full"}', later)]
        with pytest.raises(TooMany):
            await session.post_turn("hi")

    run(work)


def test_a_refusal_says_what_where_and_under_which_request(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        with pytest.raises(RequestInvalid) as refused:
            await session.post_turn("hi", extra={"inptu": 1})
        problem = refused.value
        assert (problem.error_code, problem.status, problem.detail["param"]) == ("unknown_field", 400, "/inptu")
        assert problem.request_id is not None
        assert problem.request_id.startswith("req_")
        assert problem.hint is not None
        with pytest.raises(NotFound):
            await place.turnkeeper.turns.get("trn_nobody")
        await session.close()
        with pytest.raises(Conflict) as closed:
            await session.post_turn("hi")
        assert closed.value.error_code == "session_closed"

    run(work)


def test_a_wrong_key_is_refused_and_never_shown(run: Run) -> None:
    async def work(place: Place) -> None:
        with pytest.raises(KeyRefused) as refused:
            await place.turnkeeper.agents.get("agt_nobody")
        assert "tk_wrong" not in repr(refused.value) + str(refused.value) + repr(vars(place.turnkeeper))

    run(work, key="tk_wrong")


def test_lists_are_read_page_by_page(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        made = [(await session.post_turn(f"turn {number}")).id for number in range(3)]
        assert [turn.id async for turn in session.turns(order="asc")] == made
        assert [turn.id async for turn in session.turns(limit=2)] == made[:0:-1]
        assert [event.sequence async for event in session.events()] == [1, 2, 3, 4, 5]
        assert [one.id async for one in place.turnkeeper.sessions.list(agent_id=session.agent_id)] == [session.id]

    run(work)


async def numbered(events: Any) -> list[int | None]:
    """The sequences of a stream up to its end."""
    return [event.sequence async for event in events]


def test_a_turns_stream_ends_with_its_turn(run: Run) -> None:
    async def work(place: Place) -> None:
        turn = await (await place.session()).post_turn("hi")
        reading = asyncio.ensure_future(numbered(turn.stream()))
        await place.api.completed(await place.api.started())
        assert await reading == [2, 4, 5, 6]
        assert await numbered(turn.stream(after=6)) == []
        assert await numbered(turn.stream(types=["turn.completed"])) == [6]

    run(work)


async def read_up_to(last: int, stream: Any) -> list[int | None]:
    """The sequences of a stream up to one; then the reader leaves."""
    sequences: list[int | None] = []
    async with aclosing(aiter(stream)) as events:
        async for event in events:
            sequences.append(event.sequence)
            if event.sequence == last:
                break
    return sequences


def test_a_stream_that_is_cut_anywhere_loses_and_repeats_nothing(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        await session.post_turn("hi")
        claim = await place.api.started()
        for size in (10, 3_000, 10, 300):
            await text(place.api, claim, size)
        await place.api.completed(claim)
        last = (await session.refresh()).last_sequence
        for cut in (1, 200, 500, 700, 1_000, 1_500, 2_500, 9_000):
            spoiled: list[Fault] = [Cut(cut), Refuse(), Say(BUSY), Say("502 Bad Gateway"), Cut(cut + 77)]
            place.proxy.faults["/events/stream"] = spoiled
            assert await read_up_to(last, session.stream(after=0)) == list(range(1, last + 1)), cut

    run(work)


def test_a_stream_outlives_the_servers_own_ends_of_it(run: Run) -> None:
    """`max_age` every 50 milliseconds, while events are written."""

    async def work(place: Place) -> None:
        turn = await (await place.session()).post_turn("hi")
        seen: list[Event] = []

        async def read() -> None:
            seen.extend([event async for event in turn.stream()])

        reading = asyncio.ensure_future(read())
        claim = await place.api.started()
        while place.proxy.seen[f"GET /v1/turns/{turn.id}/events/stream"] < 3:
            await text(place.api, claim, 10)
            await asyncio.sleep(0.01)
        await place.api.completed(claim)
        await reading
        assert [event.sequence for event in seen] == [2, *range(4, len(seen) + 3)]
        assert seen[-1].ends_turn

    run(work, settings=ApiSettings(sse_max_age_ms=50, poll_ms=600_000))


def test_a_server_that_stays_away_ends_the_stream_and_the_wait(run: Run) -> None:
    async def work(place: Place) -> None:
        turn = await (await place.session()).post_turn("hi")
        place.proxy.faults["GET /v1/turns/"] = [Refuse()] * 10_000
        with pytest.raises(ServerUnreachable):
            await numbered(turn.stream())
        with pytest.raises(ServerUnreachable):
            await turn.wait(60_000)

    run(work, retries=Retries(max_attempts=2, first_backoff_ms=1, max_backoff_ms=10, outage_ms=100))


def test_a_wait_outlives_an_outage(run: Run) -> None:
    async def work(place: Place) -> None:
        turn = await (await place.session()).post_turn("hi")
        place.proxy.faults["GET /v1/turns/"] = [Refuse(), Say(BUSY), Refuse(), Cut(100), Say(BUSY)] * 4
        waiting = asyncio.ensure_future(turn.wait(60_000))
        await place.api.completed(await place.api.started())
        assert (await waiting).status == "completed"

    run(work)


def test_a_key_that_is_revoked_ends_the_stream(run: Run) -> None:
    async def work(place: Place) -> None:
        turn = await (await place.session()).post_turn("hi")
        reading = asyncio.ensure_future(numbered(turn.stream()))
        while not place.proxy.seen[f"GET /v1/turns/{turn.id}/events/stream"]:
            await asyncio.sleep(0.01)
        await place.api.store.revoke_key(place.api.key.id)
        with pytest.raises(KeyRefused):
            await reading

    run(work, settings=ApiSettings(sse_heartbeat_ms=20, poll_ms=600_000))


def test_a_file_is_uploaded_once_given_to_a_turn_and_got_back(run: Run) -> None:
    async def work(place: Place) -> None:
        place.proxy.faults["POST /v1/files"] = list(ANSWERS_SPOILED[0])
        file = await place.turnkeeper.files.upload(b"a,b", name="report.csv", media_type="text/csv")
        assert (file.name, file.media_type, file.bytes) == ("report.csv", "text/csv", 3)
        assert [found.id async for found in place.turnkeeper.files.list()] == [file.id]
        assert await place.turnkeeper.files.download(await place.turnkeeper.files.get(file.id)) == b"a,b"
        turn = await (await place.session()).post_turn([{"type": "file", "file_id": file.id}])
        assert await turn.artifacts() == []
        await place.turnkeeper.files.delete(file.id)
        with pytest.raises(NotFound):
            await place.turnkeeper.files.get(file.id)
        with pytest.raises(RequestInvalid):
            await (await place.session()).post_turn([{"type": "file", "file_id": file.id}])

    run(work)


def test_webhook_endpoints_are_made_changed_and_deleted(run: Run) -> None:
    async def work(place: Place) -> None:
        webhooks = place.turnkeeper.webhooks
        made = await webhooks.create("https://93.184.216.34/hooks", types=["turn.*"])
        assert made.secret is not None
        assert made.secret not in repr(made)
        assert (await webhooks.get(made.id)).secret is None
        assert (await webhooks.change(made.id, {"enabled": False})).enabled is False
        assert (await webhooks.rotate_secret(made.id)).secret != made.secret
        assert [endpoint.id async for endpoint in webhooks.list()] == [made.id]
        assert [delivery async for delivery in webhooks.deliveries(made.id)] == []
        await webhooks.delete(made.id)
        with pytest.raises(ApiProblem):
            await webhooks.get(made.id)

    run(work)


def test_a_turn_is_done_again_and_a_turn_brings_its_own_session(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        turn = await session.post_turn("hi")
        with pytest.raises(Conflict) as open_still:
            await turn.retry()
        assert open_still.value.error_code == "turn_not_terminal"
        await turn.cancel()
        place.proxy.faults["/retry"] = [Lose()]
        again = await turn.retry()
        assert (again.retry_of, again.input) == (turn.id, "hi")
        place.proxy.faults["POST /v1/turns"] = [Lose()]
        alone = await place.turnkeeper.turns.post(session.agent_id, "alone")
        assert alone.session_id != session.id
        assert await posted(place.api, alone.session_id) == 1
        assert await posted(place.api, session.id) == 2

    run(work)


def test_a_snapshot_is_where_a_stream_goes_on(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        turn = await session.post_turn("hi")
        snapshot = await session.snapshot()
        assert [queued.id for queued in snapshot.queued_turns] == [turn.id]
        await place.api.completed(await place.api.started())
        assert await read_up_to(7, session.stream(after=snapshot.as_of)) == [4, 5, 6, 7]
        assert (await session.stream_token(ttl_s=60)).token

    run(work)


def test_budgets_are_made_raised_and_archived(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        budgets = place.turnkeeper.budgets
        made = await budgets.create({"type": "session", "id": session.id}, {"max_total_tokens": 1_000}, window="day")
        assert (made.status, made.limits["max_total_tokens"]) == ("active", 1_000)
        raised = await budgets.change(made.id, {"limits": {"max_total_tokens": 2_000}})
        assert raised.limits["max_total_tokens"] == 2_000
        assert [budget.id async for budget in budgets.list()] == [made.id]
        await budgets.delete(made.id)
        assert (await budgets.get(made.id)).status == "archived"

    run(work)


def test_keys_are_made_with_less_rotated_and_revoked(run: Run) -> None:
    async def work(place: Place) -> None:
        keys = place.turnkeeper.api_keys
        made = await keys.create("reader", scopes=["turns:read"])
        assert made.secret is not None
        assert made.secret not in repr(made)
        assert (await keys.get(made.id)).secret is None
        assert (await keys.rotate(made.id, overlap_hours=0)).secret != made.secret
        assert made.id in [key.id async for key in keys.list()]
        assert (await keys.revoke(made.id)).revoked_at is not None

    run(work)


def test_an_agent_gets_versions_and_a_session_another_title(run: Run) -> None:
    async def work(place: Place) -> None:
        session = await place.session()
        agents = place.turnkeeper.agents
        first = await agents.get(session.agent_id)
        second = await agents.change(first, {"instructions": "Be brief."})
        with pytest.raises(Conflict):
            await agents.change(first, {"instructions": "Be verbose."})
        assert [agent.version for agent in await agents.versions(first.id)] == [second.version, first.version]
        assert (await session.change({"title": "renamed"})).title == "renamed"

    run(work)
