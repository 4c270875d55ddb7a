"""Reading a hook's input: its members, and the events that Claude Code and Codex name alike. Pure."""

import json
from collections.abc import Callable, Mapping
from typing import Final, cast

from turnkeeper.hooks.events import (
    HookEvent,
    HookInputInvalid,
    PromptSubmitted,
    Report,
    SessionBegan,
    SessionOver,
    ToolFinished,
    ToolRequested,
    TurnStopped,
)


def text_of(document: Mapping[str, object], name: str) -> str:
    """A member that must be text, not empty. Raises `HookInputInvalid`."""
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise HookInputInvalid(f"the hook's input has no text {name!r}")
    return value


def object_of(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A member that must be an object. Raises `HookInputInvalid`."""
    value = document.get(name)
    if not isinstance(value, dict):
        raise HookInputInvalid(f"the hook's input has no object {name!r}")
    return cast("Mapping[str, object]", value)


def mcp_server_of(tool: str) -> str | None:
    """The MCP server in a name such as `mcp__files__read`; None for the client's own tools."""
    head, _, rest = tool.partition("__")
    server, separator, _ = rest.partition("__")
    return server if head == "mcp" and separator else None


def report_of(document: Mapping[str, object]) -> Report:
    """The report in the common form: `session_id`, `hook_event_name` and the event's own members.

    Raises `HookInputInvalid`.
    """
    name = text_of(document, "hook_event_name")
    reader = _READERS.get(name)
    if reader is None:
        raise HookInputInvalid(f"no hook of that name is known here: {name!r}")
    return Report(text_of(document, "session_id"), reader(document))


def _requested(document: Mapping[str, object]) -> HookEvent:
    name = text_of(document, "tool_name")
    arguments = object_of(document, "tool_input")
    return ToolRequested(text_of(document, "tool_use_id"), name, arguments, mcp_server_of(name))


def shown(output: object) -> str:
    """A tool's output as one text: so a rule about outputs need not know each tool's form of them."""
    if isinstance(output, str):
        return output
    if is_shell_output(output):
        streams = (cast("Mapping[str, object]", output).get(name) for name in ("stdout", "stderr"))
        return "\n".join(text for text in streams if isinstance(text, str) and text)
    return json.dumps(output, ensure_ascii=False)


def in_the_form_of(output: object, text: str) -> object:
    """`text` in the form of the output that it stands for, so that the client takes it."""
    if isinstance(output, str):
        return text
    if is_shell_output(output):
        return {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
    try:
        return json.loads(text)
    except ValueError:
        return text


def is_shell_output(output: object) -> bool:
    """Whether an output is a shell's, with its two streams apart."""
    return isinstance(output, dict) and isinstance(cast("Mapping[str, object]", output).get("stdout"), str)


def _finished(document: Mapping[str, object]) -> HookEvent:
    return _outcome(document, "tool_response", failed=False)


def _failed(document: Mapping[str, object]) -> HookEvent:
    return _outcome(document, "error", failed=True)


def _outcome(document: Mapping[str, object], member: str, *, failed: bool) -> ToolFinished:
    output = document.get(member)
    call_id, name = text_of(document, "tool_use_id"), text_of(document, "tool_name")
    return ToolFinished(call_id, name, shown(output), output, failed)


_READERS: Final[Mapping[str, Callable[[Mapping[str, object]], HookEvent]]] = {
    "SessionStart": lambda _: SessionBegan(),
    "UserPromptSubmit": lambda document: PromptSubmitted(text_of(document, "prompt")),
    "PreToolUse": _requested,
    "PostToolUse": _finished,
    "PostToolUseFailure": _failed,
    "Stop": lambda _: TurnStopped(),
    "SessionEnd": lambda _: SessionOver(),
}
