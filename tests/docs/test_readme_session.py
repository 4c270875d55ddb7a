"""README's session, pasted into a shell: it must work as it stands, and leave nothing running."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.acceptance.server import free_port

ROOT = Path(__file__).parents[2]
SESSION = re.compile(r"## A session to paste\n.*?```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.real_model, pytest.mark.timeout(300)]


def pasted(port: int) -> str:
    """The block, on a free port, and what is asserted of each line appended."""
    found = SESSION.search((ROOT / "README.md").read_text())
    assert found is not None
    return found.group(1).replace("8080", str(port)) + "\nwait %1; echo stopped with $?\n"


@pytest.mark.skipif(shutil.which("curl") is None, reason="README's session needs curl")
def test_the_session_in_the_readme_works_when_it_is_pasted(tmp_path: Path) -> None:
    """A turn with a valid result, its events, an export and two verdicts."""
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    done = subprocess.run(
        ["bash", "-m", "-e", "-c", pasted(free_port())],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "serve.log").read_text()
    turn = next(json.loads(line) for line in done.stdout.splitlines() if '"object":"turn"' in line)
    assert (turn["status"], list(turn["result"])) == ("completed", ["answer"])
    assert "event: turn.completed" in done.stdout
    assert done.stdout.count("intact: 1 sessions") == 2
    assert "stopped with 0" in done.stdout
