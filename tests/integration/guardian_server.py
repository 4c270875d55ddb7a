"""A Guardian as a process: `python tests/integration/guardian_server.py FOLDER PORT`, ready once its port answers.

A `policy.yaml` in the folder takes the place of the shipped rules.
"""

import sys
from pathlib import Path

import uvicorn

from turnkeeper.acs import Keyring
from turnkeeper.cli.listening import run_loop
from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.http import guardian_app
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import RuleSet, parse_rules
from turnkeeper.policy.shipped import default_rules
from turnkeeper.store.chain import SqliteGuardianStore

SECRET = b"i" * 32
MAX_BODY_BYTES = 1_048_576


def rules_of(folder: Path) -> RuleSet:
    """The folder's rules, or the shipped ones."""
    policy = folder / "policy.yaml"
    return parse_rules(policy.read_bytes()) if policy.exists() else default_rules()


async def main(folder: Path, port: int) -> None:
    """Serves until it is told to stop."""
    guardian = Guardian(
        store=SqliteGuardianStore(folder / "guardian.db"), engine=CelEngine(rules_of(folder)), clock=SystemClock()
    )
    await guardian.start()
    door = Door("http", Keyring({"default": SECRET}))
    app = guardian_app(guardian, door, max_body_bytes=MAX_BODY_BYTES, path="/acs", body_timeout_s=2)
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", lifespan="off")
    try:
        await uvicorn.Server(config).serve()
    finally:
        await guardian.stop()


if __name__ == "__main__":
    run_loop(main(Path(sys.argv[1]), int(sys.argv[2])))
