"""Claude Code in a box: managed settings with our hooks alone, Messages, `--print` with its stream of JSON. Pure."""

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, cast

from turnkeeper.boxed.clients import HOOK_TIMEOUT_S, Heard, Task
from turnkeeper.boxed.lines import member, objects, text_member
from turnkeeper.boxed.places import HOME, MODEL_HOST
from turnkeeper.hooks import claude_code
from turnkeeper.hooks.events import Dialect
from turnkeeper.sandbox.protocol import ModelWire

_MATCHED: Final = ("PreToolUse", "PostToolUse", "PostToolUseFailure")
_WITHHELD: Final = json.dumps(
    {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": "withheld: the hook failed"}}
)
_NOT_RUN: Final = "<tool_use_error>"
"""How Claude Code begins the error of a call that it did not make: an unknown tool, arguments that do not fit."""
_MODEL_NAMES: Final = (
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)
"""What it would call other models by: the gateway has the agent's own alone."""
_NO_MODEL: Final = "<synthetic>"
"""Who says what Claude Code puts into an agent's mouth: that a call of the model failed."""
_OWN_TOOLS: Final = frozenset({"StructuredOutput"})
"""How the result is handed in; nothing runs."""


class ClaudeCode:
    """`claude`."""

    wire: ClassVar[ModelWire] = "messages"
    dialect: ClassVar[Dialect] = claude_code
    program: ClassVar[str] = "node_modules/@anthropic-ai/claude-code/bin/claude.exe"
    instructions_file: ClassVar[str] = ".claude/CLAUDE.md"
    environment: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "HOME": HOME,
            "CLAUDE_CONFIG_DIR": f"{HOME}/.claude",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
            "ANTHROPIC_BASE_URL": MODEL_HOST,
            "ANTHROPIC_API_KEY": "none",
        }
    )

    home_files: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def files(self, hook: Sequence[str], model: str) -> Mapping[str, str]:
        """The managed settings: our hooks and no others, whatever the workspace says."""
        hooks = {event: [_entry(event, hook)] for event in claude_code.EVENTS}
        settings = {"allowManagedHooksOnly": True, "hooks": hooks, "env": dict.fromkeys(_MODEL_NAMES, model)}
        return {"/etc/claude-code/managed-settings.json": json.dumps(settings)}

    def words(self, task: Task) -> list[str]:
        """Headless. Its own permission rules are off: the Guardian decides, and its box holds it."""
        schema = [] if task.output_schema is None else ["--json-schema", task.output_schema]
        resumed = [] if task.session is None else ["--resume", task.session]
        modes = ["--permission-mode", "bypassPermissions", "--output-format", "stream-json", "--verbose"]
        return ["--print", "--model", task.model, *modes, *schema, *resumed]

    def output(self, task: Task) -> "ClaudeCodeOutput":
        """Reads one run."""
        del task
        return ClaudeCodeOutput()


class ClaudeCodeOutput:
    """The lines of `--output-format stream-json`."""

    def __init__(self) -> None:
        self.heard = Heard()
        self._names: dict[str, str] = {}

    def take(self, line: Mapping[str, object]) -> None:
        """One line."""
        self.heard.session = text_member(line, "session_id") or self.heard.session
        match line.get("type"):
            case "assistant":
                self._said(line)
            case "user":
                self._returned(line)
            case "result":
                self._ended(line)
            case _:
                pass

    def ungoverned(self, asked: Collection[str], before: int) -> str | None:
        """A call whose result the agent was given, and which no hook asked about."""
        del before
        return next((name for call, name in self.heard.finished.items() if call not in asked), None)

    def _said(self, line: Mapping[str, object]) -> None:
        blocks = objects(member(line, "message"), "content")
        texts = [text_member(block, "text") for block in blocks if block.get("type") == "text"]
        if text_member(member(line, "message"), "model") != _NO_MODEL:
            self.heard.text = "\n".join(filter(None, texts)) or self.heard.text
        for block in blocks:
            if block.get("type") == "tool_use":
                self._names[text_member(block, "id")] = text_member(block, "name")

    def _returned(self, line: Mapping[str, object]) -> None:
        for block in objects(member(line, "message"), "content"):
            name = self._names.get(text_member(block, "tool_use_id"))
            if block.get("type") != "tool_result" or name is None or name in _OWN_TOOLS:
                continue
            if not (block.get("is_error") is True and _text_of(block.get("content")).startswith(_NOT_RUN)):
                self.heard.finished[text_member(block, "tool_use_id")] = name

    def _ended(self, line: Mapping[str, object]) -> None:
        self.heard.done = True
        result = text_member(line, "result")
        if line.get("is_error") is True or line.get("subtype") != "success":
            self.heard.failure = result or text_member(line, "subtype") or "it failed"
            return
        self.heard.text = result or self.heard.text
        if line.get("structured_output") is not None:
            self.heard.value_json = json.dumps(line["structured_output"], ensure_ascii=False)


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    return "".join(text_member(cast("dict[str, object]", block), "text") for block in blocks if isinstance(block, dict))


def _entry(event: str, hook: Sequence[str]) -> dict[str, object]:
    # A broken hook after a tool must not show the output: there a fixed answer takes the place of exit code 2.
    otherwise = f"printf %s '{_WITHHELD}'" if event == "PostToolUse" else "exit 2"
    command = {
        "type": "command",
        "command": f"{shlex.join(hook)} || {otherwise}",
        "timeout": HOOK_TIMEOUT_S,
        "onFailure": "block",
    }
    return {**({"matcher": "*"} if event in _MATCHED else {}), "hooks": [command]}
