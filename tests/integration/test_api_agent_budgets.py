"""An agent's own budget (contract 2.1 and 8): made with the agent, over all of its versions, kept as a budget."""

from pathlib import Path

from tests.integration.api_door import AGENT, Api, serve


def test_an_agents_own_budget_is_a_budget_over_it_and_holds_its_turns(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        agent = await api.made("/v1/agents", {**AGENT, "budget": {"max_model_calls": 2}})
        budget = await api.seen(f"/v1/budgets/{agent['budget_id']}")
        assert (budget["scope"], budget["limits"]) == ({"type": "agent", "id": agent["id"]}, {"max_model_calls": 2})
        assert (await api.seen(f"/v1/agents/{agent['id']}/versions/1"))["budget_id"] == budget["id"]
        session = await api.made("/v1/sessions", {"agent_id": agent["id"]})
        turn = await api.turn(session["id"])
        assert await api.store.budget_left(turn["id"])
        await api.client.patch(f"/v1/budgets/{budget['id']}", json={"limits": {"max_model_calls": 1}})
        fence = (await api.started()).fence
        await api.store.reserve(fence, input_tokens=1, max_output_tokens=300)
        assert not await api.store.budget_left(turn["id"])

    serve(tmp_path, work)


def test_an_agents_budget_that_cannot_be_is_refused_and_no_agent_made(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        unpriced = {**AGENT, "budget": {"max_cost": {"amount": "1", "currency": "USD"}}}
        assert (await api.refused("POST", "/v1/agents", json=unpriced))["code"] == "price_unknown"
        wrong = {**AGENT, "budget": {"max_model_calls": 0}}
        assert (await api.refused("POST", "/v1/agents", json=wrong))["code"] == "budget_invalid"
        assert (await api.seen("/v1/agents"))["data"] == []
        agent = await api.made("/v1/agents", AGENT)
        change = {"expected_version": 1, "budget": {"max_model_calls": 1}}
        problem = await api.refused("POST", f"/v1/agents/{agent['id']}", json=change)
        assert (problem["code"], problem["param"]) == ("not_supported_yet", "/budget")

    serve(tmp_path, work)
