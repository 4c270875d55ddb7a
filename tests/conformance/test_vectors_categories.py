"""What kinds of misuse a gate stops (enforcement and revocation vectors), asked of the parts that would stop them."""

from typing import Any, Final

import pytest
from tests.conformance.corpus.categories import VERDICTS, judge
from tests.vectors.reading import read_vectors

CASES: Final = read_vectors("categories")["cases"]
NOT_OURS: Final = frozenset({"pos-cat5-001", "neg-cat3-005", "pos-cat3-003", "pos-cat3-004"})
"""Cases with an answer that needs a notion nobody here has: an oracle's encoding, or when an authority signed."""


@pytest.mark.requirement("CORE-ASK-02")
@pytest.mark.requirement("CORE-RPL-01")
@pytest.mark.requirement("CORE-SUB-07")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_misuse_is_stopped_by_the_part_that_should(case: dict[str, Any]) -> None:
    said = judge(case)
    if case["id"] in NOT_OURS:
        assert said.verdict == "unmeasurable"
    else:
        assert VERDICTS[said.verdict] == case["expected"], said.why
