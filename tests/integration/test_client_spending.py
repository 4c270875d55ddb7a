"""Prices, usage, the queue and filtered lists through the SDK, both halves, against a real server."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.integration.api_door import AGENT, Api
from tests.integration.both_halves import HALVES, client_of
from tests.integration.test_api_streams import Door, listening

from turnkeeper.client import AsyncTurnkeeper, RequestInvalid

PRICE = {"model": "p/m", "kind": "input", "per_million": {"amount": "2.5", "currency": "USD"}}

Work = Callable[[Api, AsyncTurnkeeper], Awaitable[None]]


@pytest.fixture(params=HALVES)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Work], None]:
    """Runs a piece of work with either half of the client."""

    def run(work: Work) -> None:
        async def at_door(door: Door) -> None:
            async with client_of(request.param, str(door.client.base_url), door.api.secret) as turnkeeper:
                await work(door.api, turnkeeper)

        listening(tmp_path, at_door, None)

    return run


def test_a_price_table_is_put_and_read_again(run: Callable[[Work], None]) -> None:
    async def work(_api: Api, turnkeeper: AsyncTurnkeeper) -> None:
        assert (await turnkeeper.model_prices.get()).prices == ()
        put = await turnkeeper.model_prices.put([PRICE])
        again = await turnkeeper.model_prices.put(put.prices)
        cost = again.prices[0].per_million
        assert cost is not None
        assert (again.prices[0].model, cost.amount, cost.currency) == ("p/m", "2.5", "USD")
        with pytest.raises(RequestInvalid):
            await turnkeeper.model_prices.put([PRICE | {"kind": "unheard_of"}])

    run(work)


def test_usage_is_summed_by_group_and_shown_by_turn(run: Callable[[Work], None]) -> None:
    async def work(api: Api, turnkeeper: AsyncTurnkeeper) -> None:
        agent = await turnkeeper.agents.create("a", AGENT["model"])
        turn = await (await turnkeeper.sessions.create(agent)).post_turn("hi")
        await api.completed(await api.started())
        used = await turn.usage_ledger()
        assert (used.turn_id, len(used.calls)) == (turn.id, 0)
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        report = await turnkeeper.usage.get("agent", since=tomorrow - timedelta(days=2), until=tomorrow)
        assert report.group_by == "agent"
        assert [group.key for group in report.data] in ([], [agent.id])

    run(work)


def test_lists_are_narrowed_by_what_is_asked_for(run: Callable[[Work], None]) -> None:
    async def work(api: Api, turnkeeper: AsyncTurnkeeper) -> None:
        session = await turnkeeper.sessions.create(await turnkeeper.agents.create("a", AGENT["model"]))
        turns = [await session.post_turn("hi") for _ in range(2)]
        await api.completed(await api.started())
        done = [turn.id async for turn in turnkeeper.turns.list(status="completed", stop_reason="end_turn")]
        waiting = [turn.id async for turn in session.turns(status="queued")]
        assert (done, waiting) == ([turns[0].id], [turns[1].id])
        later = datetime.now(UTC) + timedelta(days=1)
        assert [found.id async for found in turnkeeper.sessions.list(created_after=later)] == []
        assert (await turnkeeper.admin.queue()).depth == 1

    run(work)
