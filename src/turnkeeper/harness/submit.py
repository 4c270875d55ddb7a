"""`submit_result`: how an agent hands in a value for the turn's `output_schema` (contract 5.3).

The worker judges each submission and counts the repairs. Here the schema becomes a tool's parameters, wrapped when its
root is not an object, and the value's text is unwrapped again without changing its spelling.
"""

import json
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from turnkeeper.harness.channel import WorkerLink
from turnkeeper.harness.json_text import member_text
from turnkeeper.harness.tools import ProposedTool
from turnkeeper.sandbox.protocol import SubmissionResult, ToolSpec

SUBMIT_TOOL: Final = "submit_result"
ASK_ONCE: Final = (
    f"You stopped without submitting a result. Call {SUBMIT_TOOL} now with the value that answers the request, "
    "then finish with a short text."
)
CLOSED: Final = "closed: no further result is looked at. Finish with a text."

_WRAPPER: Final = "value"
_DESCRIPTION: Final = (
    "Submit the result of this turn. The arguments are the result itself and are checked at once; a later accepted "
    "result replaces an earlier one."
)
_LITERAL_KEYWORDS: Final = frozenset({"const", "enum", "default", "examples"})
_NAMED_SCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})

Schema: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class ResultForm:
    """What a model is asked to write, and how the result is taken out of it again."""

    parameters: Schema
    wrapped: bool

    @classmethod
    def of(cls, output_schema: str) -> "ResultForm":
        """The form for a schema given as JSON text."""
        schema = cast("object", json.loads(output_schema))
        if isinstance(schema, dict):
            members = cast("Schema", schema)
            if members.get("type") == "object":
                return cls(members, wrapped=False)
        return cls(_wrap(cast("object", schema)), wrapped=True)

    def unwrap(self, text: str) -> str:
        """The text of the result itself; the whole text where the model left the wrapper out."""
        inner = member_text(text, _WRAPPER) if self.wrapped else None
        return text if inner is None else inner


@dataclass(slots=True)
class Submissions:
    """The submissions of one turn. `accepted` is the text of the latest accepted value."""

    form: ResultForm
    link: WorkerLink
    count: int = 0
    accepted: str | None = None
    closed: bool = field(default=False, init=False)

    async def submit(self, written: str) -> SubmissionResult:
        """Hands in what the model wrote and keeps what became of it."""
        value = self.form.unwrap(written)
        result = await self.link.submit(value)
        self.count += 1
        self.closed = result.closed
        if result.accepted:
            self.accepted = value
        return result

    def tool(self) -> ProposedTool:
        """`submit_result` for the agent."""

        async def handle(arguments: str) -> str:
            if self.closed:
                return CLOSED
            return words_for(await self.submit(arguments))

        return ProposedTool(ToolSpec(SUBMIT_TOOL, _DESCRIPTION, self.form.parameters), handle)


def words_for(result: SubmissionResult) -> str:
    """What the agent is told about a submission."""
    if result.accepted:
        return "accepted. Finish with a short text."
    if result.closed:
        return CLOSED
    problems = "\n".join(f"- {error}" for error in result.errors)
    return f"not accepted:\n{problems}\nCorrect the value and submit again ({result.attempts_left} attempts left)."


def _wrap(schema: object) -> Schema:
    inner = _moved(schema)
    if isinstance(inner, dict):
        # As a part of another document it must not claim to be one of its own.
        for name in ("$schema", "$id"):
            cast("Schema", inner).pop(name, None)
    return {
        "type": "object",
        "properties": {_WRAPPER: inner},
        "required": [_WRAPPER],
        "additionalProperties": False,
    }


def _moved(schema: object) -> object:
    """The schema with its local references pointing to where it stands inside the wrapper."""
    if isinstance(schema, list):
        return [_moved(item) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {name: _moved_keyword(name, value) for name, value in cast("Schema", schema).items()}


def _moved_keyword(name: str, value: object) -> object:
    if name in _LITERAL_KEYWORDS:
        return value
    if name == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
        return f"#/properties/{_WRAPPER}{value[1:]}"
    if name in _NAMED_SCHEMAS and isinstance(value, dict):
        return {key: _moved(child) for key, child in cast("Schema", value).items()}
    return _moved(value)
