"""The runner protocol: what a worker and a harness say to each other over the loop box's stdio.

One frame is one line of JSON with a `type`. The harness proposes; the worker decides. Nothing in a frame from the
harness is believed beyond "this is what it wants": usage, time, steps and fences are the worker's own
(contract, amendments 6 and 12). Standard library only, because this module is also inside the box.

A JSON text a model wrote (tool arguments, a submitted value) travels as a *string* holding that text, so that both
sides keep its spelling.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import ClassVar, Final, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from turnkeeper.errors import RemoteProtocolError

PROTOCOL_VERSION: Final = 1
MAX_FRAME_BYTES: Final = 2 * 1024 * 1024
MAX_SAFE_INTEGER: Final = 2**53 - 1

OutputMode: TypeAlias = Literal["tool", "native"]
ToolCalling: TypeAlias = Literal["native", "prompted"]
ModelWire: TypeAlias = Literal["chat_completions", "responses", "messages"]
ToolStatus: TypeAlias = Literal["ok", "error", "denied", "canceled", "timeout", "unknown"]


class HarnessProtocolError(RemoteProtocolError):
    """A frame that this protocol version does not have: too long, not JSON, unknown type, wrong member."""

    code = "harness_protocol_error"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told about it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, object]


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One allowed thing of an earlier turn. `kind` says which members are set.

    `user` and `agent` carry `text`; `summary` carries one of all that was before it; `tool` carries the call
    (`call_id`, `name`, `arguments` as JSON text) and what the agent got back (`text`).
    """

    kind: Literal["user", "agent", "tool", "summary"]
    text: str
    call_id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Worker: run this turn. `gateway_socket` is a path inside the box; `output_schema` is JSON text or null.

    `wire` is the protocol in which the model is spoken to through that socket. With `tool_calling` `prompted` the
    harness describes tools in words and reads calls from what the model writes; where `output_mode` is `native` too,
    the server can be made to write them in their form. `context_tokens` is how much the model takes in, 0 if unknown.

    With `pending` the turn goes on where it waited: `history` ends with what it has done already, its input included,
    and the harness asks for the pending call again before anything else. `submissions` were made before, of which
    `accepted` is the latest accepted value. With `stream` the worker wants text as it is written (`TextDelta`).
    """

    type: ClassVar[str] = "start"
    turn_id: str
    attempt: int
    instructions: str
    input: str
    model: str
    gateway_socket: str
    output_mode: OutputMode = "tool"
    output_schema: str | None = None
    params: dict[str, object] = field(default_factory=dict[str, object])
    tools: list[ToolSpec] = field(default_factory=list[ToolSpec])
    history: list[HistoryItem] = field(default_factory=list[HistoryItem])
    max_model_calls: int = 50
    pending: HistoryItem | None = None
    submissions: int = 0
    accepted: str | None = None
    stream: bool = False
    wire: ModelWire = "chat_completions"
    tool_calling: ToolCalling = "native"
    context_tokens: int = 0
    protocol: int = PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Worker: what the agent gets for a call, after the Guardian.

    `notice` is the platform's own word to the agent, to be told beside the content: its budget is almost used.
    """

    type: ClassVar[str] = "tool_result"
    call_id: str
    status: ToolStatus
    content: str
    notice: str = ""


@dataclass(frozen=True, slots=True)
class ToolRuled:
    """Worker: whether a client may make a call with its own tool.

    `arguments` (JSON text) is what it may be made with, `reason` why it may not.
    """

    type: ClassVar[str] = "tool_ruled"
    call_id: str
    allowed: bool
    arguments: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CompactionRuled:
    """Worker: whether the context may be summarized. After a no the agent goes on with all of it."""

    type: ClassVar[str] = "compaction_ruled"
    allowed: bool


@dataclass(frozen=True, slots=True)
class SummaryRuled:
    """Worker: what became of a summary. `summary` is the text to go on with, where it is `taken`."""

    type: ClassVar[str] = "summary_ruled"
    taken: bool
    summary: str = ""


@dataclass(frozen=True, slots=True)
class SubagentTask:
    """Worker: the call that waits is a task for a subagent; run its loop now. `subagent_report` answers.

    Until then what the harness asks is the subagent's; the call itself has its `tool_result` after that.
    """

    type: ClassVar[str] = "subagent_task"
    thread_id: str
    name: str
    instructions: str
    task: str
    tools: list[ToolSpec] = field(default_factory=list[ToolSpec])


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    """Worker: what became of a submitted value. `closed` means no further submission is looked at."""

    type: ClassVar[str] = "submission_result"
    submission: int
    accepted: bool
    closed: bool
    attempts_left: int
    errors: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class ResponseDenied:
    """Worker: the Guardian refused the answer; the agent may try again `attempts_left` times."""

    type: ClassVar[str] = "response_denied"
    reasons: list[str]
    attempts_left: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Worker: stop now and acknowledge with `canceled` within `grace_ms`."""

    type: ClassVar[str] = "cancel"
    grace_ms: int


@dataclass(frozen=True, slots=True)
class Done:
    """Worker: the report was taken; leave."""

    type: ClassVar[str] = "done"


@dataclass(frozen=True, slots=True)
class Ready:
    """Harness: imported and waiting for `start`."""

    type: ClassVar[str] = "ready"
    harness: str
    version: str
    protocol: int = PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class Started:
    """Harness: agent code is about to run; from here the turn has an attempt."""

    type: ClassVar[str] = "started"
    turn_id: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Harness: the model has written `text`. `message` counts the model's answers from 1; nothing is answered."""

    type: ClassVar[str] = "text_delta"
    message: int
    text: str
    kind: Literal["message", "reasoning"] = "message"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """Harness: the agent wants to call `name` with `arguments` (the model's JSON text)."""

    type: ClassVar[str] = "tool_request"
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolAsked:
    """Harness: a client that brings its own tools wants to call one. `tool_ruled` answers."""

    type: ClassVar[str] = "tool_asked"
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolRan:
    """Harness: what a client's own tool gave, before its agent reads it; `tool_result` says what it may read."""

    type: ClassVar[str] = "tool_ran"
    call_id: str
    status: Literal["ok", "error"]
    content: str


@dataclass(frozen=True, slots=True)
class Ungoverned:
    """Harness: the client's own output shows a call of `name` that none of its hooks had asked about."""

    type: ClassVar[str] = "ungoverned"
    name: str


@dataclass(frozen=True, slots=True)
class CompactionAsked:
    """Harness: the context is near the model's window and would be summarized. `compaction_ruled` answers."""

    type: ClassVar[str] = "compaction_asked"


@dataclass(frozen=True, slots=True)
class Compacted:
    """Harness: the summary of all that was said; empty where none came about. `summary_ruled` answers."""

    type: ClassVar[str] = "compacted"
    summary: str


@dataclass(frozen=True, slots=True)
class Submit:
    """Harness: the agent submits this value (JSON text) for the turn's `output_schema`."""

    type: ClassVar[str] = "submit"
    value: str


@dataclass(frozen=True, slots=True)
class SubagentReport:
    """Harness: the subagent's loop is over; `text` is its answer, `error` is set where it failed."""

    type: ClassVar[str] = "subagent_report"
    thread_id: str
    stop_reason: Literal["end_turn", "budget_reached", "agent_error", "model_error"]
    text: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Harness: the turn is over as far as the agent is concerned.

    The seed's seven fields; `result` is JSON text. `usage` is only compared with the worker's ledger, `error` is set
    when `status` is `failed`.
    """

    type: ClassVar[str] = "report"
    status: Literal["completed", "failed"]
    stop_reason: Literal["end_turn", "budget_reached", "agent_error", "model_error"]
    text: str
    result: str | None
    result_error: Literal["not_submitted", "invalid"] | None
    usage: dict[str, object]
    duration_ms: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Canceled:
    """Harness: the cancel is acknowledged; `text` is what had been said so far."""

    type: ClassVar[str] = "canceled"
    text: str = ""


ToHarness: TypeAlias = (
    Start
    | ToolResult
    | ToolRuled
    | SubagentTask
    | CompactionRuled
    | SummaryRuled
    | SubmissionResult
    | ResponseDenied
    | Cancel
    | Done
)
FromHarness: TypeAlias = (
    Ready
    | Started
    | TextDelta
    | ToolRequest
    | ToolAsked
    | ToolRan
    | Ungoverned
    | CompactionAsked
    | Compacted
    | Submit
    | SubagentReport
    | Report
    | Canceled
)
Frame: TypeAlias = ToHarness | FromHarness

_T = TypeVar("_T")
_FrameT = TypeVar("_FrameT", ToHarness, FromHarness)

_FROM_HARNESS: Final[dict[str, type[FromHarness]]] = {
    cls.type: cls
    for cls in (
        Ready,
        Started,
        TextDelta,
        ToolRequest,
        ToolAsked,
        ToolRan,
        Ungoverned,
        CompactionAsked,
        Compacted,
        Submit,
        SubagentReport,
        Report,
        Canceled,
    )
}
_TO_HARNESS: Final[dict[str, type[ToHarness]]] = {
    cls.type: cls
    for cls in (
        Start,
        ToolResult,
        ToolRuled,
        SubagentTask,
        CompactionRuled,
        SummaryRuled,
        SubmissionResult,
        ResponseDenied,
        Cancel,
        Done,
    )
}


def render_frame(frame: Frame) -> bytes:
    """The frame as one line, newline included.

    Raises `HarnessProtocolError` for one over `MAX_FRAME_BYTES`, a number that is not finite or a lone surrogate.
    """
    document = {"type": frame.type, **asdict(frame)}
    try:
        line = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError as error:
        raise HarnessProtocolError(f"a {frame.type} frame cannot be written: {error}") from error
    if len(line) >= MAX_FRAME_BYTES:
        raise HarnessProtocolError(f"a {frame.type} frame of {len(line)} bytes is over {MAX_FRAME_BYTES}")
    return line + b"\n"


def parse_from_harness(line: bytes) -> FromHarness:
    """A line the harness wrote. Raises `HarnessProtocolError` naming what is wrong."""
    return _parse(line, _FROM_HARNESS)


def parse_to_harness(line: bytes) -> ToHarness:
    """A line the worker wrote. Raises `HarnessProtocolError` naming what is wrong."""
    return _parse(line, _TO_HARNESS)


def _parse(line: bytes, known: Mapping[str, type[_FrameT]]) -> _FrameT:
    if len(line) > MAX_FRAME_BYTES:
        raise HarnessProtocolError(f"a frame of {len(line)} bytes is over {MAX_FRAME_BYTES}")
    try:
        document = _load(line)
    except (ValueError, RecursionError) as error:
        raise HarnessProtocolError(f"a frame is not JSON: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise HarnessProtocolError("a frame is not a JSON object")
    members = cast("dict[str, object]", document)
    kind = members.pop("type", None)
    frame_type = known.get(kind) if isinstance(kind, str) else None
    if frame_type is None:
        raise HarnessProtocolError(f"there is no frame of type {str(kind)[:40]!r} in this direction")
    return _build(members, frame_type, str(kind))


def _load(line: bytes) -> object:
    document: object = json.loads(
        line.decode(),
        parse_constant=_refuse_constant,
        parse_float=_finite,
        parse_int=_safe_integer,
        object_pairs_hook=_unique_members,
    )
    if b"\\u" in line:
        # A lone surrogate parses as JSON and breaks whoever encodes it later, so it stops here.
        json.dumps(document, ensure_ascii=False).encode()
    return document


def _build(members: Mapping[str, object], target: type[_T], where: str) -> _T:
    hints = _hints(target)
    unknown = sorted(set(members) - set(hints))
    if unknown:
        raise HarnessProtocolError(f"{where}: unknown member {unknown[0][:40]!r}")
    values = {name: _convert(value, hints[name], f"{where}.{name}") for name, value in members.items()}
    try:
        return target(**values)
    except TypeError as error:
        raise HarnessProtocolError(f"{where}: a required member is missing") from error


def _convert(value: object, hint: object, where: str) -> object:
    origin: object = get_origin(hint)
    arguments: tuple[object, ...] = get_args(hint)
    if origin is list and isinstance(value, list):
        return [_convert(item, arguments[0], where) for item in cast("list[object]", value)]
    if origin is UnionType or origin is Union:
        hint = next((part for part in arguments if is_dataclass(part)), hint)
    if is_dataclass(hint) and isinstance(value, dict):
        return _build(cast("dict[str, object]", value), cast("type[object]", hint), where)
    if not _fits(value, hint, origin, arguments):
        raise HarnessProtocolError(f"{where}: not a value this member may have")
    return value


def _fits(value: object, hint: object, origin: object, arguments: tuple[object, ...]) -> bool:
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is UnionType or origin is Union:
        return any(_fits(value, part, get_origin(part), get_args(part)) for part in arguments)
    if origin is dict:
        return isinstance(value, dict)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is str:
        return isinstance(value, str)
    return isinstance(value, bool) if hint is bool else hint is NoneType and value is None


@cache
def _hints(target: type[object]) -> dict[str, object]:
    hints = get_type_hints(target)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is not finite")
    return number


def _safe_integer(text: str) -> int:
    number = int(text)
    if abs(number) > MAX_SAFE_INTEGER:
        raise ValueError(f"an integer is beyond {MAX_SAFE_INTEGER}")
    return number


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is there twice")
    return members
