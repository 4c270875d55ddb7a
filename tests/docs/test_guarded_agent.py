"""The five minutes of `put-an-agent-under-the-guardian.md`, pasted into a shell as they stand."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.acceptance.server import free_port

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "put-an-agent-under-the-guardian.md"
FIVE_MINUTES = re.compile(r"^## Five minutes$(.*?)^## ", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def pasted(port: int) -> str:
    """Every block of the section, one after the other, on a free port."""
    section = FIVE_MINUTES.search(PAGE.read_text())
    assert section is not None
    blocks = "".join(BLOCK.findall(section[1])).replace("8080", str(port))
    return f"trap 'kill %1 2>/dev/null || true' EXIT\n{blocks}\nwait %1; echo stopped with $?\n"


@pytest.mark.skipif(shutil.which("curl") is None or shutil.which("openssl") is None, reason="needs curl and openssl")
def test_an_agent_is_under_the_guardian_in_what_can_be_pasted(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        ["bash", "-m", "-e", "-c", pasted(free_port())],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "What is the answer?: 42" in done.stdout
    assert "What is the answer?: not allowed: This agent does not fetch anything." in done.stdout
    assert "intact: 2 sessions" in done.stdout
    assert "stopped with 0" in done.stdout
