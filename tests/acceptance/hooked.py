"""A coding agent's hooks as its client runs them: the shell's line, a report on standard input, an answer."""

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.guardian_alone import GuardianAlone

from turnkeeper.hooks.install import Installation
from turnkeeper.hooks.settings import HookSettings, render_settings

POLICY = """
version: 1
name: laptop
default: allow
rules:
  - id: forbidden
    hooks: [toolCallRequest]
    when: has(args.command) && args.command.contains("forbidden")
    decision: deny
    reasoning: That is forbidden here.
  - id: changed
    hooks: [toolCallRequest]
    when: has(args.command) && args.command.contains("changeme")
    decision: modify
    reasoning: It is changed on the way.
    modify: {parameter_overrides: {command: "touch changed"}}
  - id: asked
    hooks: [toolCallRequest]
    when: has(args.command) && args.command.contains("askme")
    decision: ask
    reasoning: Somebody has to agree.
    ask: {approver: {type: human, id: operators}, question: "May it?", timeout_seconds: 600}
  - id: secrets
    hooks: [toolCallResult]
    when: payload.outputs[0].value.contains("secretword")
    decision: modify
    reasoning: It is changed on the way.
    modify: {redactions: [{path: /outputs/0/value, replacement: "[REDACTED]"}]}
  - id: prompts
    hooks: [userMessage]
    when: payload.content[0].value.contains("badprompt")
    decision: deny
    reasoning: Such prompts are not answered.
"""


@dataclass(frozen=True)
class Ended:
    """How a hook ended."""

    code: int
    out: str
    err: str

    @property
    def specific(self) -> dict[str, Any]:
        """The answer's own part."""
        return json.loads(self.out)["hookSpecificOutput"]


@dataclass
class Hooks:
    """The hooks of one client session under a Guardian."""

    guardian: GuardianAlone
    installation: Installation
    session: str = "s1"

    @classmethod
    def under(cls, guardian: GuardianAlone, folder: Path, *, ask_wait_s: int = 60, session: str = "s1") -> "Hooks":
        """Hooks whose settings are in a folder."""
        settings = HookSettings(
            guardian.url, guardian.secret, folder / "state", "laptop", decision_timeout_s=20, ask_wait_s=ask_wait_s
        )
        path = folder / "hook.toml"
        path.write_text(render_settings(settings))
        return cls(guardian, Installation(path, settings), session)

    def line(self, client: str) -> str:
        """What the client's shell runs."""
        return self.installation.command(client)

    def run(self, name: str, **members: object) -> Ended:
        """One hook of Claude Code, to its end."""
        return self.ran("claude-code", {"session_id": self.session, "hook_event_name": name, **members})

    def ran(self, client: str, report: object) -> Ended:
        """One hook of a client, to its end."""
        raw = report if isinstance(report, bytes) else json.dumps(report).encode()
        ended = subprocess.run(self.line(client), shell=True, input=raw, capture_output=True, timeout=100, check=False)
        return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def before(self, command: str, call: str = "c1") -> Ended:
        """A shell call is asked about."""
        return self.run("PreToolUse", tool_name="Bash", tool_use_id=call, tool_input={"command": command})

    def after(self, stdout: str, call: str = "c1") -> Ended:
        """A shell call's output is asked about."""
        return self.run("PostToolUse", tool_name="Bash", tool_use_id=call, tool_response={"stdout": stdout})

    def approve(self, *, deadline_s: float = 120) -> None:
        """Gives a person's answer, as soon as there is a question."""
        key = self.installation.settings_file.with_name("ana.key")
        scopes = ("--scope", "approvals:decide", "--scope", "guardian:read", "--approver", "operators")
        key.write_text(self.guardian.run("guardian", "keys", "create", "--name", "ana", *scopes).stdout.strip())
        deadline = time.monotonic() + deadline_s
        while time.monotonic() < deadline:
            pending = json.loads(self.guardian.run("approvals", "list", "--json").stdout or "[]")
            if pending:
                said = self.guardian.run("approvals", "approve", pending[0]["approval_id"], "--key-file", str(key))
                assert said.returncode == 0, said.stderr
                return
            time.sleep(0.5)
        raise AssertionError("nobody was asked")
