"""What a decision makes of a step (ACS 5, 6.1 to 6.5, ledger sections 7 and 8), for whoever has to do it.

Pure. Answers for decisions that a hook does not permit, and for a MODIFY that is applied whole or denied. Must never
hand back the original payload where a change was asked for and not made, save where the standard says so (postCompact,
CORE-MOD-07). Waiting for an ASK or a DEFER is the caller's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from turnkeeper.acs.decisions import Disposition
from turnkeeper.acs.hooks import HookSpec, hook_spec
from turnkeeper.acs.modifications import ModificationsInapplicable, ModificationsRejected, apply_modifications
from turnkeeper.acs.schemas import validator

MODIFY_UNSUPPORTED: Final = "modify_unsupported"
MODIFY_COMPOSITION: Final = "modify_composition"
NOT_PERMITTED: Final = "disposition_not_permitted"

_POST_COMPACT: Final = "steps/postCompact"

Payload: TypeAlias = Mapping[str, object]
Action: TypeAlias = Literal["go_on", "stop", "wait"]


@dataclass(frozen=True, slots=True)
class Course:
    """What has to be done about a step.

    `payload` is the one to go on with, and nothing else; `modified` says that it is not the one that was sent. `code`
    and `reasoning` say why the decision was not followed to the letter; both are empty where it was.
    """

    action: Action
    payload: Payload
    modified: bool = False
    code: str = ""
    reasoning: str = ""


def course_of(
    method: str, payload: Payload, decision: Disposition, details: Payload | None, *, can_modify: bool = True
) -> Course:
    """What a decision on a sent step means. `details` are the answer's own, None where they are not at hand."""
    spec = hook_spec(method)
    if spec is not None and decision not in spec.permitted:
        # What has happened is not undone by a decision that may not be given; anything else is doubt, and is denied.
        action: Action = "go_on" if spec.audit_only else "stop"
        return Course(action, payload, code=NOT_PERMITTED, reasoning=f"{method} does not permit {decision.value}")
    if decision is Disposition.ALLOW:
        return Course("go_on", payload)
    if decision is Disposition.DENY:
        return Course("stop", payload)
    if decision is Disposition.MODIFY:
        return _modified(method, payload, details, spec, can_modify=can_modify)
    return Course("wait", payload)


def _modified(
    method: str, payload: Payload, details: Payload | None, spec: HookSpec | None, *, can_modify: bool
) -> Course:
    if not can_modify:
        return _unmodified(method, payload, MODIFY_UNSUPPORTED, "this agent applies no modifications")
    if details is None:
        return _unmodified(method, payload, MODIFY_COMPOSITION, "the answer shows no modifications")
    try:
        changed = apply_modifications(payload, details)
    except ModificationsRejected as error:
        return _unmodified(method, payload, MODIFY_COMPOSITION, error.message)
    except ModificationsInapplicable as error:
        return _unmodified(method, payload, MODIFY_UNSUPPORTED, error.message)
    if spec is not None and spec.schema is not None and not validator(spec.schema).is_valid(changed):
        return _unmodified(method, payload, MODIFY_UNSUPPORTED, "the modified step is none of its hook")
    return Course("go_on", changed, modified=True)


def _unmodified(method: str, payload: Payload, code: str, why: str) -> Course:
    action: Action = "go_on" if method == _POST_COMPACT else "stop"
    return Course(action, payload, code=code, reasoning=f"a modification was not applied: {why}")
