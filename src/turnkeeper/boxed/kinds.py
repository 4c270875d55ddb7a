"""The clients by the kinds that agents name them with."""

from collections.abc import Mapping
from typing import Final

from turnkeeper.boxed.claude_code import ClaudeCode
from turnkeeper.boxed.clients import Client
from turnkeeper.boxed.codex import Codex
from turnkeeper.boxed.opencode import Opencode

KINDS: Final[Mapping[str, Client]] = {"claude-code": ClaudeCode(), "codex": Codex(), "opencode": Opencode()}
