"""The ten endings with an answer (contract 5.1), each reached through the API with real boxes, each valid.

The validator used is the importable one a user has; the founding schema decides.
"""

import json
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from tests.acceptance.server import NO_WARM_BOXES, Json, Server
from tests.acceptance.stub import RESULT_SCHEMA, StubModel

from turnkeeper.events.founding import validate_turn_completed

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]

WRONG_SCHEMA = {**RESULT_SCHEMA, "properties": {"calls": {"type": "integer", "minimum": 100}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with the stub model for all endings."""
    with (
        StubModel() as model,
        Server(tmp_path_factory.mktemp("endings"), model.config(), environment={"STUB_KEY": "k"}) as running,
    ):
        yield running


def run_turn(server: Server, body: Json, *, session_budget: Json | None = None) -> tuple[Json, Json]:
    """The turn object and its terminal event's data."""
    agent = server.post(
        "/v1/agents",
        {"name": "a", "model": {"provider": "stub", "id": "m"}, "instructions": "Work.", "tools": ["shell"]},
    )
    opened: Json = {"agent_id": agent["id"]}
    if session_budget:
        opened["budget"] = session_budget
        session = server.post("/v1/sessions", opened)
        spent = server.post(f"/v1/sessions/{session['id']}/turns", {"input": "text=spent"})
        server.ended(spent["id"])
    else:
        session = server.post("/v1/sessions", opened)
    turn = server.ended(server.post(f"/v1/sessions/{session['id']}/turns", body)["id"])
    event = [event for event in server.events(session["id"]) if event["turn_id"] is not None][-1]
    assert event["turn_id"] == turn["id"]
    return turn, event


@pytest.mark.parametrize(
    ("case", "body", "session_budget", "expected"),
    [
        ("C1", {"input": "text=hello"}, None, ("end_turn", "sandbox", None, None)),
        ("C2", {"input": "tools=5", "budget": {"max_model_calls": 2}}, None, ("budget_reached", "sandbox", None, None)),
        ("C3", {"input": "tools=1", "output_schema": RESULT_SCHEMA}, None, ("end_turn", "sandbox", {"calls": 1}, None)),
        (
            "C4",
            {"input": "tools=1", "output_schema": RESULT_SCHEMA, "budget": {"max_model_calls": 2}},
            None,
            ("budget_reached", "sandbox", {"calls": 1}, None),
        ),
        (
            "C5",
            {"input": "submit=no", "output_schema": RESULT_SCHEMA},
            None,
            ("end_turn", "sandbox", None, "not_submitted"),
        ),
        (
            "C6",
            {"input": "tools=9", "output_schema": RESULT_SCHEMA, "budget": {"max_model_calls": 1}},
            None,
            ("budget_reached", "sandbox", None, "not_submitted"),
        ),
        (
            "C7",
            {"input": "tools=0", "output_schema": WRONG_SCHEMA, "max_repair_attempts": 1},
            None,
            ("end_turn", "sandbox", None, "invalid"),
        ),
        (
            "C8",
            {"input": "tools=1", "output_schema": WRONG_SCHEMA, "budget": {"max_model_calls": 2}},
            None,
            ("budget_reached", "sandbox", None, "invalid"),
        ),
        ("C9", {"input": "text=x"}, {"max_model_calls": 1}, ("budget_reached", "platform", None, None)),
        (
            "C10",
            {"input": "text=x", "output_schema": RESULT_SCHEMA},
            {"max_model_calls": 1},
            ("budget_reached", "platform", None, "not_submitted"),
        ),
    ],
)
def test_each_legal_ending_is_reached_and_validates(
    server: Server,
    case: str,
    body: Json,
    session_budget: Json | None,
    expected: tuple[str, str, Json | None, str | None],
) -> None:
    """stop_reason, source, result and result_error are the table's; the data validates; the turn object equals it."""
    turn, event = run_turn(server, {**body, "metadata": {"case": case}}, session_budget=session_budget)
    assert event["type"] == "turn.completed", (case, event)
    data = event["data"]
    validate_turn_completed(data)
    assert (data["stop_reason"], event["source"], data["result"], data["result_error"]) == expected
    assert {key: turn[key] for key in data if key != "turn_id"} == {k: v for k, v in data.items() if k != "turn_id"}
    assert data["turn_id"] == turn["id"]


def put_prices(server: Server, model: str) -> None:
    """A dollar for 100 tokens, whichever."""
    dollars = {"amount": "10000", "currency": "USD"}
    rows = [{"model": model, "kind": kind, "per_million": dollars} for kind in ("input", "output")]
    with server.client() as client:
        assert client.put("/v1/model_prices", json={"prices": rows}).status_code == 200


def test_a_cost_budget_ends_in_an_answer_and_every_cost_is_the_ledgers(server: Server) -> None:
    """C2 by money: the sums of the calls are the turn's cost, and the turn never cost more than its budget."""
    put_prices(server, "stub/m")
    limit = {"max_cost": {"amount": "60", "currency": "USD"}}

    turn, event = run_turn(server, {"input": "tools=50", "budget": limit})

    validate_turn_completed(event["data"])
    ledger = server.get(f"/v1/turns/{turn['id']}/usage")
    costs = [Decimal(call["settled"]["cost"]["amount"]) for call in ledger["calls"]]
    assert (turn["stop_reason"], event["source"]) == ("budget_reached", "sandbox")
    assert costs
    assert sum(costs) == Decimal(turn["usage"]["cost"]["amount"]) <= 60


def test_a_keys_budget_that_is_gone_ends_its_next_turn_at_the_front(server: Server) -> None:
    """C9 and C10 by a budget of the key, and `budget.reached` says which one it was."""
    key_id = server.get("/v1/api_keys")["data"][0]["id"]
    made = server.post("/v1/budgets", {"scope": {"type": "api_key", "id": key_id}, "limits": {"max_model_calls": 1}})
    try:
        run_turn(server, {"input": "text=spent"})
        plain, event = run_turn(server, {"input": "text=x"})
        formed, _ = run_turn(server, {"input": "text=x", "output_schema": RESULT_SCHEMA})
    finally:
        with server.client() as client:
            archived = client.delete(f"/v1/budgets/{made['id']}").json()

    reached = [seen for seen in server.events(event["session_id"]) if seen["type"] == "budget.reached"]
    assert (event["source"], plain["stop_reason"], plain["result_error"]) == ("platform", "budget_reached", None)
    assert (formed["stop_reason"], formed["result_error"]) == ("budget_reached", "not_submitted")
    assert [seen["data"]["budget_id"] for seen in reached] == [made["id"]]
    assert archived["used"] == {"max_model_calls": 1}


def test_metadata_comes_back_token_for_token(server: Server) -> None:
    """Key order and number spelling as sent, in the turn object and in the event (amendment 9)."""
    agent = server.post("/v1/agents", {"name": "a", "model": {"provider": "stub", "id": "m"}, "instructions": "x"})
    session = server.post("/v1/sessions", {"agent_id": agent["id"]})
    raw = '{"z": 1.0, "a": [1e2, "\\u0000é"], "big": 12345678901234567890}'
    with server.client() as client:
        body = f'{{"input": "text=ok", "metadata": {raw}}}'.encode()
        posted = client.post(
            f"/v1/sessions/{session['id']}/turns", content=body, headers={"Content-Type": "application/json"}
        )
        turn_id = posted.json()["id"]
        server.ended(turn_id)
        wanted = raw.replace(": ", ":").replace(", ", ",")
        assert wanted in client.get(f"/v1/turns/{turn_id}").text
        assert wanted in client.get(f"/v1/sessions/{session['id']}/events?limit=1000").text


def test_a_turn_ends_denied_when_the_guardian_refuses_its_start(tmp_path: Path) -> None:
    """failed, denied_at_start, and a turnEnd `denied_at_start` in the chain."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "version: 1\nname: closed\ndefault: allow\nrules:\n"
        "  - {id: no-turns, hooks: [turnStart], decision: deny, reasoning: Not today., reason_codes: [closed]}\n"
    )
    with (
        StubModel() as model,
        Server(
            tmp_path / "s",
            model.config(f'[guardian]\npolicy = "{policy}"\n{NO_WARM_BOXES}'),
            environment={"STUB_KEY": "k"},
        ) as closed,
    ):
        turn, event = run_turn(closed, {"input": "text=x"})
        assert (turn["status"], turn["stop_reason"]) == ("failed", "denied_at_start")
        closed.post(f"/v1/sessions/{event['session_id']}/close", {"mode": "drain"})
        rows = wait_for_turn_end(closed, event["session_id"])
        ends = [row["request"]["params"]["payload"] for row in rows if row["request"]["method"] == "steps/turnEnd"]
        assert [end["outcome"] for end in ends] == ["denied_at_start"]
        assert ends[0]["step_count"] == 0
        assert model.bodies == []


def wait_for_turn_end(server: Server, session_id: str, *, timeout_s: float = 20) -> list[Json]:
    """The export once a turnEnd is in it."""
    deadline = time.monotonic() + timeout_s
    while True:
        rows = server.export(session_id)
        if any(row["request"]["method"] == "steps/turnEnd" for row in rows):
            return rows
        assert time.monotonic() < deadline, json.dumps(rows)[:2000]
        time.sleep(0.1)
