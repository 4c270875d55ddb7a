"""What the how-tos of the Guardian show works as it is shown."""

import re
import shutil
import subprocess
from pathlib import Path

import orjson
import pytest
from tests.acceptance.server import run_command

from turnkeeper.acs import KeyUnknown
from turnkeeper.api.agent_mcp import parse_mcp_servers
from turnkeeper.api.fields import Fields
from turnkeeper.datadir import DataDir
from turnkeeper.destinations import parse_rules
from turnkeeper.turns.model import Network
from turnkeeper.wiring.keys import outside_keys, stored_keyring

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in one language, in order."""
    text = (HOW_TO / f"{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_policy_of_the_how_to_is_served_and_passes_the_test_beside_it(tmp_path: Path) -> None:
    house = tmp_path / "house"
    (house / "tests").mkdir(parents=True)
    (house / "policy.yaml").write_text(blocks("write-a-policy", "yaml")[0])
    (house / "tests" / "limits.yaml").write_text(blocks("write-a-policy", "yml")[0])
    done = run_command("policy", "test", str(house), home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rule_that_asks_is_a_policy_and_the_client_that_cannot_wait_a_setting(tmp_path: Path) -> None:
    policy, settings = tmp_path / "ask.yaml", tmp_path / "turnkeeper.toml"
    policy.write_text(blocks("approvals", "yaml")[0])
    settings.write_text(blocks("approvals", "toml")[0])
    assert run_command("policy", "check", str(policy), home=tmp_path).returncode == 0
    shown = run_command("config", "show", "--config", str(settings), home=tmp_path)
    assert (shown.returncode, "crawler" in shown.stdout) == (0, True), shown.stderr


def test_the_hosts_of_the_how_to_are_a_setting_and_its_policy_can_be_served(tmp_path: Path) -> None:
    policy, settings = tmp_path / "builders.yaml", tmp_path / "turnkeeper.toml"
    policy.write_text(blocks("network", "yaml")[0])
    settings.write_text(blocks("network", "toml")[0])
    assert run_command("policy", "check", str(policy), home=tmp_path).returncode == 0
    shown = run_command("config", "show", "--config", str(settings), home=tmp_path)
    assert (shown.returncode, "*.files.example.org" in shown.stdout) == (0, True), shown.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_label_opens_once_it_is_made_and_nothing_once_it_is_revoked(tmp_path: Path) -> None:
    folder, label = DataDir(tmp_path), "crawler-2026-11"
    folder.prepare()
    keys = outside_keys(folder)
    make, revoke = (block.replace("DATA_DIR", str(tmp_path)) for block in blocks("keys", "sh"))
    subprocess.run(["sh", "-e", "-c", make], check=True, timeout=30)
    assert keys.session_key(label, "s").key_id == label
    subprocess.run(["sh", "-e", "-c", revoke], check=True, timeout=30)
    with pytest.raises(KeyUnknown):
        keys.session_key(label, "s")
    assert label in stored_keyring(folder).key_ids


def test_the_servers_of_the_how_to_are_those_of_an_agent() -> None:
    said = "".join(blocks("mcp", "sh"))
    bodies = [orjson.loads(text) for text in re.findall(r"-d '(.*?)'", said, re.DOTALL)]
    lent = parse_rules(["mcp.example.com"])
    for body in bodies:
        fields = Fields(body)
        network = Network(tuple(body.get("sandbox", {}).get("network", {}).get("allow", ())))
        assert len(parse_mcp_servers(fields, lent, network)) == 1
        fields.finish()
    assert len(bodies) == 2
