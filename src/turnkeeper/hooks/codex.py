"""Codex's hooks: their input, and the answers that it obeys.

Pure. Answers for never sending `ask`, which Codex does not know and takes for consent, and for a reason that is never
empty, without which it takes a denial for a broken hook.
"""

import json
from collections.abc import Mapping
from typing import Final

from turnkeeper.hooks.documents import report_of
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

EVENTS: Final = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
"""The hooks that are installed."""


def read_report(document: Mapping[str, object]) -> Report:
    """What the input of a hook says. Raises `HookInputInvalid`."""
    return report_of(document)


def render_reply(event: HookEvent, ruling: Ruling) -> Reply:
    """What Codex is told."""
    if isinstance(ruling, Proceed):
        return Reply()
    if has_happened(event):
        return Reply(stderr=ruling.reason if isinstance(ruling, Block) else "")
    if isinstance(event, ToolRequested):
        return _decided(ruling)
    if isinstance(event, ToolFinished):
        # Whatever a block gives as its reason stands in the place of the output.
        return _blocked(_shown(ruling))
    return _blocked(ruling.reason if isinstance(ruling, Block) else "the Guardian changed it; this hook cannot")


def _decided(ruling: Replace | Block) -> Reply:
    members: dict[str, object] = {"hookEventName": "PreToolUse"}
    if isinstance(ruling, Block):
        members |= {"permissionDecision": "deny", "permissionDecisionReason": ruling.reason or "denied"}
    else:
        members |= {"permissionDecision": "allow", "updatedInput": ruling.value}
    return Reply(json.dumps({"hookSpecificOutput": members}).encode())


def _shown(ruling: Replace | Block) -> str:
    return str(ruling.value) if isinstance(ruling, Replace) else f"withheld by the Guardian: {ruling.reason}"


def _blocked(reason: str) -> Reply:
    return Reply(json.dumps({"decision": "block", "reason": reason or "blocked"}).encode())
