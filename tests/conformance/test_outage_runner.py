"""The public outage corpus through this client, and this client's own outage through the corpus's reader."""

import asyncio
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_evidence_vectors.acs_outage.reader import judge as reference_judge
from tests.conformance.outage_runner import enact, judge

TERMS: dict[str, Any] = {
    "negotiated_version": "0.1.0",
    "methods_evaluated": ["steps/toolCallRequest"],
    "selected_transport": "http",
    "timeout_config": {"default_ms": 5_000},
}
STEP: dict[str, Any] = {
    "session_id": "s",
    "guardian": "unreachable",
    "hook_env": {},
    "hook_decision": "allow",
    "marker_delta": 1,
}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_client_answers_every_case_of_the_corpus_as_the_corpus_does(tmp_path: Path) -> None:
    """A process per case, as the corpus runs a verifier."""
    program = Path(__file__).with_name("outage_runner.py")
    command = [sys.executable, "-m", "agent_evidence_vectors.acs_outage.run", "--output", str(tmp_path / "report")]
    verifier = shlex.join([sys.executable, str(program)])
    done = subprocess.run([*command, "--verifier", verifier], capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert (report["answered"], report["failures"]) == (report["total"], [])
    assert report["total"] > 0


@pytest.mark.parametrize(
    ("cache", "reason"),
    [
        (TERMS | {"on_decision_failure": "proceed"}, "cached_proceed_applied_and_audited"),
        (TERMS | {"on_decision_failure": "deny"}, "cached_deny_applied_and_audited"),
        (TERMS, "cached_proceed_applied_and_audited"),
        (None, "startup_default_proceed_audited"),
    ],
)
@pytest.mark.parametrize("wished", ["", "proceed", "deny"])
def test_the_corpus_finds_nothing_against_what_this_client_does(
    cache: dict[str, Any] | None, reason: str, wished: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No environment changes it."""
    step = STEP | {"session_cache": cache, "hook_env": {"ACS_ON_DECISION_FAILURE": wished} if wished else {}}
    monkeypatch.setenv("ACS_ON_DECISION_FAILURE", wished)
    ours = asyncio.run(enact(step)).as_step(step)
    assert reference_judge(ours) == {"decision": "supported", "reason": reason}


@pytest.mark.parametrize("case", [None, [], {}, {"step": 1}, {"step": STEP | {"guardian": "reachable"}}])
def test_what_is_no_step_in_an_outage_gets_no_verdict(case: object) -> None:
    assert judge(case) == ("no_verdict", "malformed_step")


def test_a_step_that_disagrees_is_found_out() -> None:
    """The runner can say no."""
    assert judge({"step": STEP | {"hook_decision": "deny", "marker_delta": 0}})[0] == "contradicted"
