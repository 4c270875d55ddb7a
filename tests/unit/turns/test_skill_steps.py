"""The steps around skills: what their hooks ask for, and no load without its unload."""

from collections import Counter

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.acs import METHODS, Lineage, canonicalize, validator
from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import payload_schema
from turnkeeper.ids import RandomIds
from turnkeeper.turns.model import SkillRef, Step, StepState
from turnkeeper.turns.payloads import SKILL_LOAD, SKILL_REGISTER, SKILL_UNLOAD
from turnkeeper.turns.skill_steps import load_payload, open_loads, register_payload, registrations_in, unload_step

SKILL = SkillRef("skl_1", "folding", 2, "0" * 64, "Folds paper.")
MARKS = Lineage(RandomIds(SystemClock()), produces=True).marks()
REQUEST_ID = "7d4d1e1c-0000-4000-8000-000000000000"
PAYLOADS = {
    SKILL_REGISTER: register_payload(MARKS, SKILL, "# Fold"),
    SKILL_LOAD: load_payload(SKILL, "1" * 64, registration=REQUEST_ID, parent=REQUEST_ID),
    SKILL_UNLOAD: unload_step("trn_1", "folding", "error", REQUEST_ID, in_window=True).payload_json or "",
}


def a_step(ordinal: int, method: str, payload_json: str, decision: str | None, state: StepState = "answered") -> Step:
    answer = (decision, "head", None, (), None, 1)
    return Step("ses_1", ordinal, f"r{ordinal}", method, "trn_1", True, payload_json, None, state, *answer)


def of(name: str) -> str:
    return orjson.dumps({"skill_id": name}).decode()


@pytest.mark.parametrize("method", PAYLOADS)
def test_a_payload_is_what_its_hook_asks_for_and_can_be_signed(method: str) -> None:
    schema = METHODS[method].schema
    assert schema is not None
    document = orjson.loads(PAYLOADS[method])
    validator(payload_schema(schema, strict=True)).check(document)
    assert canonicalize(document)


def test_a_register_without_a_text_has_none_and_says_where_it_comes_from() -> None:
    document = orjson.loads(register_payload(MARKS, SKILL, None))
    assert "body" not in document["definition"]
    label = document["registration_provenance"]
    assert (label["origin"], label["source_id"]) == ("system", "turnkeeper")


@pytest.mark.parametrize(
    ("decision", "state", "counts"), [("allow", "answered", 1), (None, "pending", 1), ("deny", "answered", 0)]
)
def test_a_load_counts_where_it_was_let_through_or_may_have_been(
    decision: str | None, state: StepState, counts: int
) -> None:
    assert len(open_loads([a_step(1, SKILL_LOAD, of("folding"), decision, state)])) == counts


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.booleans()), max_size=20))
def test_after_the_unloads_that_are_due_nothing_is_open(doings: list[tuple[str, bool]]) -> None:
    steps: list[Step] = []
    for name, loads in doings:
        if loads or name in open_loads(steps):
            steps.append(a_step(len(steps), SKILL_LOAD if loads else SKILL_UNLOAD, of(name), "allow"))
    due = open_loads(steps)
    loaded = Counter(name for name, loads in doings if loads)
    assert Counter(due) <= loaded
    assert open_loads([*steps, *(a_step(100 + at, SKILL_UNLOAD, of(name), None) for at, name in enumerate(due))]) == []


def test_the_last_word_about_a_registration_counts() -> None:
    pair = ("folding", "0" * 64)
    register = PAYLOADS[SKILL_REGISTER]
    allowed, denied = a_step(1, SKILL_REGISTER, register, "allow"), a_step(2, SKILL_REGISTER, register, "deny")
    assert registrations_in([allowed]) == {pair: "r1"}
    assert registrations_in([allowed, denied]) == {}
    assert registrations_in([denied, allowed]) == {pair: "r1"}
