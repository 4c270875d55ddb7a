"""The requirement list, checked both ways: nothing is named that is not there, nothing is there that is not named."""

import re
from pathlib import Path

import pytest
from tests.conformance.requirements import ROOT, find_tests, read_requirements

ALL = read_requirements()
TESTS = {test.node: test.names for test in find_tests()}
ABOUT_OURSELVES = frozenset(
    {
        "tests/conformance/test_requirements.py",
        "tests/conformance/test_seeded_faults.py",
        "tests/conformance/test_claim.py",
    }
)
"""Tests of the list, of the tests and of the claim: no requirement of the standard's."""

OF_THE_REPOSITORY = frozenset(
    {
        "test_every_schema_of_the_standard_is_shipped_or_left_out_for_a_reason",
        "test_descriptions_are_our_own",
        "test_the_founding_schemas_are_byte_copies",
        "test_the_founding_schemas_have_the_digests_of_the_originals",
        "test_every_probe_of_the_founding_list_is_here_or_has_a_reason",
        "test_a_question_that_nothing_of_ours_answers_is_unmeasurable",
        "test_what_is_no_step_in_an_outage_gets_no_verdict",
        "test_a_step_that_disagrees_is_found_out",
    }
)
"""Tests of what this repository ships, and of the runners that answer the corpora."""


def test_every_requirement_says_what_it_is() -> None:
    assert len({one.id for one in ALL}) == len(ALL) == 251
    assert all(one.text and one.clause and one.roles for one in ALL)


def test_every_test_that_is_named_exists() -> None:
    missing = {node: one.id for one in ALL for node in one.tests if node not in TESTS}
    assert not missing


def test_every_marked_test_is_named_by_its_requirements() -> None:
    named = {(one.id, node) for one in ALL for node in one.tests}
    unknown = {(name, node) for node, names in TESTS.items() for name in names} - named
    assert not unknown


def test_every_conformance_test_shows_a_requirement() -> None:
    named = {node for one in ALL for node in one.tests}
    orphans = [
        node
        for node in TESTS
        if node.startswith("tests/conformance/")
        and node.partition("::")[0] not in ABOUT_OURSELVES
        and node.partition("::")[2] not in OF_THE_REPOSITORY
        and node not in named
    ]
    assert not orphans


def test_no_requirement_of_the_founding_ledger_is_missing() -> None:
    ledger = ROOT.parent / "shared" / "acs" / "ledger.md"
    if not Path(ledger).exists():
        pytest.skip("the founding ledger is not beside this repository")
    row = r"^\| ((?:CORE|PROV|TRACE|INSP|AUD|ENG|CONF|MCP|CRYPTO)-[A-Z0-9-]+) \|"
    rows = re.findall(row, ledger.read_text(), re.MULTILINE)
    assert [one.id for one in ALL] == rows


@pytest.mark.parametrize(
    "row",
    [
        "- {id: X, clause: c, level: MUST, role: [all], text: t}",
        "- {id: X, clause: c, level: must, role: [all], text: t, tests: [a]}",
        "- {id: X, clause: c, level: MUST, role: [all], text: t, not_claimed: lazy, why: w}",
        "- {id: X, clause: c, level: MUST, role: [all], text: t, not_established: no-test}",
        "- {id: X, clause: c, level: MUST, role: [all], text: t, tests: [a], not_claimed: out-of-scope, why: w}",
        "- {id: X, clause: c, level: MUST, role: [all], text: t, tests: [a], test: [b]}",
    ],
)
def test_a_row_that_says_nothing_or_too_much_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match="X"):
        read_requirements(row)
