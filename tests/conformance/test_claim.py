"""The claim page is what a green run gives, and a run that is not green shows."""

import pytest
from tests.conformance.corpus.running import corpus_rows
from tests.conformance.requirements import read_requirements
from tests.conformance.write_claim import PAGE, observed, render


@pytest.mark.timeout(300)
def test_the_claim_page_is_current() -> None:
    assert PAGE.read_text() == render(read_requirements(), corpus_rows()), "run `make claim`"


def test_a_requirement_whose_test_failed_or_did_not_run_is_not_exercised() -> None:
    requirements = read_requirements()
    first = next(one for one in requirements if len(one.tests) > 1)
    for failed, missing in ((frozenset(first.tests[:1]), frozenset[str]()), (frozenset[str](), frozenset(first.tests))):
        shown = {one.id: one for one in observed(requirements, failed, missing)}
        assert (shown[first.id].outcome, shown[first.id].because) == ("not_established", "not-observed")
        assert first.tests[0].partition("::")[2] in shown[first.id].why
    assert list(observed(requirements, frozenset(), frozenset())) == list(requirements)
