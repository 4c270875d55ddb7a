"""What an answer means: which words let an action go on, and what they bring with them."""

import pytest

from turnkeeper.acs import Disposition, Verdict
from turnkeeper.turns.rulings import Ruling, answer_of_verdict, ruling_of


def ruling(decision: str, **members: object) -> Ruling:
    verdict = Verdict(Disposition(decision), "because", ("code",), "c" * 64, {"decision": decision, **members})
    return ruling_of(answer_of_verdict(verdict), request_id="r")


@pytest.mark.parametrize(("decision", "member"), [("ask", "ask_details"), ("defer", "defer_details")])
def test_a_ruling_that_waits_brings_what_it_waits_for(decision: str, member: str) -> None:
    made = ruling(decision, **{member: {"question": "may I?"}})
    assert (made.decision, made.allowed, made.details) == (decision, False, {"question": "may I?"})


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_a_plain_word_brings_no_details(decision: str) -> None:
    assert ruling(decision, modifications={"modified_content": "x"}).details is None
