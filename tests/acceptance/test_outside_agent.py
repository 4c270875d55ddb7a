"""An agent that is not ours, under the Guardian that `serve` opens at `/acs`, across kill -9."""

from pathlib import Path

import httpx
import pytest
from tests.acceptance.outside_agent import HELLO, OutsideAgent
from tests.acceptance.server import NO_WARM_BOXES, Server

from turnkeeper.acs.observed import Refusal, Verdict

POLICY = """\
version: 1
name: three-calls
default: allow
rules:
  - id: at-most-three-tool-calls
    hooks: [toolCallRequest]
    when: turn.tool_calls > 3
    decision: deny
    reasoning: A turn may call three tools.
    reason_codes: [tool_call_limit]
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def guarded(tmp_path: Path) -> Server:
    """A server under the three-calls policy."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    return Server(tmp_path, f'[guardian]\npolicy = "{policy}"\n{NO_WARM_BOXES}')


def outside(server: Server, session_id: str | None = None) -> OutsideAgent:
    """A client with the key file of the data dir."""
    return OutsideAgent(f"{server.url}/acs", server.data_dir / "guardian" / "default.key", session_id=session_id)


def test_a_limit_per_turn_counts_across_kill_9_and_starts_anew_with_the_next_turn(tmp_path: Path) -> None:
    """Calls 1 to 3 run, 4 is denied; after kill -9 call 5 is denied; after turnEnd and turnStart call 1 runs."""
    with guarded(tmp_path) as server:
        agent = outside(server)
        agent.hello()
        assert agent.start_turn("turn-1") == "allow"
        assert [agent.call_tool("turn-1") for _ in range(4)] == ["allow", "allow", "allow", "deny"]
        server.kill()
        server.start()
        assert agent.call_tool("turn-1") == "deny"
        ended = agent.end_turn("turn-1", step_count=5, tool_call_count=5)
        assert isinstance(ended, Verdict)
        assert ended.reason_codes == ()
        assert agent.start_turn("turn-2") == "allow"
        assert agent.call_tool("turn-2") == "allow"


def test_opening_turns_does_not_clear_the_count_of_the_open_one(tmp_path: Path) -> None:
    """A second turnStart, a turnEnd of another turn and steps of a foreign turn all leave the window as it is."""
    with guarded(tmp_path) as server:
        agent = outside(server)
        agent.hello()
        agent.start_turn("turn-1")
        for _ in range(3):
            agent.call_tool("turn-1")
        agent.start_turn("turn-2")
        foreign = agent.end_turn("turn-9")
        assert isinstance(foreign, Verdict)
        assert str(foreign.decision) == "allow"
        assert "turn_mismatch" in foreign.reason_codes
        assert agent.call_tool("turn-2") == "deny"
        assert agent.call_tool(None) == "deny"


def test_a_request_answered_before_the_crash_is_a_replay_after_it(tmp_path: Path) -> None:
    """The same bytes again are refused; the same id signed afresh learns what was decided."""
    with guarded(tmp_path) as server:
        agent = outside(server)
        agent.hello()
        agent.start_turn("turn-1")
        payload = {"tool": {"name": "shell"}, "arguments": {"command": {"value": "true"}}}
        request_id, body = agent.signed("steps/toolCallRequest", payload, turn_id="turn-1")
        first = agent.send(request_id, body)
        assert isinstance(first, Verdict)
        server.kill()
        server.start()
        copied = agent.send(request_id, body)
        assert isinstance(copied, Refusal)
        assert (copied.code, copied.recorded) == (-32005, None)
        again = agent.send(*agent.signed("steps/toolCallRequest", payload, turn_id="turn-1", request_id=request_id))
        assert isinstance(again, Refusal)
        assert again.recorded is not None
        assert (again.recorded.decision, again.recorded.chain_hash) == (first.decision, first.chain_hash)


def test_the_platforms_own_key_opens_nothing_at_the_door_for_outsiders(tmp_path: Path) -> None:
    """Whoever reads `platform.key` still cannot speak as the platform over HTTP."""
    with guarded(tmp_path) as server:
        secret = server.data_dir / "guardian" / "platform.key"
        intruder = OutsideAgent(f"{server.url}/acs", secret, key_id="platform")
        _, body = intruder.signed("handshake/hello", HELLO)
        answer = httpx.post(f"{server.url}/acs", content=body, trust_env=False).json()
        assert answer["error"]["code"] == -32004
        assert "signature" not in answer["error"]


def test_export_and_verify_work_beside_a_running_server_and_find_a_changed_byte(tmp_path: Path) -> None:
    """The exported file verifies with the key alone; with one letter changed it does not, and it says where."""
    with guarded(tmp_path) as server:
        agent = outside(server)
        agent.hello()
        agent.start_turn("turn-1")
        agent.call_tool("turn-1")
        agent.end_turn("turn-1", step_count=1, tool_call_count=1)
        exported = server.command("export", agent.session_id)
        assert exported.returncode == 0, exported.stderr
        assert len(exported.stdout.splitlines()) >= 4
        kept = tmp_path / "export.jsonl"
        kept.write_text(exported.stdout)
        secret = ("--secret-file", str(server.data_dir / "guardian" / "default.key"))
        good = server.command("verify", str(kept), *secret)
        assert good.returncode == 0, good.stdout + good.stderr
        kept.write_text(exported.stdout.replace('"value":"true"', '"value":"trve"', 1))
        bad = server.command("verify", str(kept), *secret)
        assert bad.returncode == 1
        assert "request_hash" in bad.stdout or "signature" in bad.stdout
