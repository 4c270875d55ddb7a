"""opencode's hooks, as the plugin that Turnkeeper installs passes them on.

Pure. The plugin sends `{"hook", "session", ...}` and obeys `{"verdict": "proceed"|"replace"|"block", ...}`; it throws,
which opencode takes for a denial, on a block and on anything that is no such answer.
"""

import json
from collections.abc import Mapping
from typing import Final

from turnkeeper.hooks.documents import object_of, shown, text_of
from turnkeeper.hooks.events import (
    Block,
    HookEvent,
    HookInputInvalid,
    PromptSubmitted,
    Replace,
    Reply,
    Report,
    Ruling,
    SessionBegan,
    SessionOver,
    ToolFinished,
    ToolRequested,
    TurnStopped,
)

HOOKS: Final = ("session.created", "chat.message", "tool.execute.before", "tool.execute.after", "session.idle")
"""What the plugin passes on."""


def read_report(document: Mapping[str, object]) -> Report:
    """What the plugin sent. Raises `HookInputInvalid`."""
    return Report(text_of(document, "session"), _event(document))


def render_reply(event: HookEvent, ruling: Ruling) -> Reply:
    """What the plugin is told."""
    del event
    match ruling:
        case Replace(value):
            answer: dict[str, object] = {"verdict": "replace", "value": value}
        case Block(reason):
            answer = {"verdict": "block", "reason": reason}
        case _:
            answer = {"verdict": "proceed"}
    return Reply(json.dumps(answer).encode())


def _event(document: Mapping[str, object]) -> HookEvent:
    match text_of(document, "hook"):
        case "session.created":
            return SessionBegan()
        case "chat.message":
            return PromptSubmitted(text_of(document, "text"))
        case "tool.execute.before":
            arguments = object_of(document, "arguments")
            return ToolRequested(text_of(document, "call"), text_of(document, "tool"), arguments)
        case "tool.execute.after":
            output = document.get("output")
            return ToolFinished(text_of(document, "call"), text_of(document, "tool"), shown(output), output)
        case "session.idle":
            return TurnStopped()
        case "session.deleted":
            return SessionOver()
        case other:
            raise HookInputInvalid(f"no hook of opencode that is known here: {other!r}")
