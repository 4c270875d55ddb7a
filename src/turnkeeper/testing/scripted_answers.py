"""What a scripted model is told to say, and what it was asked: plain data for the three protocols alike."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from turnkeeper.errors import TurnkeeperError

WireName: TypeAlias = Literal["chat_completions", "responses", "messages"]


class ScriptMalformed(TurnkeeperError):
    """A script file is not a list of answers."""

    code = "script_malformed"


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call of the scripted model. `arguments` is text, so it need not be JSON; `id` None: made up."""

    name: str
    arguments: str = "{}"
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptedUsage:
    """What the scripted model says it consumed.

    `prompt_tokens` hold the cached and the written ones; in Anthropic's protocol they are told apart, as it does.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """One answer of the script.

    A `status` other than 200 sends an error with `error_code`. `usage` None is counted from the texts unless
    `omit_usage`. `raw` replaces the whole body. `delay_ms` passes before anything is sent; `hang_up` closes the
    connection instead of answering. `reasoning` is said before the text.

    Of a stream, which is sent a word at a time: `event_delay_ms` passes before each event, the connection is closed
    after `cut_after_events`, and `stream_error` is a code that takes the place of all events after `error_after`.
    """

    text: str | None = None
    tool_calls: tuple[ScriptedCall, ...] = ()
    usage: ScriptedUsage | None = None
    omit_usage: bool = False
    finish_reason: str | None = None
    status: int = 200
    error_code: str = "scripted_error"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay_ms: int = 0
    raw: bytes | None = None
    hang_up: bool = False
    reasoning: str | None = None
    event_delay_ms: int = 0
    cut_after_events: int | None = None
    stream_error: str | None = None
    error_after: int = 0


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request as it arrived; `body` is `{}` when it was not a JSON object. `index` counts from 0."""

    wire: WireName
    index: int
    method: str
    target: str
    headers: Mapping[str, str]
    body: Mapping[str, object]
    raw: bytes

    @property
    def streams(self) -> bool:
        """Whether a stream was asked for."""
        return self.body.get("stream") is True

    @property
    def messages(self) -> list[dict[str, object]]:
        """The conversation so far; of Responses, its input items."""
        value = self.body.get("input" if self.wire == "responses" else "messages", [])
        return (
            [{"role": "user", "content": value}] if isinstance(value, str) else cast("list[dict[str, object]]", value)
        )

    @property
    def tool_names(self) -> list[str]:
        """The names of the tools that were offered."""
        tools = cast("list[dict[str, object]]", self.body.get("tools", []))
        if self.wire == "chat_completions":
            tools = [cast("dict[str, object]", tool["function"]) for tool in tools]
        return [str(tool.get("name", tool.get("type"))) for tool in tools]

    @property
    def tool_results(self) -> int:
        """How many results of tools the conversation holds: by it a script knows how far an agent has come."""
        marks = ('"role": "tool"', '_call_output"', '"type": "tool_result"')
        return sum(json.dumps(self.messages).count(mark) for mark in marks)


Script: TypeAlias = Sequence[ScriptedAnswer] | Callable[[SeenRequest], ScriptedAnswer]


def parse_script(text: str) -> list[ScriptedAnswer]:
    """A script from JSON: a list of objects with the members of `ScriptedAnswer` (without `raw`).

    `tool_calls` are `{"name", "arguments"}`, arguments an object or a text. Raises `ScriptMalformed`.
    """
    try:
        entries = cast("object", json.loads(text))
        if not isinstance(entries, list):
            raise ScriptMalformed("a script is a list of answers")
        return [_parse_entry(cast("dict[str, object]", entry)) for entry in cast("list[object]", entries)]
    except (ValueError, TypeError, KeyError) as error:
        raise ScriptMalformed(f"a script could not be read: {error}") from error


def _parse_entry(entry: Mapping[str, object]) -> ScriptedAnswer:
    members = dict(entry)
    calls = cast("list[dict[str, object]]", members.pop("tool_calls", []))
    usage = cast("dict[str, int] | None", members.pop("usage", None))
    return ScriptedAnswer(
        tool_calls=tuple(_parse_call(call) for call in calls),
        usage=None if usage is None else ScriptedUsage(**usage),
        **members,  # pyright: ignore[reportArgumentType] - a wrong name is a TypeError, reported as ScriptMalformed
    )


def _parse_call(call: Mapping[str, object]) -> ScriptedCall:
    arguments = call.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ScriptedCall(str(call["name"]), text)
