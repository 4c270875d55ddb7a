"""Orders of boxes: what an operator lends, found again when the turn begins."""

from pathlib import Path

import pytest

from turnkeeper.boxed.kinds import KINDS
from turnkeeper.sandbox.boxes import LoopBoxOrder, SandboxUnavailable
from turnkeeper.settings import HarnessSettings, ProviderSettings
from turnkeeper.turns.box_ports import LoopOrder
from turnkeeper.turns.model import BoxSize, HarnessChoice, HarnessKind, ModelChoice
from turnkeeper.wiring.boxes import order_of
from turnkeeper.wiring.harnesses import BoxOrders, harness_lacks, harness_offer

PROVIDERS = {
    "claude": ProviderSettings(kind="anthropic", base_url="http://127.0.0.1:9/v1"),
    "gpt": ProviderSettings(kind="openai", base_url="http://127.0.0.1:9/v1"),
}


def ordered(
    settings: HarnessSettings, kind: HarnessKind, *command: str, provider: str = "claude"
) -> LoopBoxOrder | None:
    """What is ordered for an agent with this harness."""
    asked = LoopOrder(
        HarnessChoice(kind, command), Path("/srv/s1"), BoxSize(memory_mib=512), ModelChoice(provider, "m1")
    )
    return BoxOrders(settings, PROVIDERS, order_of).order_for(asked)


@pytest.fixture
def installed(tmp_path: Path) -> HarnessSettings:
    """A folder in which Claude Code alone was installed."""
    program = tmp_path / KINDS["claude-code"].program
    program.parent.mkdir(parents=True)
    program.touch()
    return HarnessSettings(clients_dir=tmp_path)


def test_the_built_in_loop_has_the_usual_box() -> None:
    assert ordered(HarnessSettings(), "builtin") is None


def test_a_lent_program_is_bound_with_what_it_may_read_but_for_what_every_box_has() -> None:
    settings = HarnessSettings(programs=("/usr/bin/python3",), read_only=("/srv/loops",))
    order = ordered(settings, "command", "/usr/bin/python3", "/srv/loops/x.py")
    assert order is not None
    assert order.command == ("/usr/bin/python3", "/srv/loops/x.py")
    assert [str(path.source) for path in order.read_only] == ["/srv/loops"]
    assert order.workspace is None


def test_a_program_that_is_not_lent_any_more_starts_no_box() -> None:
    with pytest.raises(SandboxUnavailable):
        ordered(HarnessSettings(), "command", "/usr/bin/python3")


def test_what_cannot_be_run_here_is_named(installed: HarnessSettings) -> None:
    lacks = harness_lacks(HarnessSettings(clients_dir=installed.clients_dir, programs=("/nowhere/loop", "/bin/sh")))
    assert (lacks["/bin/sh"], lacks["claude-code"]) == ("", "")
    assert "no such program" in lacks["/nowhere/loop"]
    assert "npm has not installed it" in lacks["codex"]
    assert "npm has not installed it" in lacks["opencode"]


def test_clients_are_offered_that_are_installed(installed: HarnessSettings) -> None:
    assert harness_offer(installed).clients == {"claude-code"}
    assert harness_offer(HarnessSettings()).clients == frozenset()


def test_a_client_shares_its_box_with_the_workspace(installed: HarnessSettings) -> None:
    order = ordered(installed, "claude-code")
    assert order is not None
    assert order.workspace is not None
    assert (order.workspace.path, order.workspace.order.memory_bytes) == (Path("/srv/s1"), 512 << 20)
    assert Path("/etc/claude-code/managed-settings.json") in order.files


@pytest.mark.parametrize(("kind", "provider"), [("claude-code", "gpt"), ("claude-code", "gone"), ("codex", "gpt")])
def test_a_client_without_its_program_or_its_kind_of_provider_starts_no_box(
    installed: HarnessSettings, kind: HarnessKind, provider: str
) -> None:
    with pytest.raises(SandboxUnavailable):
        ordered(installed, kind, provider=provider)


def test_paths_of_the_settings_are_absolute() -> None:
    with pytest.raises(ValueError, match="absolute"):
        HarnessSettings(programs=("python3",))
