"""Which hosts agents and sessions may be given over the API (contract 2.1 and 2.2)."""

from pathlib import Path

import pytest
from tests.integration.api_door import AGENT, Api, Json, serve

from turnkeeper.api.deps import ApiSettings
from turnkeeper.destinations import parse_rules
from turnkeeper.turns.model import Network

LENT = ApiSettings(egress=parse_rules(["*.example.com", "api.test:8443"]))


def agent(network: Json) -> Json:
    return {**AGENT, "sandbox": {"network": network}}


def test_an_agent_and_its_session_show_the_hosts_they_were_given_and_keep_them(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        given = {"egress": "listed", "allow": ["www.example.com", "api.test:8443"]}
        made = await api.made("/v1/agents", agent(given))
        assert made["sandbox"]["network"] == given
        session = await api.made(
            "/v1/sessions", {"agent_id": made["id"], "network": {"allow": ["www.example.com:443"]}}
        )
        assert session["network"] == {"egress": "listed", "allow": ["www.example.com:443"]}
        changed = await api.made(f"/v1/agents/{made['id']}", {"instructions": "New.", "expected_version": 1})
        assert changed["sandbox"]["network"] == given
        await api.turn(session["id"])
        claim = await api.store.claim("worker", slot=True)
        assert claim is not None
        assert claim.agent.network == Network(("www.example.com", "api.test:8443"))
        assert claim.session.network == Network(("www.example.com:443",))

    serve(tmp_path, work, LENT)


def test_without_a_word_there_is_no_network(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        made = await api.made("/v1/agents", AGENT)
        assert made["sandbox"]["network"] == {"egress": "none", "allow": []}
        assert (await api.made("/v1/sessions", {"agent_id": made["id"]}))["network"] is None

    serve(tmp_path, work, LENT)


@pytest.mark.parametrize(
    ("network", "at"),
    [
        ({"allow": ["www.example.org"]}, "allow"),
        ({"allow": ["example.com"]}, "allow"),
        ({"allow": ["www.example.com:22"]}, "allow"),
        ({"allow": ["*"]}, "allow"),
        ({"allow": ["10.0.0.0/8"]}, "allow"),
        ({"allow": ["http://www.example.com/"]}, "allow"),
        ({"allow": "www.example.com"}, "allow"),
        ({"egress": "none", "allow": ["www.example.com"]}, "allow"),
        ({"egress": "all"}, "egress"),
        ({"deny": []}, "deny"),
    ],
)
def test_more_than_the_operator_lends_is_refused_for_agents_and_sessions(
    tmp_path: Path, network: Json, at: str
) -> None:
    async def work(api: Api) -> None:
        problem = await api.refused("POST", "/v1/agents", json=agent(network))
        assert (problem["status"], problem["param"]) == (400, f"/sandbox/network/{at}")
        known = await api.made("/v1/agents", AGENT)
        problem = await api.refused("POST", "/v1/sessions", json={"agent_id": known["id"], "network": network})
        assert (problem["status"], problem["param"]) == (400, f"/network/{at}")

    serve(tmp_path, work, LENT)


def test_an_operator_who_lends_nothing_is_asked_in_vain(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        problem = await api.refused("POST", "/v1/agents", json=agent({"allow": ["www.example.com"]}))
        assert problem["param"] == "/sandbox/network/allow"

    serve(tmp_path, work)
