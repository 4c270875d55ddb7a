"""Claude Code's hooks: their input, and the answers that it obeys.

Pure. Answers for using no answer that Claude Code reads as consent: an allowed call is left to its own permission rules
(empty output), a changed one needs `allow` beside `updatedInput`, everything else is a denial.
"""

import json
from collections.abc import Mapping
from typing import Final

from turnkeeper.hooks.documents import in_the_form_of, report_of
from turnkeeper.hooks.events import (
    Block,
    HookEvent,
    Proceed,
    Replace,
    Reply,
    Report,
    Ruling,
    ToolFinished,
    ToolRequested,
    has_happened,
)

RECORDED: Final = ("SessionStart", "Stop", "SessionEnd")
"""Hooks about what has happened: one that fails must not keep the client going."""

EVENTS: Final = (
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "Stop",
    "SessionEnd",
)
"""The hooks that are installed."""


def read_report(document: Mapping[str, object]) -> Report:
    """What the input of a hook says. Raises `HookInputInvalid`."""
    return report_of(document)


def render_reply(event: HookEvent, ruling: Ruling) -> Reply:
    """What Claude Code is told."""
    if isinstance(ruling, Proceed):
        return Reply()
    if has_happened(event):
        return Reply(stderr=ruling.reason if isinstance(ruling, Block) else "")
    if isinstance(event, ToolRequested):
        return _decided(ruling)
    if isinstance(event, ToolFinished):
        return _shown(event, ruling)
    # A prompt that was changed cannot be put in the place of the one that was typed.
    return Reply(stderr=_reason(ruling), exit_code=2)


def _decided(ruling: Replace | Block) -> Reply:
    if isinstance(ruling, Block):
        return _specific("PreToolUse", permissionDecision="deny", permissionDecisionReason=ruling.reason)
    return _specific("PreToolUse", permissionDecision="allow", updatedInput=ruling.value)


def _shown(event: ToolFinished, ruling: Replace | Block) -> Reply:
    if event.failed:
        return Reply(stderr=_reason(ruling), exit_code=2)
    text = str(ruling.value) if isinstance(ruling, Replace) else f"withheld by the Guardian: {ruling.reason}"
    return _specific("PostToolUse", updatedToolOutput=in_the_form_of(event.output, text))


def _specific(hook: str, **members: object) -> Reply:
    return Reply(json.dumps({"hookSpecificOutput": {"hookEventName": hook, **members}}).encode())


def _reason(ruling: Replace | Block) -> str:
    return ruling.reason if isinstance(ruling, Block) else "the Guardian changed it, which this hook cannot apply"
