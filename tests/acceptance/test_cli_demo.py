"""`turnkeeper demo`: what a stranger sees first. Its claims are held against its own output."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.acceptance.server import run_command

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.real_model, pytest.mark.timeout(300)]

BEES = "Bees dance to tell each other where the flowers are."
SNOW = "Snow closed the mountain road, so the school bus did not come."


def demo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as a process; it must succeed."""
    done = run_command("demo", *words, home=folder, timeout_s=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def result_of(shown: str) -> dict[str, str]:
    """The first turn's result."""
    found = re.search(r"^  result  (\{.*\})$", shown, re.MULTILINE)
    assert found is not None, shown
    return json.loads(found.group(1))


def test_the_demo_shows_a_result_a_denial_a_budget_and_an_intact_chain(tmp_path: Path) -> None:
    """Scripted steps are labelled where they appear: on the screen and as the provider in the events."""
    shown = demo(tmp_path, BEES).stdout
    assert set(result_of(shown)) == {"title", "summary"}
    assert "deny   toolCallRequest  shell" in shown
    assert "denied: Commands that talk to the network are not allowed." in shown
    assert "completed (budget_reached)" in shown
    assert shown.count("SCRIPTED") == 2
    assert "provider scripted, scripted-steps" in shown
    assert "provider local, smollm2" in shown
    assert shown.count('{"outcome":"completed"') == 3
    assert "intact: 2 sessions" in shown


def test_the_demo_leaves_nothing_behind_and_its_result_changes_with_the_text(tmp_path: Path) -> None:
    """No folder of its own stays unless one is named."""
    results = [result_of(demo(tmp_path, text, "--data-dir", f"d{i}").stdout) for i, text in enumerate((BEES, SNOW))]
    assert results[0] != results[1]
    assert {path.name for path in tmp_path.iterdir()} == {"d0", "d1"}
    verified = run_command("verify", "--data-dir", "d1", home=tmp_path)
    assert verified.returncode == 0, verified.stdout
