"""The command: `python -m tests.acceptance.chaos --database postgres --turns 300 --faults 120 --seed 7`."""

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.acceptance.chaos.namespaces import enter, is_inside, isolation_refused
from tests.acceptance.chaos.run import Plan, Report, run


def parsed() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="chaos", description="Breaks a Turnkeeper that works, and counts.")
    parser.add_argument("--database", choices=("postgres", "sqlite"), required=True)
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="default: one that nobody chose")
    parser.add_argument("--shared-network", action="store_true", help="all on loopback, without cut cables, full disks")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def render(report: Report) -> str:
    """The report as JSON."""
    told = {
        "seed": report.plan.seed,
        "database": report.plan.shape,
        "isolated": report.plan.isolated,
        "faults": dict(sorted(report.faults.items())),
        "fault_count": report.faults.total(),
        "endings": dict(sorted(report.endings.items())),
        **report.figures,
        "broken": report.broken,
    }
    return json.dumps(told, indent=1)


def main() -> int:
    """Runs it, in namespaces of its own where the machine gives them; logs stay where something broke."""
    asked = parsed()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**9)
    if is_inside():
        return run_here(asked, seed, asked.folder)
    folder = Path(tempfile.mkdtemp(prefix="tk-chaos-"))
    # The boxes' and the database's users have to pass.
    folder.chmod(0o755)
    refused = "--shared-network was asked for" if asked.shared_network else isolation_refused()
    print(f"seed {seed}, logs in {folder}", file=sys.stderr, flush=True)
    if refused is None:
        code = enter([*sys.argv[1:], "--seed", str(seed), "--folder", str(folder)])
    else:
        print(f"all on loopback, without cut cables and full disks: {refused}", file=sys.stderr, flush=True)
        code = run_here(asked, seed, folder)
    if code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def run_here(asked: argparse.Namespace, seed: int, folder: Path) -> int:
    """Runs it in this process; 1 where something broke."""
    report = asyncio.run(run(Plan(asked.database, asked.turns, asked.faults, seed, is_inside()), folder))
    print(render(report), flush=True)
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
