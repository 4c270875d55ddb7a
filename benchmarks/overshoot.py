"""How far a budget is overspent when the input of calls is counted too low: `python -m benchmarks.overshoot`.

Turns take calls from one project's budget until it refuses, through two stores on one SQLite file. Each call's input
turns out larger than what was reserved by a fixed error; output is what was granted, so the budget is drawn dry.
"""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.contract.store_rig import CALL, Rig, open_store

from turnkeeper.turns.budget_accounts import NewBudget
from turnkeeper.turns.model import PROJECT_ID, Budget, CallRecord, Fence
from turnkeeper.turns.ports import BudgetSpent

LIMITS: Final = range(40_000, 46_000, 2_000)
INPUT_TOKENS: Final = 1_000


async def drawn(rig: Rig, fence: Fence, error_percent: int) -> None:
    """Calls until the budget refuses."""
    while True:
        try:
            grant = await rig.store.reserve(fence, input_tokens=INPUT_TOKENS, max_output_tokens=4_096)
        except BudgetSpent:
            return
        await rig.store.settle(fence, _record(grant.call, grant.max_output_tokens, error_percent))


async def overshoot(turns: int, error_percent: int, limit: int) -> int:
    """The tokens that were used beyond the limit."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'turns.db'}"
        rigs = [await open_store(url), await open_store(url)]
        try:
            new = NewBudget(PROJECT_ID, "project", PROJECT_ID, Budget(max_total_tokens=limit))
            budget = await rigs[0].store.budgets().create_budget(new)
            fences = [await rigs[0].running() for _ in range(turns)]
            await asyncio.gather(*(drawn(rigs[n % 2], fence, error_percent) for n, fence in enumerate(fences)))
            seen = await rigs[0].store.budgets().budget(PROJECT_ID, budget.id)
        finally:
            for rig in rigs:
                await rig.store.close()
    return max(seen.used.total_tokens - limit, 0)


def _record(call: int, output_tokens: int, error_percent: int) -> CallRecord:
    actual = INPUT_TOKENS * (100 + error_percent) // 100
    return replace(CALL, call=call, input_tokens=actual, output_tokens=output_tokens)


async def main() -> None:
    """Prints the worst of some limits for each number of turns at a time and each error."""
    for turns in (1, 8):
        for error_percent in (0, 10, 50):
            most = max([await overshoot(turns, error_percent, limit) for limit in LIMITS])
            bound = turns * INPUT_TOKENS * error_percent // 100
            print(f"turns {turns}  input error {error_percent} %  overshoot {most} tokens  bound {bound} tokens")


if __name__ == "__main__":
    asyncio.run(main())
