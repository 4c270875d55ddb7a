"""`turnkeeper policy`: check a policy, run its tests, and see what it says about a request, and why.

Starts no server and writes nothing. Evaluated is what a Guardian would serve: the same reading, the same engines.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import orjson
import typer

from turnkeeper.acs import Decision, Disposition, JsonLimits, parse_strict
from turnkeeper.acs.schemas import SchemaViolation, validator
from turnkeeper.cli.exits import Exit, UsageRefused
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory
from turnkeeper.policy.bundle import Bundle
from turnkeeper.policy.cases import PolicyCase, facts_of_request, failing
from turnkeeper.policy.engine import RuleOutcome, RuleTrace
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.facts import Facts
from turnkeeper.policy.hosted import decide
from turnkeeper.wiring.policies import load_policy, open_engine

MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024

PolicyPath: TypeAlias = Annotated[Path, typer.Argument(help="The policy: a folder with policy.yaml, or a rule file.")]
RequestFile: TypeAlias = Annotated[Path, typer.Option("--request", metavar="FILE", help="An ACS request, as JSON.")]
FactsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--facts", metavar="FILE", help="JSON with turn, session, provenance, intent, approval as they stand."
    ),
]

_OUTCOMES: Mapping[RuleOutcome, str] = {
    RuleOutcome.OTHER_HOOK: "not looked at: it speaks about other hooks",
    RuleOutcome.OTHER_TOOL: "not looked at: it speaks about other tools",
    RuleOutcome.FALSE: "looked at: its condition is false",
    RuleOutcome.HOLDS: "HOLDS",
    RuleOutcome.FAILED: "FAILED: its condition has no truth value for this step",
}


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Check, test and question a policy before it is served.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command("check")(check)
    group.command("test")(run_tests)
    group.command("eval")(evaluate)
    group.command("explain")(explain)
    app.add_typer(group, name="policy")


def check(path: PolicyPath, config: ConfigFile = None, data_dir: DataDirectory = None, *, json: AsJson = False) -> None:
    """Read a policy as the Guardian would, start its engines, and say what it is."""
    del config, data_dir
    bundle = load_policy(path)
    asyncio.run(_opened(bundle))
    engine = CelEngine(bundle.rules)
    slow = [rule.id for rule in bundle.rules.rules if not engine.is_native(rule.id)]
    if json:
        report = {**_about(bundle), "tests": len(bundle.cases), "rules_in_cel": slow, "cedar": bool(bundle.cedar)}
        typer.echo(orjson.dumps(report))
        return
    typer.echo(f"{bundle.name}: {len(bundle.rules.rules)} rules, default {bundle.default}, {len(bundle.cases)} tests")
    typer.echo(f"version {bundle.version}")
    if bundle.author is not None:
        typer.echo(f"author {bundle.author}")
    if bundle.cedar_settings is not None:
        settings = bundle.cedar_settings
        typer.echo(f"cedar: asked about {', '.join(sorted(settings.hooks))}, within {settings.deadline_ms} ms")
    if slow:
        typer.echo(f"{len(slow)} rules need CEL where their first tests do not settle them: {', '.join(slow)}")


def run_tests(
    path: PolicyPath, config: ConfigFile = None, data_dir: DataDirectory = None, *, json: AsJson = False
) -> None:
    """Run a policy's own tests, `tests/*.yaml`. Exit 1 when one fails or there are none."""
    del config, data_dir
    bundle = load_policy(path)
    decisions = asyncio.run(_decide(bundle, [case.facts for case in bundle.cases]))
    wrong = failing(bundle.cases, decisions)
    if json:
        found = [{"file": case.file, "name": case.name, "problem": problem} for case, problem in wrong]
        typer.echo(orjson.dumps({**_about(bundle), "tests": len(bundle.cases), "failed": found}))
    else:
        _print_cases(bundle, wrong)
    raise typer.Exit(Exit.FAILED if wrong or not bundle.cases else Exit.DONE)


def evaluate(
    path: PolicyPath,
    request: RequestFile,
    facts: FactsFile = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    *,
    json: AsJson = False,
) -> None:
    """Say what a policy decides about a request, taken as the first of its session. Exit 3 for DENY."""
    del config, data_dir
    bundle, step = load_policy(path), _step(request, facts)
    (decision,) = asyncio.run(_decide(bundle, [step]))
    if json:
        typer.echo(orjson.dumps(_as_document(decision)))
    else:
        _print_decision(decision)
    raise typer.Exit(Exit.DENIED if decision.disposition is Disposition.DENY else Exit.DONE)


def explain(
    path: PolicyPath,
    request: RequestFile,
    facts: FactsFile = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    *,
    json: AsJson = False,
) -> None:
    """Say which rules were looked at for a request, what became of each, and what follows."""
    del config, data_dir
    bundle, step = load_policy(path), _step(request, facts)
    traces = CelEngine(bundle.rules).explain(step)
    (decision,) = asyncio.run(_decide(bundle, [step]))
    if json:
        rules = [{"rule_id": one.rule.id, "decision": one.rule.decision, "outcome": one.outcome} for one in traces]
        typer.echo(orjson.dumps({"rules": rules, **_as_document(decision)}))
        return
    _print_traces(traces)
    _print_decision(decision)


async def _opened(bundle: Bundle) -> None:
    async with open_engine(bundle):
        pass


async def _decide(bundle: Bundle, steps: Sequence[Facts]) -> list[Decision]:
    async with open_engine(bundle) as engine:
        return [await decide(engine, step) for step in steps]


def _step(request: Path, facts: Path | None) -> Facts:
    document = parse_strict(_read(request), JsonLimits(max_bytes=MAX_REQUEST_BYTES))
    try:
        validator("request-envelope").check(document)
    except SchemaViolation as violation:
        raise UsageRefused(f"{request} is not an ACS request: {violation.message}") from violation
    overlay = {} if facts is None else parse_strict(_read(facts), JsonLimits(max_bytes=MAX_REQUEST_BYTES))
    if not isinstance(overlay, dict):
        raise UsageRefused(f"{facts} does not hold an object")
    return facts_of_request(document, overlay)


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(MAX_REQUEST_BYTES + 1)
    except OSError as error:
        raise UsageRefused(f"{file} cannot be read: {error.strerror}") from error


def _about(bundle: Bundle) -> dict[str, object]:
    return {
        "name": bundle.name,
        "version": bundle.version,
        "author": bundle.author,
        "default": bundle.default,
        "rules": len(bundle.rules.rules),
    }


def _as_document(decision: Decision) -> dict[str, object]:
    members = {
        "decision": decision.disposition,
        "reasoning": decision.reasoning,
        "reason_codes": list(decision.reason_codes),
        "policy_references": [reference.to_document() for reference in decision.policy_references],
        "modifications": decision.modifications,
        "ask_details": decision.ask_details,
        "defer_details": decision.defer_details,
        "policy_data": decision.policy_data,
    }
    return {name: value for name, value in members.items() if value}


def _print_cases(bundle: Bundle, wrong: Sequence[tuple[PolicyCase, str]]) -> None:
    for case, problem in wrong:
        typer.echo(f"{case.file}: {case.name}: {problem}")
    if not bundle.cases:
        typer.echo(f"{bundle.name} has no tests; put some into tests/*.yaml")
        return
    typer.echo(f"{bundle.name}: {len(bundle.cases) - len(wrong)} of {len(bundle.cases)} tests passed")


def _print_traces(traces: Sequence[RuleTrace]) -> None:
    for one in traces:
        typer.echo(f"{one.rule.id} ({one.rule.decision}): {_OUTCOMES[one.outcome]}")
        if one.rule.when is not None and one.outcome in (RuleOutcome.FALSE, RuleOutcome.HOLDS, RuleOutcome.FAILED):
            typer.echo(f"    when {one.rule.when}")


def _print_decision(decision: Decision) -> None:
    codes = f" [{', '.join(decision.reason_codes)}]" if decision.reason_codes else ""
    typer.echo(f"{decision.disposition}{codes}{f': {decision.reasoning}' if decision.reasoning else ''}")
    rules = [reference.rule_id for reference in decision.policy_references if reference.rule_id]
    typer.echo(f"  by {', '.join(rules)}" if rules else "  by the default: no rule speaks about it")
    for details in (decision.modifications, decision.ask_details, decision.defer_details):
        if details is not None:
            typer.echo(f"  {orjson.dumps(dict(details)).decode()}")


def _nothing() -> None:
    return
