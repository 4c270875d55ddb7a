"""Processes apart under chaos: killed, stopped, cut off, out of disk, out of time; and what must hold afterwards.

The short form of `make chaos-processes`. Both databases are broken side by side, because most of it is waiting. A
failure names its seed and where the logs are.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import pytest
from tests.acceptance.chaos.namespaces import isolation_refused
from tests.acceptance.server import Json

SEED: Final = os.environ.get("TURNKEEPER_CHAOS_SEED", "20261130")
"""What is posted and broken follows from it, and is the same in every run; how it meets is not."""
TURNS, FAULTS = 24, {"postgres": 9, "sqlite": 7}
TIMEOUT_S: Final = 600
REPOSITORY: Final = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.postgres, pytest.mark.timeout(2 * TIMEOUT_S)]


def begun(database: str, *, turns: int, faults: int) -> subprocess.Popen[str]:
    """A run that goes on beside this process."""
    counts = ("--turns", str(turns), "--faults", str(faults), "--seed", SEED)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance.chaos", "--database", database, *counts],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def reported(process: subprocess.Popen[str]) -> Json:
    """What a run has found."""
    said, trouble = process.communicate(timeout=TIMEOUT_S)
    assert said, trouble
    return cast(Json, json.loads(said))


@pytest.fixture(scope="module")
def reports() -> Iterator[dict[str, Json]]:
    """Both databases, broken at the same time."""
    running = {database: begun(database, turns=TURNS, faults=count) for database, count in FAULTS.items()}
    try:
        yield {database: reported(process) for database, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
            process.wait()


@pytest.mark.parametrize("database", list(FAULTS))
def test_whatever_is_broken_no_turn_event_webhook_or_step_is_lost_or_doubled(
    reports: dict[str, Json], database: str
) -> None:
    report = reports[database]
    print(f"seed {SEED}: {report['faults']}")
    assert report["broken"] == [], f"seed {SEED}: {json.dumps(report, indent=1)}"
    assert (report["turns"], report["fault_count"]) == (TURNS, FAULTS[database])
    assert sum(report["endings"].values()) == TURNS


def test_api_workers_and_guardian_share_nothing_but_the_network() -> None:
    """Each on a host of its own: an address, a disk, an uptime; the database too."""
    refused = isolation_refused()
    if refused is not None:
        pytest.skip(refused)
    report = reported(begun("postgres", turns=6, faults=0))
    assert report["isolated"] is True
    assert report["broken"] == [], report
    assert set(report["endings"]) <= {"completed end_turn", "canceled canceled", "canceled superseded"}
