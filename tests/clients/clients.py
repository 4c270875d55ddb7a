"""Claude Code, Codex and opencode as they come from npm: each run headless, once, against a scripted model.

`make clients` puts the pinned versions into `.clients/`. Each run has a home of its own; a user's is not read.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from turnkeeper.hooks.install import ClientFiles, Installation
from turnkeeper.hooks.install_claude_code import ClaudeCodeFile
from turnkeeper.hooks.install_codex import CodexFile
from turnkeeper.hooks.install_opencode import OpencodeFile
from turnkeeper.testing.scripted_answers import ScriptedCall, SeenRequest

ROOT = Path(__file__).parents[2] / ".clients"
BIN = ROOT / "node_modules" / ".bin"
RUN_TIMEOUT_S = 600


class RealClient(Protocol):
    """One of the three."""

    @property
    def name(self) -> str: ...
    def files(self, home: Path) -> ClientFiles:
        """Where it reads its hooks from."""
        ...

    def call(self, command: str) -> ScriptedCall:
        """Its shell tool, as a model calls it."""
        ...

    def outputs(self, seen: SeenRequest) -> list[str]:
        """What its tools have put out so far, as the model is told."""
        ...

    def has_tools(self, seen: SeenRequest) -> bool:
        """Whether this is the turn itself, not a title or the like."""
        ...

    def argv(self, home: Path, model_url: str, prompt: str) -> list[str]:
        """The command, with what it reads put into its home."""
        ...


@dataclass(frozen=True)
class ClaudeCode:
    """`claude -p`."""

    name: str = "claude-code"

    def files(self, home: Path) -> ClientFiles:
        """Its `settings.json`."""
        return ClaudeCodeFile(home / ".claude" / "settings.json")

    def call(self, command: str) -> ScriptedCall:
        """`Bash`."""
        return ScriptedCall("Bash", json.dumps({"command": command, "description": "a test"}))

    def outputs(self, seen: SeenRequest) -> list[str]:
        """The `tool_result` blocks."""
        blocks = [block for message in _list(seen.body, "messages") for block in _blocks(message)]
        return [json.dumps(block["content"]) for block in blocks if block.get("type") == "tool_result"]

    def has_tools(self, seen: SeenRequest) -> bool:
        """Whether `Bash` is offered."""
        return any(tool.get("name") == "Bash" for tool in _list(seen.body, "tools"))

    def argv(self, home: Path, model_url: str, prompt: str) -> list[str]:
        """Headless, with its shell allowed by its own rules."""
        options = ["--model", "scripted", "--allowedTools", "Bash", "--output-format", "stream-json", "--verbose"]
        settings = {
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ANTHROPIC_BASE_URL": model_url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": "none",
        }
        return _env(settings, [str(BIN / "claude"), "-p", prompt, *options])


@dataclass(frozen=True)
class Codex:
    """`codex exec`, with the trust that a managed file has by itself."""

    name: str = "codex"

    def files(self, home: Path) -> ClientFiles:
        """Its `config.toml`."""
        return CodexFile(home / ".codex" / "config.toml", managed=False)

    def call(self, command: str) -> ScriptedCall:
        """`exec_command`, which its hooks call `Bash`."""
        return ScriptedCall("exec_command", json.dumps({"cmd": command}))

    def outputs(self, seen: SeenRequest) -> list[str]:
        """The `function_call_output` items."""
        items = _list(seen.body, "input")
        return [str(item["output"]) for item in items if item.get("type") == "function_call_output"]

    def has_tools(self, seen: SeenRequest) -> bool:
        """Every request of `exec` is the turn's."""
        return bool(seen.body.get("tools"))

    def argv(self, home: Path, model_url: str, prompt: str) -> list[str]:
        """Headless. Its own sandbox is off: it does not run in every container, and is not what is tested."""
        config = home / ".codex" / "config.toml"
        written = config.read_text() if config.exists() else ""
        head = 'model = "scripted"\nmodel_provider = "scripted"\nsandbox_mode = "danger-full-access"\n'
        provider = {"name": "scripted", "base_url": model_url, "wire_api": "responses", "env_key": "MODEL_KEY"}
        table = "".join(f"{name} = {json.dumps(value)}\n" for name, value in provider.items())
        retries = "request_max_retries = 0\nstream_max_retries = 0\n"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f"{head}{written}\n[model_providers.scripted]\n{table}{retries}")
        options = ["exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check", "--json", prompt]
        return _env({"CODEX_HOME": str(config.parent), "MODEL_KEY": "none"}, [str(BIN / "codex"), *options])


@dataclass(frozen=True)
class Opencode:
    """`opencode run`."""

    name: str = "opencode"

    def files(self, home: Path) -> ClientFiles:
        """Its plugin folder."""
        return OpencodeFile(home / ".config" / "opencode" / "plugin" / "turnkeeper.js")

    def call(self, command: str) -> ScriptedCall:
        """`bash`."""
        return ScriptedCall("bash", json.dumps({"command": command, "description": "a test"}))

    def outputs(self, seen: SeenRequest) -> list[str]:
        """The messages of the role `tool`."""
        return [str(message["content"]) for message in _list(seen.body, "messages") if message.get("role") == "tool"]

    def has_tools(self, seen: SeenRequest) -> bool:
        """Titles are asked for without tools."""
        return bool(seen.body.get("tools"))

    def argv(self, home: Path, model_url: str, prompt: str) -> list[str]:
        """Headless, with the plugin's own dependency there beforehand, which it would fetch otherwise."""
        folder = home / ".config" / "opencode"
        folder.mkdir(parents=True, exist_ok=True)
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "options": {"baseURL": model_url, "apiKey": "none"},
            "models": {"scripted": {"name": "scripted"}},
        }
        model = "scripted/scripted"
        config = {"provider": {"scripted": provider}, "model": model, "small_model": model}
        (folder / "opencode.json").write_text(json.dumps(config))
        (folder / "package.json").write_text(json.dumps({"dependencies": {"@opencode-ai/plugin": "1.18.33"}}))
        (folder / "node_modules").symlink_to(ROOT / "node_modules")
        settings = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        return _env(settings, [str(BIN / "opencode"), "run", "--format", "json", prompt])


CLIENTS: tuple[RealClient, ...] = (ClaudeCode(), Codex(), Opencode())


@dataclass(frozen=True)
class Ran:
    """How a client ended, and what it printed."""

    code: int
    out: str
    err: str


def run(client: RealClient, folder: Path, installation: Installation | None, model_url: str) -> Ran:
    """One prompt to its end, in `folder/work`, with the hooks installed where there is an installation."""
    home, work = folder / "home", folder / "work"
    for made in (home, work):
        made.mkdir(exist_ok=True)
    if installation is not None:
        client.files(home).install(installation)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "IS_SANDBOX": "1", "TMPDIR": str(folder)}
    ended = subprocess.run(
        client.argv(home, model_url, "Do it."),
        env=environment,
        cwd=work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    return Ran(ended.returncode, ended.stdout, ended.stderr)


def _env(settings: Mapping[str, str], command: list[str]) -> list[str]:
    return ["/usr/bin/env", *(f"{name}={value}" for name, value in settings.items()), *command]


def _list(document: Mapping[str, object], name: str) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", document.get(name) or [])


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
