"""The public corpus through the parts that ship, with the corpus's own runner and a slice cut for the occasion."""

import pytest
from tests.conformance.corpus.running import corpus_rows
from tests.conformance.heldout_adapter import answer


@pytest.mark.requirement("CORE-INT-03")
@pytest.mark.requirement("CORE-SIG-07")
@pytest.mark.timeout(300)
def test_the_corpus_is_answered_as_the_claim_says() -> None:
    rows = corpus_rows()
    assert sum(not row.sealed for row in rows) >= 140
    assert sum(row.sealed for row in rows) > 0
    unexplained = [row for row in rows if not row.right and row.explanation is None]
    assert unexplained == []
    assert [row for row in rows if row.outcome == "evaded"] == []
    assert {row.family for row in rows if row.right} >= {f"acs-f-{number}" for number in range(1, 16)}


def test_a_question_that_nothing_of_ours_answers_is_unmeasurable() -> None:
    assert answer({}).verdict == "unmeasurable"
    assert answer({"something": "else"}).verdict == "unmeasurable"
