"""The clients by the kinds that agents name them with."""

from collections.abc import Mapping
from typing import Final

from turnkeeper.boxed.claude_code import ClaudeCode
from turnkeeper.boxed.clients import Client

KINDS: Final[Mapping[str, Client]] = {"claude-code": ClaudeCode()}
