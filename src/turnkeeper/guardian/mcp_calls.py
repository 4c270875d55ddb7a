"""Wrapped MCP calls that wait for their responses (MCP-07).

Answers for one pending call per id: a second one under an equal id is denied, and a response is read as that of the
call it answers. Must never remember a call that was not let through. Pure.
"""

from functools import partial
from typing import Final

from turnkeeper.guardian.checks import CONTENT, Checked, Denial, Step, full, noted
from turnkeeper.guardian.mcp import is_response, mcp_method, message_id, tool_of
from turnkeeper.guardian.memory import MAX_KEPT_TEXT, MAX_PENDING_CALLS, PendingCall, SessionMemory

CALL_PENDING: Final = "wrapped_call_pending"
RESPONSE_UNKNOWN: Final = "wrapped_response_unknown"


def check_call(step: Step, memory: SessionMemory) -> Checked:
    """The rule for every wrapped message. A response takes its call back whatever is answered."""
    key = message_id(step.payload)
    if key is None:
        return CONTENT
    if not is_response(step.payload):
        return _request(step, key, memory)
    call = pending_call(step, memory)
    if call is None:
        return noted((RESPONSE_UNKNOWN, "a wrapped response answers no call that waits under its id and method"))
    waiting = {name: other for name, other in memory.kept.pending_calls.items() if name != key}
    return Checked(memory=memory.keeping(pending_calls=waiting))


def pending_call(step: Step, memory: SessionMemory) -> PendingCall | None:
    """The call that a wrapped response answers."""
    key = message_id(step.payload)
    call = None if key is None else memory.kept.pending_calls.get(key)
    return call if call is not None and call.method == mcp_method(step.request.method) else None


def _request(step: Step, key: str, memory: SessionMemory) -> Checked:
    calls = memory.kept.pending_calls
    if key in calls:
        return Checked(Denial(CALL_PENDING, "A wrapped call under an equal id still waits for its response."))
    call = PendingCall(mcp_method(step.request.method) or "", tool_of(step.payload), step.request.request_id)
    if len(calls) >= MAX_PENDING_CALLS or max(len(key), len(call.method), len(call.tool)) > MAX_KEPT_TEXT:
        return full("wrapped calls that wait for a response")
    return Checked(grant=partial(_waiting, key, call))


def _waiting(key: str, call: PendingCall, memory: SessionMemory) -> SessionMemory:
    return memory.keeping(pending_calls={**memory.kept.pending_calls, key: call})
