"""Between the platform and its Guardian stands a proxy that loses, delays, doubles and spoils messages.

Each accepted turn still has one terminal event; each answered turnStart exactly one turnEnd entry, before the next
turnStart; none after sessionEnd; the Guardian's chains verify and its own counts agree with ours.
"""

import json
import time
from pathlib import Path

import pytest
from tests.acceptance.invariants import TERMINAL_EVENTS, check_export, check_verifies
from tests.acceptance.proxy import FAULTS, Fault, FaultProxy, Plan, plan_each, plan_random
from tests.acceptance.server import NO_WARM_BOXES, Json, Server
from tests.acceptance.stub import RESULT_SCHEMA, StubModel
from tests.acceptance.test_chaos import new_session, wait_closed

DECISION_TIMEOUT_MS = 3000
DELAY_S = 4.0
DELIVERED_WITHIN_S = 40.0
RANDOM_SEEDS = (1, 2, 3)

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]


def guarded_config(model: StubModel, guardian: Server, proxy: FaultProxy) -> str:
    """The settings of a platform whose Guardian is another process behind the proxy."""
    secret = guardian.data_dir / "guardian" / "default.key"
    return model.config(
        "[guardian]\n"
        f'url = "{proxy.url}"\nsecret_file = "{secret}"\nkey_id = "default"\n'
        f"decision_timeout_ms = {DECISION_TIMEOUT_MS}\n{NO_WARM_BOXES}"
    )


def run_two_turns(tmp_path: Path, plan: Plan) -> FaultProxy:
    """Two turns with tool calls and a close through the proxy, then every invariant."""
    environment = {"STUB_KEY": "k"}
    with (
        StubModel() as model,
        Server(tmp_path / "guardian", model.config(NO_WARM_BOXES), environment=environment) as guardian,
        FaultProxy(f"{guardian.url}/acs", plan, delay_s=DELAY_S) as proxy,
        Server(tmp_path / "platform", guarded_config(model, guardian, proxy), environment=environment) as platform,
    ):
        session = new_session(platform)
        turns = [
            platform.post(
                f"/v1/sessions/{session}/turns", {"input": "tools=2 text=fine", "output_schema": RESULT_SCHEMA}
            )
            for _ in range(2)
        ]
        for turn in turns:
            platform.ended(turn["id"], timeout_s=120)
        platform.post(f"/v1/sessions/{session}/close", {"mode": "drain"})
        wait_closed(platform, [session], timeout_s=60)
        check_terminals(platform, session, turns)
        check_guardian(guardian)
        return proxy


def check_terminals(platform: Server, session: str, turns: list[Json]) -> None:
    """One terminal event per turn."""
    ended = [event["turn_id"] for event in platform.events(session) if event["type"] in TERMINAL_EVENTS]
    assert sorted(ended) == sorted(turn["id"] for turn in turns)


def check_guardian(guardian: Server) -> None:
    """The Guardian's own record: pairs balance, the chain ends with sessionEnd, the verifier is content."""
    listing = guardian.command("verify", "--json")
    assert listing.returncode == 0, listing.stdout
    sessions = session_ids(guardian)
    assert len(sessions) == 1
    check_export(wait_for_the_end(guardian, sessions[0]))
    check_verifies(guardian)


def wait_for_the_end(guardian: Server, session_id: str) -> list[Json]:
    """The export once sessionEnd is its last entry: the outbox sends it after the session has closed."""
    deadline = time.monotonic() + DELIVERED_WITHIN_S
    while True:
        rows = guardian.export(session_id)
        entries = [row["request"]["method"] for row in rows if row["entry"] is not None]
        if entries[-1] == "steps/sessionEnd":
            return rows
        assert time.monotonic() < deadline, f"the last entry is still {entries[-1]}"
        time.sleep(0.2)


def session_ids(guardian: Server) -> list[str]:
    """The sessions a Guardian keeps, as its verifier lists them."""
    report = json.loads(guardian.command("verify", "--json").stdout)
    return [str(session["session_id"]) for session in report["sessions"]]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_kind_of_message_leaves_pairs_balanced(tmp_path: Path, fault: Fault) -> None:
    """The first message of each kind suffers the fault; the repeat must neither double nor lose it."""
    proxy = run_two_turns(tmp_path, plan_each(fault))
    assert proxy.faults[fault] >= 8, f"the proxy hardly met a message: {proxy.seen}"


@pytest.mark.parametrize("seed", RANDOM_SEEDS)
def test_random_faults_leave_pairs_balanced(tmp_path: Path, seed: int) -> None:
    """A third of all messages suffers something."""
    proxy = run_two_turns(tmp_path, plan_random(seed, share=0.33))
    assert sum(proxy.faults[fault] for fault in FAULTS) > 0
