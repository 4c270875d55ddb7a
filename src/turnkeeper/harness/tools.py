"""Tools that are only proposed: the agent names one, the worker decides, executes and answers.

The arguments stay the text the model wrote. Nothing is executed in this process.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

from turnkeeper.harness.channel import WorkerLink
from turnkeeper.harness.model import SpentUsage
from turnkeeper.sandbox.protocol import ToolSpec

ToolHandler: TypeAlias = Callable[[str], Awaitable[str]]

_TEXT: Final = "text"
# The bound on model calls is the one that counts; a wrong tool name must not end a turn sooner.
_MAX_RETRIES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ProposedTool:
    """A tool as the model sees it and what happens with the text of its arguments."""

    spec: ToolSpec
    handle: ToolHandler


class ProposedTools(AbstractToolset[object]):
    """pydantic-ai's view of the proposed tools: any arguments, one call at a time. Raises `ValueError` on a name given
    twice."""

    def __init__(self, tools: Sequence[ProposedTool]) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            raise ValueError("two tools have the same name")

    @property
    def id(self) -> str:
        """A fixed name; there is one of these per agent."""
        return "turnkeeper"

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        """The tools with their schemas as given."""
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=name,
                    description=tool.spec.description,
                    parameters_json_schema=tool.spec.parameters,
                    strict=False,
                    sequential=True,
                ),
                max_retries=_MAX_RETRIES,
                args_validator=_AnyText(),
            )
            for name, tool in self._tools.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]
    ) -> str:
        """What the model gets back."""
        return await self._tools[name].handle(cast("str", tool_args[_TEXT]))


class _AnyText:
    """Stands where pydantic-ai wants a validator; keeps the text, judges nothing."""

    def validate_json(self, input: str | bytes | bytearray, **_: object) -> dict[str, str]:
        """The model's own text."""
        return {_TEXT: input if isinstance(input, str) else bytes(input).decode()}

    def validate_python(self, input: object, **_: object) -> dict[str, str]:
        """Arguments that were parsed on the way, as text again."""
        return {_TEXT: json.dumps(input, ensure_ascii=False)}


def worker_tool(spec: ToolSpec, link: WorkerLink, usage: SpentUsage) -> ProposedTool:
    """A tool whose every call is a question to the worker, unless its arguments are no JSON object."""

    async def handle(arguments: str) -> str:
        if not is_json_object(arguments):
            return f"The arguments of {spec.name} were not a JSON object, so it was not called. Try again."
        result = await link.call_tool(spec.name, arguments)
        usage.tool_calls += result.status == "ok"
        told = result.content or (f"({result.status})" if result.status != "ok" else "")
        return f"{told}\n\n[{result.notice}]" if result.notice else told

    return ProposedTool(spec, handle)


def is_json_object(text: str) -> bool:
    """Whether the text parses as a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
