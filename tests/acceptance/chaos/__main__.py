"""The command: `python -m tests.acceptance.chaos --database postgres --turns 300 --faults 120 --seed 7`."""

import argparse
import asyncio
import json
import os
import random
import sys

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
    """Runs it, in namespaces of its own where the machine gives them."""
    asked = parsed()
    if not is_inside() and not asked.shared_network:
        refused = isolation_refused()
        if refused is None:
            sys.argv += [] if asked.seed is not None else ["--seed", str(random.SystemRandom().randrange(10**9))]
            return enter()
        print(f"all on loopback, without cut cables and full disks: {refused}", file=sys.stderr)
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**9)
    print(f"seed {seed}", file=sys.stderr, flush=True)
    report = asyncio.run(run(Plan(asked.database, asked.turns, asked.faults, seed, is_inside())))
    print(render(report), flush=True)
    return 1 if report.broken else 0


if __name__ == "__main__":
    os.environ.pop("TURNKEEPER_CONFIG", None)
    sys.exit(main())
