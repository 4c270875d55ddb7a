"""Budgets, prices and usage over the API (contract 2.7, 2.13, 4 and 8)."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.integration.api_door import Api, Json, serve

MODEL = "stub/m"
DOLLAR = {"amount": "1", "currency": "USD"}


def a_price(kind: str, amount: str, **fields: Any) -> Json:
    return {"model": MODEL, "kind": kind, "per_million": {"amount": amount, "currency": "USD"}, **fields}


def with_api(test: Callable[[Api], Awaitable[None]]) -> Callable[[Path], None]:
    """A test of a fresh API as one that pytest can run."""

    def run(tmp_path: Path) -> None:
        serve(tmp_path, test)

    run.__name__ = test.__name__
    return run


async def put_prices(api: Api, *prices: Json) -> Json:
    answer = await api.client.put("/v1/model_prices", json={"prices": list(prices)})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def a_budget(api: Api, scope: Json, **fields: Any) -> Json:
    return await api.made("/v1/budgets", {"scope": scope, "limits": {"max_model_calls": 10}, **fields})


@with_api
async def test_a_budget_is_made_shown_changed_and_archived(api: Api) -> None:
    made = await a_budget(api, {"type": "project"}, window="day", timezone="Europe/Berlin", warn_at=[50, 90])
    path = f"/v1/budgets/{made['id']}"

    changed = (await api.client.patch(path, json={"limits": {"max_model_calls": 20, "max_tool_calls": 3}})).json()
    archived = (await api.client.delete(path)).json()

    assert (made["status"], made["used"], made["warn_at"]) == ("active", {"max_model_calls": 0}, [50, 90])
    assert made["resets_at"] is not None
    assert changed["limits"] == {"max_model_calls": 20, "max_tool_calls": 3}
    assert (archived["status"], (await api.seen(path))["status"]) == ("archived", "archived")
    assert (await api.refused("PATCH", path, json={"limits": {"max_model_calls": 1}}))["code"] == "budget_archived"


@with_api
async def test_budgets_are_listed_by_what_they_hold(api: Api) -> None:
    session_id = await api.session(budget={"max_total_tokens": 5_000})
    await a_budget(api, {"type": "project"})

    listed = await api.seen(f"/v1/budgets?scope_id={session_id}")

    assert [budget["scope"] for budget in listed["data"]] == [{"type": "session", "id": session_id}]
    assert (await api.seen(f"/v1/sessions/{session_id}"))["budget_id"] == listed["data"][0]["id"]


@with_api
async def test_a_budget_that_holds_nothing_that_is_there_is_refused(api: Api) -> None:
    agent = {"type": "agent", "id": "agt_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"}
    bodies: list[tuple[Json, str]] = [
        ({"scope": agent, "limits": {"max_model_calls": 1}}, "not_found"),
        ({"scope": {"type": "session", "id": "ses_1"}, "limits": {"max_model_calls": 1}}, "invalid_field"),
        ({"scope": {"type": "project"}, "limits": {}}, "budget_invalid"),
        ({"scope": {"type": "project"}, "limits": {"max_cost": {"amount": "0", "currency": "USD"}}}, "budget_invalid"),
        ({"scope": {"type": "project"}, "limits": {"max_cost": {"amount": 1.5, "currency": "USD"}}}, "budget_invalid"),
        ({"scope": {"type": "project"}, "limits": {"max_model_calls": 1}, "timezone": "Mars/Base"}, "invalid_field"),
        ({"scope": {"type": "project"}, "limits": {"max_model_calls": 1}, "warn_at": [80, 80]}, "invalid_field"),
    ]
    for body, code in bodies:
        assert (await api.refused("POST", "/v1/budgets", json=body))["code"] == code, body


@with_api
async def test_a_cost_budget_on_a_model_without_a_price_is_refused_wherever_it_is_posted(api: Api) -> None:
    session_id = await api.session()
    agent_id = (await api.seen(f"/v1/sessions/{session_id}"))["agent_id"]
    budget = {"max_cost": DOLLAR}
    scope = {"type": "agent", "id": agent_id}
    turns = f"/v1/sessions/{session_id}/turns"

    refusals = [
        await api.refused("POST", turns, json={"input": "hi", "budget": budget}),
        await api.refused("POST", "/v1/sessions", json={"agent_id": agent_id, "budget": budget}),
        await api.refused("POST", "/v1/budgets", json={"scope": scope, "limits": budget}),
    ]
    await api.made("/v1/budgets", {"scope": {"type": "project"}, "limits": budget})
    refusals.append(await api.refused("POST", turns, json={"input": "hi"}))

    assert [refusal["code"] for refusal in refusals] == ["price_unknown"] * 4
    await put_prices(api, a_price("input", "3"), a_price("output", "15"))
    assert (await api.turn(session_id, budget=budget))["budget"] == budget


@with_api
async def test_the_price_table_comes_back_as_it_was_put(api: Api) -> None:
    rows = [
        a_price("output", "15", valid_from="2026-01-01T00:00:00.000Z"),
        a_price("input", "0.15", valid_from="2026-01-01T00:00:00.000Z"),
    ]

    put = await put_prices(api, *rows)

    assert put["prices"] == rows == (await api.seen("/v1/model_prices"))["prices"]
    await put_prices(api)
    assert (await api.seen("/v1/model_prices"))["prices"] == []


@with_api
async def test_prices_that_contradict_each_other_are_refused(api: Api) -> None:
    euro = {"model": MODEL, "kind": "output", "per_million": {"amount": "1", "currency": "EUR"}}
    twice = a_price("input", "1", valid_from="2026-01-01T00:00:00Z")
    for rows in ([a_price("input", "1"), euro], [twice, twice], [a_price("input", "0.1234567")], [{"kind": "input"}]):
        assert (await api.refused("PUT", "/v1/model_prices", json={"prices": rows}))["code"] == "invalid_field"


@with_api
async def test_usage_can_be_seen_by_turn_session_and_group(api: Api) -> None:
    session_id = await api.session()
    turn = await api.turn(session_id)

    ledger = await api.seen(f"/v1/turns/{turn['id']}/usage")
    groups = await api.seen("/v1/usage?group_by=session")

    assert (ledger["calls"], ledger["usage"]["cost"]) == ([], {"amount": "0", "currency": "USD"})
    assert [group["key"] for group in groups["data"]] == [session_id]
    assert (await api.seen(f"/v1/sessions/{session_id}"))["usage"]["total_tokens"] == 0
    for query in ("group_by=week", "from=yesterday", "from=2027-01-01T00:00:00Z&to=2026-01-01T00:00:00Z"):
        assert (await api.refused("GET", f"/v1/usage?{query}"))["code"] == "invalid_field"
