"""What a coding agent reports through its hooks, in one vocabulary, and what it may be told.

Pure. Each client's module turns its own documents into these and these into its own answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from turnkeeper.errors import TurnkeeperError


class HookInputInvalid(TurnkeeperError):
    """What the client sent is not what its hooks are known to send."""

    code = "hook_input_invalid"


@dataclass(frozen=True, slots=True)
class SessionBegan:
    """The client started or took up a session."""


@dataclass(frozen=True, slots=True)
class PromptSubmitted:
    """A person, or whoever drives the client, said something; the agent has not read it yet."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolRequested:
    """The agent wants to call a tool. `provider` is the MCP server it belongs to."""

    call_id: str
    name: str
    arguments: Mapping[str, object]
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool was called; the agent has not read its output yet.

    `text` is what the Guardian is shown, whatever form the client's own `output` has.
    """

    call_id: str
    name: str
    text: str
    output: object
    failed: bool = False


@dataclass(frozen=True, slots=True)
class TurnStopped:
    """The agent has answered and waits for its next prompt."""


@dataclass(frozen=True, slots=True)
class SessionOver:
    """The client ends the session."""


HookEvent: TypeAlias = SessionBegan | PromptSubmitted | ToolRequested | ToolFinished | TurnStopped | SessionOver


def has_happened(event: HookEvent) -> bool:
    """Whether it can only be recorded. To block a stop means to go on, which the clients then do, again and again."""
    return isinstance(event, SessionBegan | TurnStopped | SessionOver)


@dataclass(frozen=True, slots=True)
class Report:
    """One hook's input. `session` is the client's own id, text of its choosing."""

    session: str
    event: HookEvent


@dataclass(frozen=True, slots=True)
class Proceed:
    """It may go on as it is."""


@dataclass(frozen=True, slots=True)
class Replace:
    """It may go on with this instead: a tool's arguments, or the text that the agent reads as its output."""

    value: object


@dataclass(frozen=True, slots=True)
class Block:
    """It must not go on; `reason` is for the agent and the person."""

    reason: str


Ruling: TypeAlias = Proceed | Replace | Block


@dataclass(frozen=True, slots=True)
class Reply:
    """How the hook's process ends."""

    stdout: bytes = b""
    stderr: str = ""
    exit_code: Literal[0, 2] = 0


class Dialect(Protocol):
    """One client's words. A module of this package is one."""

    def read_report(self, document: Mapping[str, object]) -> Report:
        """What a hook's input says. Raises `HookInputInvalid`."""
        ...

    def render_reply(self, event: HookEvent, ruling: Ruling) -> Reply:
        """What the client is told."""
        ...
