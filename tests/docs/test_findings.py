"""The page of findings names every code that the built-in rules have, and its limits are the program's."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from turnkeeper.guardian import (
    compaction,
    components,
    dispositions,
    intent,
    ledger,
    mcp_calls,
    memory,
    provenance,
    references,
    resubmissions,
    skills,
    subagents,
    windows,
)
from turnkeeper.policy import hosted

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "findings.md").read_text()
MODULES = (
    compaction,
    components,
    dispositions,
    intent,
    ledger,
    mcp_calls,
    memory,
    provenance,
    references,
    resubmissions,
    skills,
    subagents,
    hosted,
)
# Values of the standard, which are no codes.
_WORDS = {"agent_generated", "user_input", "human_approval", "intent_extension", "request_id_ref"}


def codes(module: ModuleType) -> set[str]:
    """The codes that a module names."""
    constants = {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    return {value for value in constants if re.fullmatch(r"[a-z]+(_[a-z]+)+", value)} - _WORDS


@pytest.mark.parametrize("code", sorted(set[str]().union(windows.Conduct, *map(codes, MODULES))))
def test_every_code_is_on_the_page(code: str) -> None:
    assert f"`{code}`" in PAGE


@pytest.mark.parametrize(
    "limit",
    [
        f"{provenance.MAX_PROVENANCE_IDS:,} provenance ids of {provenance.MAX_PROVENANCE_ID_CHARACTERS} characters",
        f"{memory.MAX_DEFERRED_TURNS} deferred turns",
        f"{windows.MAX_NESTED_TURNS} turns inside",
        f"{memory.MAX_SKILLS} skills",
        f"{memory.MAX_PENDING_CALLS} wrapped calls",
        f"{memory.MAX_AGBOM_COMPONENTS:,} components",
        f"{resubmissions.MAX_QUESTIONS} questions to approvers",
        f"an intent of {memory.MAX_INTENT_BYTES // 1024} KiB",
        f"names of {memory.MAX_KEPT_TEXT:,} characters",
        f"{memory.MAX_KEPT_BYTES // 1024} KiB of all that",
    ],
)
def test_every_limit_is_on_the_page(limit: str) -> None:
    assert limit in " ".join(PAGE.split())


def verify_codes() -> set[str]:
    """The codes that `verify` gives its findings."""
    folder = Path(__file__).parents[2] / "src" / "turnkeeper"
    files = [*(folder / "guardian").glob("*.py"), *(folder / "cli").glob("verify*.py")]
    calls = r'(?:_break|_notice|_broken|_found|AuditFinding)\(\s*"([a-z_]+)"'
    return {code for file in files for code in re.findall(calls, file.read_text())}


@pytest.mark.parametrize("code", sorted(verify_codes()))
def test_every_code_of_verify_is_on_the_page(code: str) -> None:
    assert f"`{code}`" in PAGE
