"""opencode in a box: settings and our plugin from read-only files, Chat Completions, `run --format json`. Pure.

It takes no schema: how a result is handed in is said in the prompt, and the end of the answer is read as the result.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
from typing import ClassVar, Final

from turnkeeper.boxed.clients import HOOK_TIMEOUT_S, Heard, Task
from turnkeeper.boxed.lines import member, text_member
from turnkeeper.boxed.places import HOME, MODEL_HOST
from turnkeeper.hooks import opencode
from turnkeeper.hooks.events import Dialect
from turnkeeper.sandbox.protocol import ModelWire

CONFIG_FILE: Final = "/etc/opencode/opencode.json"
"""The managed settings, which come after all others."""
PLUGIN_FILE: Final = "/run/turnkeeper/opencode_plugin.js"

_FOLDER: Final = ".config/opencode"
_LOCK: Final = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
"""Otherwise it would fetch this for plugins, and wait for more than a minute where there is no network."""
_LONGEST_TIMER_MS: Final = 2**31 - 1
"""A longer one is over at once in JavaScript."""
_NOT_TOOLS: Final = frozenset({"invalid"})
"""How opencode shows a call of a tool that it has not; nothing runs."""
_RESULT: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


class Opencode:
    """`opencode run`."""

    wire: ClassVar[ModelWire] = "chat_completions"
    dialect: ClassVar[Dialect] = opencode
    program: ClassVar[str] = "node_modules/opencode-ai/bin/opencode.exe"
    instructions_file: ClassVar[str] = f"{_FOLDER}/AGENTS.md"
    environment: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "HOME": HOME,
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }
    )

    home_files: ClassVar[Mapping[str, str]] = MappingProxyType(
        {f"{_FOLDER}/package-lock.json": json.dumps(_LOCK), f"{_FOLDER}/node_modules/.keep": ""}
    )

    def files(self, hook: Sequence[str], model: str) -> Mapping[str, str]:
        """Its settings and the plugin. Its own permission rules are off: the Guardian decides, and its box holds it."""
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "boxed",
            "options": {"baseURL": f"{MODEL_HOST}/v1", "apiKey": "none"},
            "models": {model: {"name": model}},
        }
        settings = {
            "provider": {"boxed": provider},
            "model": f"boxed/{model}",
            "small_model": f"boxed/{model}",
            "plugin": [f"file://{PLUGIN_FILE}"],
            "permission": {"*": "allow"},
            "autoupdate": False,
            "share": "disabled",
        }
        template = files("turnkeeper.hooks").joinpath("opencode_plugin.js").read_text()
        timeout_ms = min(HOOK_TIMEOUT_S * 1_000, _LONGEST_TIMER_MS)
        plugin = template.replace("__COMMAND__", json.dumps(list(hook))).replace("__TIMEOUT_MS__", str(timeout_ms))
        return {CONFIG_FILE: json.dumps(settings), PLUGIN_FILE: plugin}

    def words(self, task: Task) -> list[str]:
        """Headless."""
        resumed = [] if task.session is None else ["--session", task.session]
        return ["run", "--format", "json", "--model", f"boxed/{task.model}", *resumed]

    def output(self, task: Task) -> "OpencodeOutput":
        """Reads one run."""
        return OpencodeOutput(structured=task.output_schema is not None)


class OpencodeOutput:
    """The lines of `run --format json`."""

    def __init__(self, *, structured: bool) -> None:
        self.heard = Heard()
        self._structured = structured

    def take(self, line: Mapping[str, object]) -> None:
        """One line."""
        self.heard.session = text_member(line, "sessionID") or self.heard.session
        part = member(line, "part")
        match line.get("type"):
            case "text":
                self.heard.done = True
                self.heard.text = text_member(part, "text")
                self.heard.value_json = _last_value(self.heard.text) if self._structured else None
            case "tool_use" if text_member(part, "tool") not in _NOT_TOOLS:
                self.heard.finished[text_member(part, "callID")] = text_member(part, "tool")
            case "error":
                self.heard.failure = json.dumps(line.get("error"), ensure_ascii=False)
            case _:
                pass

    def ungoverned(self, asked: Collection[str], before: int) -> str | None:
        """A call that is over and that no hook asked about."""
        del before
        return next((name for call, name in self.heard.finished.items() if call not in asked), None)


def _last_value(text: str) -> str | None:
    """The JSON text at the end of an answer: its last code block, else all of it."""
    blocks: list[str] = _RESULT.findall(text)
    written = blocks[-1].strip() if blocks else text.strip()
    try:
        json.loads(written)
    except (ValueError, RecursionError):
        return None
    return written
