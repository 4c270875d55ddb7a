"""Codex in a box: a managed file with our hooks alone, Responses, `exec --json`. Pure.

Codex skips hooks of its other files silently until somebody has trusted them, so that only the managed one governs.
"""

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final

from turnkeeper.boxed.clients import HOOK_TIMEOUT_S, Heard, Task
from turnkeeper.boxed.lines import member, text_member
from turnkeeper.boxed.places import HOME, MODEL_HOST, SCHEMA_NAME
from turnkeeper.hooks import codex
from turnkeeper.hooks.events import Dialect
from turnkeeper.sandbox.protocol import ModelWire

_MATCHED: Final = ("PreToolUse", "PostToolUse")
_WITHHELD: Final = json.dumps({"decision": "block", "reason": "withheld: the hook failed"})
_CALLS: Final = frozenset({"command_execution", "file_change", "mcp_tool_call", "web_search"})
"""Items that are calls of tools. Their ids are not those that hooks are told, so they are only counted."""
_PROVIDER: Final = {
    "name": "boxed",
    "base_url": f"{MODEL_HOST}/v1",
    "wire_api": "responses",
    "env_key": "MODEL_KEY",
    "request_max_retries": 0,
    "stream_max_retries": 0,
}


class Codex:
    """`codex exec`."""

    wire: ClassVar[ModelWire] = "responses"
    dialect: ClassVar[Dialect] = codex
    program: ClassVar[str] = "node_modules/@openai/codex/bin/codex.js"
    instructions_file: ClassVar[str] = ".codex/AGENTS.md"
    environment: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"HOME": HOME, "CODEX_HOME": f"{HOME}/.codex", "MODEL_KEY": "none"}
    )

    home_files: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def files(self, hook: Sequence[str], model: str) -> Mapping[str, str]:
        """The managed requirements: our hooks, and no others."""
        del model
        head = "allow_managed_hooks_only = true\n\n[features]\nhooks = true\n\n[hooks]\n"
        entries = "\n".join(_entry(event, hook) for event in codex.EVENTS)
        return {"/etc/codex/requirements.toml": f'{head}managed_dir = "/etc/codex"\n\n{entries}'}

    def words(self, task: Task) -> list[str]:
        """Headless. Its own sandbox is off, which does not run in another: its box holds it."""
        chosen = {"model": task.model, "model_provider": "boxed", "sandbox_mode": "danger-full-access"}
        settings = {**chosen, **{f"model_providers.boxed.{name}": value for name, value in _PROVIDER.items()}}
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={json.dumps(value)}")]
        schema = [] if task.output_schema is None else ["--output-schema", f"{HOME}/{SCHEMA_NAME}"]
        resumed = [] if task.session is None else ["resume", task.session]
        return ["exec", *given, "--skip-git-repo-check", "--json", *schema, *resumed, "-"]

    def output(self, task: Task) -> "CodexOutput":
        """Reads one run."""
        return CodexOutput(structured=task.output_schema is not None)


class CodexOutput:
    """The lines of `exec --json`. With a schema the last message is the result."""

    def __init__(self, *, structured: bool) -> None:
        self.heard = Heard()
        self._structured = structured

    def take(self, line: Mapping[str, object]) -> None:
        """One line."""
        match line.get("type"):
            case "thread.started":
                self.heard.session = text_member(line, "thread_id") or None
            case "item.completed":
                self._item(member(line, "item"))
            case "turn.completed":
                self.heard.done = True
                self.heard.failure = None
            case "turn.failed":
                self.heard.failure = text_member(member(line, "error"), "message") or "it failed"
            case "error":
                self.heard.failure = text_member(line, "message") or "it failed"
            case _:
                pass

    def ungoverned(self, asked: Collection[str], before: int) -> str | None:
        """A call beyond as many as hooks asked about since the run began."""
        finished = list(self.heard.finished.values())
        return finished[-1] if len(finished) > len(asked) - before else None

    def _item(self, item: Mapping[str, object]) -> None:
        kind = text_member(item, "type")
        if kind in _CALLS:
            self.heard.finished[text_member(item, "id")] = kind
        if kind == "agent_message":
            self.heard.text = text_member(item, "text")
            self.heard.value_json = self.heard.text if self._structured else None


def _entry(event: str, hook: Sequence[str]) -> str:
    # A broken hook after a tool must not show the output: there a fixed answer takes the place of exit code 2.
    otherwise = f"printf %s '{_WITHHELD}'" if event == "PostToolUse" else "exit 2"
    matcher = 'matcher = ".*"\n' if event in _MATCHED else ""
    command = json.dumps(f"{shlex.join(hook)} || {otherwise}")
    return (
        f"[[hooks.{event}]]\n{matcher}\n[[hooks.{event}.hooks]]\n"
        f'type = "command"\ncommand = {command}\ntimeout = {HOOK_TIMEOUT_S}\n'
    )
