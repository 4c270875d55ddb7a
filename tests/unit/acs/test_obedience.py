"""What a decision makes of a step: followed to the letter, or denied with the reason why not."""

import pytest

from turnkeeper.acs import METHODS, Disposition
from turnkeeper.acs.obedience import MODIFY_COMPOSITION, MODIFY_UNSUPPORTED, NOT_PERMITTED, course_of

CALL = "steps/toolCallRequest"
PAYLOAD: dict[str, object] = {"tool": {"name": "shell"}, "arguments": {"command": {"value": "rm"}}}
OVERRIDE: dict[str, object] = {"parameter_overrides": {"command": "ls"}}


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("decision", [word for word in Disposition if word is not Disposition.MODIFY])
def test_a_word_that_a_hook_does_not_permit_stops_what_has_not_happened_yet(method: str, decision: Disposition) -> None:
    spec = METHODS[method]
    course = course_of(method, {}, decision, None)
    if decision in spec.permitted:
        assert course.code == ""
    else:
        assert (course.code, course.action) == (NOT_PERMITTED, "go_on" if spec.audit_only else "stop")


def test_a_modified_step_goes_on_with_the_change_and_without_the_original() -> None:
    course = course_of(CALL, PAYLOAD, Disposition.MODIFY, OVERRIDE)
    assert (course.action, course.modified, course.code) == ("go_on", True, "")
    assert course.payload == {"tool": {"name": "shell"}, "arguments": {"command": {"value": "ls"}}}


@pytest.mark.parametrize(
    ("details", "code"),
    [
        (None, MODIFY_COMPOSITION),
        ({}, MODIFY_COMPOSITION),
        ({"modified_content": "x", "redactions": []}, MODIFY_COMPOSITION),
        ({"redactions": [{"path": "/arguments/other"}]}, MODIFY_UNSUPPORTED),
        ({"redactions": [{"path": "/arguments"}]}, MODIFY_UNSUPPORTED),
    ],
)
def test_a_change_that_cannot_be_made_whole_is_a_denial(details: dict[str, object] | None, code: str) -> None:
    course = course_of(CALL, PAYLOAD, Disposition.MODIFY, details)
    assert (course.action, course.modified, course.code) == ("stop", False, code)


def test_an_agent_that_cannot_modify_stops() -> None:
    course = course_of(CALL, PAYLOAD, Disposition.MODIFY, OVERRIDE, can_modify=False)
    assert (course.action, course.code) == ("stop", MODIFY_UNSUPPORTED)


def test_a_compaction_that_cannot_be_changed_keeps_its_own_summary() -> None:
    """CORE-MOD-07: it has happened."""
    payload: dict[str, object] = {"summary": {"value": "s"}}
    course = course_of("steps/postCompact", payload, Disposition.MODIFY, {"parameter_overrides": {"a": 1}})
    assert (course.action, course.payload, course.modified) == ("go_on", payload, False)
