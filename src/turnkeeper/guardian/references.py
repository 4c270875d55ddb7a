"""`request_id_ref` of a toolCallResult (CORE-HOOK-12 and 13): which call a result belongs to.

Answers for a finding where the session has no such call, whatever the decision is; to deny for it is the policy's
business. Must never resolve a reference into another session. Pure.
"""

from typing import Final

from turnkeeper.guardian.checks import CONTENT, Checked, Step, noted
from turnkeeper.guardian.mcp import TOOL_CALL
from turnkeeper.guardian.memory import SessionMemory

REFERENCE_UNRESOLVED: Final = "request_id_ref_unresolved"


def check_reference(step: Step, _: SessionMemory) -> Checked:
    """The rule for toolCallResult."""
    if "request_id_ref" not in step.payload or step.looked_up.referenced_method == TOOL_CALL:
        return CONTENT
    return noted((REFERENCE_UNRESOLVED, "a tool result refers to a call that this session does not have"))
