"""Writes docs/reference/conformance.md: `python -m tests.conformance.write_claim`.

Runs every test that the requirement list names, and the public corpus, and writes the page from what came out. A
requirement whose tests did not all pass is not exercised, whatever the list says. `--trust-the-list` writes the page
that a green run gives, without one: CI holds the page to that, and its own run holds the list to the tests.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.conformance.corpus.running import EXPLAINED, PER_FAMILY, Row, corpus_rows
from tests.conformance.requirements import ROOT, Requirement, read_requirements

from turnkeeper.acs import ACS_VERSION
from turnkeeper.acs.signatures import OFFERED_ALGORITHMS
from turnkeeper.client import ClientSettings
from turnkeeper.guardian.handshakes import OFFERED_PROFILES
from turnkeeper.guardian.settings import GuardianSettings

PAGE: Final = ROOT / "docs" / "reference" / "conformance.md"
OUTCOMES: Final = {"exercised": "EXERCISED", "not_claimed": "NOT CLAIMED", "not_established": "NOT ESTABLISHED"}
NOT_A_DEPLOYMENT: Final = (
    "not observed: this page is about a program and not about a deployment, whose audit log of the client has both"
)
PARTIES: Final = (
    ("agent", "the secret of its label", "sign steps, check answers, keep heads", "decide, approve, read the chain"),
    (
        "Guardian",
        "every label's secret, the chain, the policy",
        "decide, write the chain",
        "show a third party that it signed and not the agent: both hold the key",
    ),
    (
        "approver",
        "an API key of its own",
        "answer the questions that go to it, each once",
        "widen a question, answer its own",
    ),
    (
        "policy author",
        "the bundle, which its digest names",
        "change what is decided from the next step on",
        "change what was decided",
    ),
    (
        "auditor",
        "an export and a label's secret",
        "recompute chain, signatures, turns and rules offline",
        "tell a rewritten chain from the real one without a head that somebody else kept",
    ),
)
HOSTILE: Final = ("held", "blocked_by_default", "evaded", "failed_by_default")
FAMILIES: Final[Mapping[str, str]] = {
    "acs-f-1": "signed requests that should be refused",
    "acs-f-2": "repeated ids",
    "acs-f-3": "old requests",
    "acs-f-4": "approvals for somebody else",
    "acs-f-5": "steps without a decision",
    "acs-f-6": "seals, entries, hooks and the trace's place",
    "acs-f-7": "budgets of a turn",
    "acs-f-8": "authority that data does not have",
    "acs-f-9": "versions and questions to who cannot ask",
    "acs-f-10": "who signed a head",
    "acs-f-11": "sessions that start without a Guardian",
    "acs-f-12": "modifications that were not applied",
    "acs-f-13": "derived keys and labels",
    "acs-f-14": "references to a call",
    "acs-f-15": "failures, and what a reader makes of them",
    "acs-f-16": "spans",
    "acs-f-17": "OCSF events of decisions",
    "acs-f-18": "OCSF events of allows",
    "acs-f-19": "events of substitutions",
}


def render(requirements: Sequence[Requirement], rows: Sequence[Row]) -> str:
    """The page."""
    parts = (_head(), _summary(requirements), _topology(), _posture(), _corpus(rows), _table(requirements))
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _head() -> Iterator[str]:
    yield "# Conformance claim"
    yield ""
    yield f"What Turnkeeper does of the Agent Control Standard {ACS_VERSION}, written by `make claim` from a run of the"
    yield "tests. Nobody verifies claims in this version of the standard: run it yourself."
    yield ""
    yield f"Profiles claimed: {', '.join(f'`{name}`' for name in sorted(OFFERED_PROFILES))}. Signatures:"
    yield f"{', '.join(f'`{name}`' for name in OFFERED_ALGORITHMS)}. Not claimed: `acs-trace`, `acs-inspect`,"
    yield "`acs-inspect-dynamic`, `acs-crypto`."
    yield ""
    yield "- **EXERCISED**: tests show it, and they passed. What they do not show stands under *known gaps*."
    yield "- **NOT CLAIMED**: not-implemented, not-offered, governed-elsewhere or out-of-scope."
    yield "- **NOT ESTABLISHED**: no-test, no-sink, not-negotiated or not-observed."
    yield ""


def _summary(requirements: Sequence[Requirement]) -> Iterator[str]:
    yield "## Summary"
    yield ""
    yield "| clause | exercised | not claimed | not established |"
    yield "| --- | ---: | ---: | ---: |"
    for clause, group in groupby(requirements, key=lambda one: one.clause):
        counts = Counter(one.outcome for one in group)
        yield f"| {clause} | " + " | ".join(str(counts[name]) for name in OUTCOMES) + " |"
    counts = Counter(one.outcome for one in requirements)
    yield f"| **all {len(requirements)}** | " + " | ".join(f"**{counts[name]}**" for name in OUTCOMES) + " |"
    yield ""


def _topology() -> Iterator[str]:
    yield "## Trust topology"
    yield ""
    yield from _grid(("who", "holds", "can", "cannot"), PARTIES)


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "| " + " | ".join("---" for _ in heads) + " |"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _posture() -> Iterator[str]:
    guardian, client = GuardianSettings(), ClientSettings()
    yield "## Decision posture"
    yield ""
    yield from _grid(
        ("what", "here"),
        (
            ("`on_decision_failure` that the Guardian offers", f"`{guardian.on_decision_failure}`"),
            (
                "what the client applies",
                f"`{client.posture.on_decision_failure}`; `proceed` where nothing was negotiated",
            ),
            ("startup posture of the client", f"`{client.posture.startup}`"),
            ("an error that refuses a step", f"`{client.posture.refusals}`"),
            ("a method that is not evaluated", f"`{client.posture.unevaluated}`"),
            ("time for a decision", f"{guardian.default_timeout_ms} ms"),
            ("window of timestamps", f"{guardian.skew_window_ms} ms"),
            ("sessions, and steps without a decision", NOT_A_DEPLOYMENT),
        ),
    )


def _corpus(rows: Sequence[Row]) -> Iterator[str]:
    public = [row for row in rows if not row.sealed]
    sealed = [row for row in rows if row.sealed]
    yield "## The public corpus"
    yield ""
    yield "`agent-evidence-vectors`, suite `acs-core`, through `tests/conformance/heldout_adapter.py`: each question"
    yield "is put to the parts that ship. Right:"
    yield f"{_share(public)} public cases, {_share(sealed)} of a respelled slice ({PER_FAMILY} cases a family)."
    yield "The outage corpus is answered in full by `tests/conformance/outage_runner.py`."
    yield ""
    yield "Hostile cases have four outcomes, not two. *Held*: the control did it. *Blocked by a default*: something"
    yield "else refused. *Evaded*: it went through. *Failed by a default*: what should go through did not."
    yield ""
    yield "| family | right | held | blocked by a default | evaded | failed by a default | not answered |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for family in sorted({row.family for row in public}, key=lambda name: int(name.rsplit("-", 1)[1])):
        mine = [row for row in public if row.family == family]
        counts = Counter(row.outcome for row in mine)
        cells = [_share(mine), *(str(counts[name]) for name in (*HOSTILE, "not_answered"))]
        yield f"| {family}: {FAMILIES.get(family, 'others')} | " + " | ".join(cells) + " |"
    yield ""
    yield "Cases that are answered otherwise than the corpus has them, and why:"
    yield ""
    for beginning, text in EXPLAINED.items():
        wrong = sum(not row.right and row.why.startswith(beginning) for row in public)
        extra = sum(not row.right and row.why.startswith(beginning) for row in sealed)
        yield f"- {beginning} ({wrong} public, {extra} of the slice): {text}."
    yield ""


def _share(rows: Sequence[Row]) -> str:
    return f"{sum(row.right for row in rows)} of {len(rows)}"


def _table(requirements: Sequence[Requirement]) -> Iterator[str]:
    yield "## Requirements"
    yield ""
    for clause, group in groupby(requirements, key=lambda one: one.clause):
        yield f"### {clause}"
        yield ""
        yield "| id | level | requirement | outcome | shown by, or why not | known gaps |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for one in group:
            level = f"{one.level}, proposed" if one.proposal else one.level
            outcome = OUTCOMES[one.outcome] + (f": {one.because}" if one.because else "")
            cells = (one.id, level, one.text, outcome, _shown(one), "; ".join(one.gaps))
            yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"
        yield ""


def _shown(one: Requirement) -> str:
    return one.why or "<br>".join(f"`{node.partition('::')[2]}`" for node in one.tests)


def _cell(text: str) -> str:
    return text.replace("|", "\\|") or " "


def observed(requirements: Iterable[Requirement], failed: frozenset[str], missing: frozenset[str]) -> list[Requirement]:
    """The requirements as a run left them: what failed or was not seen is not exercised."""
    return [_observed(one, failed, missing) for one in requirements]


def _observed(one: Requirement, failed: frozenset[str], missing: frozenset[str]) -> Requirement:
    for nodes, why in ((failed, "failed"), (missing, "did not run")):
        if found := [node for node in one.tests if node in nodes]:
            reason = f"{', '.join(node.partition('::')[2] for node in found)} {why}"
            return replace(one, outcome="not_established", because="not-observed", why=reason)
    return one


def run_tests(nodes: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Runs tests by node id; which failed, and which did not run."""
    with tempfile.TemporaryDirectory(prefix="turnkeeper-claim-") as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-p", "no:randomly", f"--junitxml={report}", "-o", "junit_family=xunit1"]
        subprocess.run([sys.executable, "-m", "pytest", *options, *nodes], cwd=ROOT, check=False)
        passed, failed = set[str](), set[str]()
        for case in ElementTree.parse(report).iter("testcase"):
            node = f"{case.get('file')}::{str(case.get('name')).partition('[')[0]}"
            broken = case.find("failure") is not None or case.find("error") is not None
            if broken:
                failed.add(node)
            elif case.find("skipped") is None:
                passed.add(node)
    return frozenset(failed), frozenset(set(nodes) - passed - failed)


def main() -> int:
    """Writes the page; 1 where something that the list names did not pass."""
    parser = argparse.ArgumentParser(description="Write the conformance claim.")
    parser.add_argument("--trust-the-list", action="store_true")
    listed = list(read_requirements())
    if parser.parse_args().trust_the_list:
        shown = listed
    else:
        shown = observed(listed, *run_tests(sorted({node for one in listed for node in one.tests})))
    PAGE.write_text(render(shown, corpus_rows()))
    return 0 if shown == listed else 1


if __name__ == "__main__":
    sys.exit(main())
