"""What a decision of the policy costs: native rules, CEL, the shipped bundles, and Cedar in its own process.

`python -m benchmarks.policy [--short]`. Microseconds per decision on one core; no Guardian, no disk. Cedar's column is
the time until its answer is there, the loop being free meanwhile; with `at once` 32 questions are on their way.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.measure import machine

from turnkeeper.policy.bundle import Bundle, parse_bundle
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.facts import Facts, SessionFacts, TurnFacts
from turnkeeper.policy.hosted import ComposedEngine, decide
from turnkeeper.policy.rules import parse_rules
from turnkeeper.policy.shipped import SHIPPED, default_rules, shipped_bundle
from turnkeeper.wiring.policies import open_engine

ROUNDS = 5
AT_ONCE = 32
HEAD = "version: 1\nname: measured\ndefault: allow\nrules:\n"
NO_CONDITION = "  - {id: calls, hooks: [toolCallRequest], decision: allow}\n"
NATIVE = NO_CONDITION + "".join(
    f"  - {{id: r{index}, when: turn.tool_calls > {index + 100}, decision: deny, reasoning: No.}}\n"
    for index in range(10)
)
IN_CEL = NATIVE.replace("turn.tool_calls >", "turn.tool_calls + 0 >")
CEDAR = """
permit(principal, action, resource);
""" + "".join(
    f'@id("r{index}") forbid(principal, action, resource) when {{ context.turn.tool_calls > {index + 100} }};\n'
    for index in range(10)
)
WITH_CEDAR = HEAD + "  []\nengines: {cedar: {hooks: [toolCallRequest], deadline_ms: 10000}}\n"


@dataclass(frozen=True)
class Cost:
    """Microseconds per decision: the middle of the rounds, and the best."""

    name: str
    samples_us: tuple[float, ...]


def main() -> int:
    """Runs everything and prints one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="few decisions, to see that it runs")
    count = 200 if parser.parse_args().short else 5_000
    costs = [*built_in(count), *asyncio.run(cedar(max(count // 5, 100)))]
    print(f"Machine: {machine()}\n\n| what | µs, middle | µs, best | decisions/s |\n| --- | ---: | ---: | ---: |")
    for cost in costs:
        middle = statistics.median(cost.samples_us)
        print(f"| {cost.name} | {middle:.1f} | {min(cost.samples_us):.1f} | {1e6 / middle:,.0f} |")
    return 0


def built_in(count: int) -> list[Cost]:
    """Engines in this process."""
    step = shell("python3 -m unittest discover -s tests -v && git status --short")
    engines = {
        "one rule without a condition": CelEngine(parse_rules((HEAD + NO_CONDITION).encode())),
        "ten simple conditions, native": CelEngine(parse_rules((HEAD + NATIVE).encode())),
        "ten conditions in CEL": CelEngine(parse_rules((HEAD + IN_CEL).encode())),
        "default policy, a shell call": CelEngine(default_rules()),
    }
    costs = [_timed(name, engine.evaluate, step, count) for name, engine in engines.items()]
    suspicious = shell("git rm old.py && echo sync")
    costs.append(
        _timed("default policy, a call that needs CEL", CelEngine(default_rules()).evaluate, suspicious, count)
    )
    bundles = {name: CelEngine(shipped_bundle(name).rules) for name in SHIPPED}
    return [*costs, *(_timed(f"bundle {name}", engine.evaluate, step, count) for name, engine in bundles.items())]


async def cedar(count: int) -> list[Cost]:
    """Cedar at the end of its pipe."""
    bundle = parse_bundle({"policy.yaml": WITH_CEDAR.encode(), "ten.cedar": CEDAR.encode()})
    return [
        await _hosted("Cedar, ten policies, one by one", bundle, count, 1),
        await _hosted(f"Cedar, ten policies, {AT_ONCE} at once", bundle, count, AT_ONCE),
    ]


async def _hosted(name: str, bundle: Bundle, count: int, at_once: int) -> Cost:
    step = shell("ls")
    async with open_engine(bundle) as engine:
        await _decide(engine, step)
        samples: list[float] = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            for _ in range(count // at_once):
                await asyncio.gather(*(_decide(engine, step) for _ in range(at_once)))
            samples.append((time.perf_counter() - begin) / (count // at_once * at_once) * 1e6)
    return Cost(name, tuple(samples))


async def _decide(engine: ComposedEngine, step: Facts) -> None:
    await decide(engine, step)


def _timed(name: str, evaluate: Callable[[Facts], object], step: Facts, count: int) -> Cost:
    evaluate(step)
    return Cost(name, tuple(_round(evaluate, step, count) for _ in range(ROUNDS)))


def _round(evaluate: Callable[[Facts], object], step: Facts, count: int) -> float:
    begin = time.thread_time()
    for _ in range(count):
        evaluate(step)
    return (time.thread_time() - begin) / count * 1e6


def shell(command: str, others: Sequence[str] = ("note",)) -> Facts:
    """A tool call of about a kilobyte."""
    arguments = {"command": {"value": command}, **{name: {"value": "n" * 900} for name in others}}
    return Facts(
        method="steps/toolCallRequest",
        step_id="step",
        payload={"tool": {"name": "shell"}, "capability": "process.read", "arguments": arguments},
        agent_id="agent",
        session=SessionFacts("session", steps=3, tool_calls=2, turns=1),
        turn=TurnFacts("turn", open=True, steps=3, tool_calls=2),
    )


if __name__ == "__main__":
    sys.exit(main())
