"""What the runner and the worker know of each client: how it is started, what it is told, what it prints. Pure.

A client's module has one class of each: `Client` for what is written for it, `Output` for what is read of it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol

from turnkeeper.hooks.events import Dialect
from turnkeeper.sandbox.protocol import ModelWire

HOOK_TIMEOUT_S: Final = 86_400
"""The answer is the worker's, which ends the box where none comes; the client is not to give up before."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a client. `session` is its own session that goes on; the prompt comes on its standard input."""

    model: str
    output_schema: str | None = None
    session: str | None = None


@dataclass(slots=True)
class Heard:
    """What a client's output has said so far. `value_json` is a structured result, `failure` why it gave up."""

    session: str | None = None
    text: str = ""
    value_json: str | None = None
    failure: str | None = None
    done: bool = False
    finished: dict[str, str] = field(default_factory=dict[str, str])
    """Calls that were carried out, by the client's ids of them, with the tool's name."""


class Output(Protocol):
    """A client's output while it comes."""

    @property
    def heard(self) -> Heard:
        """All of it."""
        ...

    def take(self, line: Mapping[str, object]) -> None:
        """One line of it."""
        ...

    def ungoverned(self, asked: Collection[str], before: int) -> str | None:
        """The name of a tool that was called although no hook had asked.

        `asked` are the calls that hooks asked about, `before` how many of them before this run.
        """
        ...


class Client(Protocol):
    """One client: the protocol in which it speaks to its model, its hooks' words, its program below the folder that npm
    filled, where it looks for standing instructions below its home, the variables of its box, and what its home has to
    begin with."""

    wire: ClassVar[ModelWire]
    dialect: ClassVar[Dialect]
    program: ClassVar[str]
    instructions_file: ClassVar[str]
    environment: ClassVar[Mapping[str, str]]
    home_files: ClassVar[Mapping[str, str]]

    def files(self, hook: Sequence[str], model: str) -> Mapping[str, str]:
        """Its settings by path inside, which nothing in the box can change. `hook` is the command of a hook."""
        ...

    def words(self, task: Task) -> list[str]:
        """The words of its command line."""
        ...

    def output(self, task: Task) -> Output:
        """Reads one run."""
        ...
