"""What the protocols of models have in common: strict requests, what may be passed on, and how an answer is read.

Default is that nothing gets through: a parameter that a protocol does not list is left out, and one that would reach
further into the provider's account, or out of the box, stops the call.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, cast

import orjson

from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.metering import CallUsage, ModelFailure
from turnkeeper.sandbox.providers import ModelSpec, Provider, is_positive_integer, size_bytes_of, tokens_in_bytes
from turnkeeper.sandbox.sse import SseEvent, render_event

MAX_JSON_DEPTH: Final = 64
LARGEST_MAX_OUTPUT_TOKENS: Final = 131_072
IMAGE_TOKENS: Final = 5_000
"""What an image counts in the estimate of a request's input: more than any provider charges for one."""
SHORTEST_SOUGHT_KEY: Final = 16
"""Shorter keys are not looked for in answers: they would be found by chance, and are no provider's real ones."""

_MAX_NAME_CHARACTERS: Final = 64
# Their members are what a model wrote for a tool; nothing in them speaks to the provider.
_MODELS_OWN_BLOCKS: Final = frozenset({"tool_use", "function_call", "custom_tool_call"})


class CallRefused(TurnkeeperError):
    """The gateway does not pass this request on. The code says which rule it broke."""

    code = "invalid_request"


class AnswerUnusable(TurnkeeperError):
    """The provider's answer is not one of this protocol that may go into a box."""

    code = "provider_bad_answer"


class AnswerFailed(TurnkeeperError):
    """The provider put an error in place of the rest of its answer."""

    code = "provider_failed"

    def __init__(self, failure: ModelFailure) -> None:
        super().__init__(failure.message, code=failure.code)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A checked request: the members to pass on, the wanted output cap, the estimate of its input.

    `asked_model` is the client's name for the model, `dropped` are the parameters that were left out, and
    `wants_usage` says whether a streaming client of Chat Completions asked for the count itself.
    """

    members: Mapping[str, object]
    max_output_tokens: int
    input_tokens: int
    asked_model: str
    stream: bool = False
    wants_usage: bool = False
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a client is told instead of an answer. `retryable`: whether asking again may help."""

    status: int
    code: str
    message: str
    retryable: bool = False
    retry_after_s: int | None = None


@dataclass(slots=True)
class Reading:
    """An answer while it is read: what it says of itself so far, and what of it goes into the box.

    `usage` is the provider's count of the whole call, `counted_so_far` one that it gave before the end. `started` once
    the model has generated anything; `complete` once the provider said that this was all.
    """

    request: ModelRequest
    model: ModelSpec
    usage: CallUsage | None = None
    counted_so_far: CallUsage | None = None
    output_bytes: int = 0
    finish_reason: str | None = None
    complete: bool = False

    @property
    def started(self) -> bool:
        """Whether anything that the model generated has come."""
        return self.output_bytes > 0

    def whole(self, answer: Mapping[str, object]) -> bytes:
        """The body for the box. Raises `AnswerUnusable`, with the usage noted where there is one."""
        raise NotImplementedError

    def piece(self, event: SseEvent) -> bytes | None:
        """What of an event goes into the box. Raises `AnswerUnusable`, `AnswerFailed`."""
        raise NotImplementedError

    def ending(self) -> bytes:
        """What a client still needs after the last event of a complete stream."""
        return b""

    def kept_in(self, body: bytes) -> bytes:
        """The body itself. Raises `AnswerUnusable` when the provider's key is in it."""
        secret = self.model.provider.api_key
        key = "" if secret is None else secret.get_secret_value()
        if len(key) >= SHORTEST_SOUGHT_KEY and key.encode() in body:
            raise AnswerUnusable("the provider's answer contains the provider's key")
        return body

    def shown(self, event: str | None, document: Mapping[str, object]) -> bytes:
        """One event for the box. Raises `AnswerUnusable` when the provider's key is in it."""
        return self.kept_in(render_event(event, render_fast(document)))

    def note_reason(self, reason: object) -> None:
        """Why the model stopped, as the provider put it, if that is readable."""
        if isinstance(reason, str) and reason:
            self.finish_reason = reason[:_MAX_NAME_CHARACTERS]


class ModelProtocol(Protocol):
    """One protocol. `path` is its route in the box, `endpoint` the end of the provider's URL."""

    name: ClassVar[str]
    path: ClassVar[str]
    endpoint: ClassVar[str]

    def headers(self, provider: Provider, asked: Mapping[str, str]) -> dict[str, str]:
        """The key and whatever else the protocol wants in headers; of the client's own only what is listed."""
        ...

    def parse_request(self, body: bytes, model: ModelSpec) -> ModelRequest:
        """What a client wants to ask its model. Raises `CallRefused` naming what is wrong."""
        ...

    def render_request(self, request: ModelRequest, model: ModelSpec, max_output_tokens: int) -> bytes:
        """The body for the provider, with what the gateway alone decides written in."""
        ...

    def reading(self, request: ModelRequest, model: ModelSpec) -> Reading:
        """A reader of one answer."""
        ...

    def status_for(self, refusal: Refusal) -> int:
        """The status at which this protocol's clients do what is meant: stop, or ask again."""
        ...

    def render_error(self, refusal: Refusal) -> bytes:
        """A body in the protocol's own form."""
        ...

    def render_stream_error(self, refusal: Refusal) -> bytes:
        """The last event of a stream that cannot go on."""
        ...


def parse_object(body: bytes) -> dict[str, object]:
    """A client's body. Raises `CallRefused` for anything but one strict JSON object."""
    try:
        document: object = json.loads(body, object_pairs_hook=_unique_members, parse_constant=_refuse_constant)
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise CallRefused("the body has half a surrogate pair", code="invalid_json") from error
    except (ValueError, RecursionError) as error:
        raise CallRefused(f"the body is not JSON: {str(error)[:120]}", code="invalid_json") from error
    if not isinstance(document, dict):
        raise CallRefused("the body is not a JSON object", code="invalid_json")
    if _is_deeper(cast("object", document), MAX_JSON_DEPTH):
        raise CallRefused(f"the body nests deeper than {MAX_JSON_DEPTH}", code="invalid_json")
    return cast("dict[str, object]", document)


def parse_answer(body: bytes) -> dict[str, object]:
    """A provider's whole answer as an object. Raises `AnswerUnusable`."""
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AnswerUnusable("the provider's answer is not JSON") from error
    if not isinstance(document, dict):
        raise AnswerUnusable("the provider's answer is not a JSON object")
    return cast("dict[str, object]", document)


def parse_piece(data: bytes) -> dict[str, object]:
    """One event's data. Raises `AnswerUnusable`.

    Half a surrogate pair is what some providers make of an emoji that two events share: slower, but no error.
    """
    try:
        document: object = orjson.loads(data)
    except orjson.JSONDecodeError:
        return parse_answer(data)
    if not isinstance(document, dict):
        raise AnswerUnusable("an event of the provider's answer is not a JSON object")
    return cast("dict[str, object]", document)


def render_json(document: Mapping[str, object]) -> bytes:
    """Compact JSON of integers of any size; half a surrogate pair becomes a question mark."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def render_fast(document: Mapping[str, object]) -> bytes:
    """The same for pieces of a stream."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return render_json(document)


def chosen_model(document: Mapping[str, object], model: ModelSpec) -> str:
    """The name a client called the turn's model by. Raises `CallRefused` for any other model."""
    name = document.get("model")
    if not isinstance(name, str) or not model.answers_to(name):
        raise CallRefused("the model of this turn is another one", code="model_not_allowed")
    return name


def wants_stream(document: Mapping[str, object]) -> bool:
    """Whether the answer is to be streamed. Raises `CallRefused`."""
    value = document.get("stream")
    if value is not None and not isinstance(value, bool):
        raise CallRefused("stream must be true or false")
    return value is True


def refuse_members(document: Mapping[str, object], reasons: Mapping[str, str]) -> None:
    """Raises `CallRefused` for a member in use that would reach the provider's account or out of the box."""
    for name, reason in reasons.items():
        if document.get(name):
            raise CallRefused(f"the parameter {name!r} is not passed on: {reason}", code="parameter_not_allowed")


def wanted_output(sources: tuple[Mapping[str, object], ...], names: tuple[str, ...], default: int) -> int:
    """The smallest output cap that any of the sources names, or the default. Raises `CallRefused`."""
    wanted: list[int] = []
    for source in sources:
        for name in names:
            value = source.get(name)
            if value is None:
                continue
            if not is_positive_integer(value):
                raise CallRefused(f"{name} must be a positive integer")
            wanted.append(cast("int", value))
    return min(*wanted, LARGEST_MAX_OUTPUT_TOKENS) if wanted else default


def objects(document: Mapping[str, object], name: str) -> list[dict[str, object]]:
    """A member that is a list of objects, or absent. Raises `CallRefused`."""
    value = document.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in cast("list[object]", value)):
        raise CallRefused(f"{name} must be a list of objects")
    return cast("list[dict[str, object]]", value)


def keep_tools(
    document: Mapping[str, object],
    members: dict[str, object],
    is_kept: Callable[[Mapping[str, object]], bool],
    *,
    with_them: frozenset[str],
) -> tuple[str, ...]:
    """Takes out the tools that would run at the provider, where no policy sees them; gives their names for the record.

    Without any tool left the members that speak of tools go too. Raises `CallRefused`.
    """
    tools = objects(document, "tools")
    kept = [tool for tool in tools if is_kept(tool)]
    members["tools"] = kept
    for name in with_them if not kept else ():
        members.pop(name, None)
    return tuple(f"tools[{str(tool.get('type'))[:_MAX_NAME_CHARACTERS]}]" for tool in tools if not is_kept(tool))


def check_content(value: object, complaint: Callable[[Mapping[str, object]], str | None]) -> None:
    """Raises `CallRefused` for the first block of the conversation that there is a complaint about."""
    for block in _blocks(value):
        reason = complaint(block)
        if reason is not None:
            raise CallRefused(reason, code="remote_content_refused")


def is_inline(url: object) -> bool:
    """Whether this is data itself and not something for the provider to fetch."""
    return isinstance(url, str) and url.startswith("data:")


def estimate_tokens(members: Mapping[str, object], *, conversation: tuple[str, ...], beside: tuple[str, ...]) -> int:
    """An estimate of a request's prompt tokens: its UTF-8 bytes as JSON, images of the conversation by the piece."""
    counted = {name: members[name] for name in (*conversation, *beside) if name in members}
    images = [len(text) for name in conversation for text in _images(members.get(name))]
    return tokens_in_bytes(size_bytes_of(counted) - sum(images)) + IMAGE_TOKENS * len(images)


def text_bytes(value: object) -> int:
    """The bytes of all text in a piece of generated output."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode(errors="replace"))
    if isinstance(value, dict):
        return sum(text_bytes(child) for child in cast("dict[str, object]", value).values())
    if isinstance(value, list):
        return sum(text_bytes(child) for child in cast("list[object]", value))
    return 0


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is an object, else an empty one."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def only(document: Mapping[str, object], names: frozenset[str]) -> dict[str, object]:
    """The members with these names."""
    return {name: value for name, value in document.items() if name in names}


def dropped_members(document: Mapping[str, object], known: frozenset[str]) -> tuple[str, ...]:
    """Names of parameters that are not passed on, cut to a length that a header can carry."""
    unknown = sorted(name for name, value in document.items() if name not in known and value is not None)
    return tuple(name[:_MAX_NAME_CHARACTERS] for name in unknown)


def bearer(provider: Provider) -> dict[str, str]:
    """The key as OpenAI and those who imitate it take it."""
    return {} if provider.api_key is None else {"authorization": f"Bearer {provider.api_key.get_secret_value()}"}


def openai_error(refusal: Refusal) -> dict[str, object]:
    """An error as OpenAI's clients read it."""
    kind = "invalid_request_error" if refusal.status < 500 and not refusal.retryable else "server_error"
    error: dict[str, object] = {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}
    return error | {"retryable": refusal.retryable}


def _blocks(value: object) -> Iterator[Mapping[str, object]]:
    if isinstance(value, list):
        for child in cast("list[object]", value):
            yield from _blocks(child)
    elif isinstance(value, dict):
        block = cast("dict[str, object]", value)
        yield block
        if block.get("type") not in _MODELS_OWN_BLOCKS:
            for child in block.values():
                yield from _blocks(child)


def _images(value: object) -> Iterator[str]:
    for block in _blocks(value):
        # Only where a provider looks for an image: the same words as text would be read, and paid for, as text.
        for name in ("url", "image_url"):
            child = block.get(name)
            if isinstance(child, str) and child.startswith("data:image/"):
                yield child
        if str(block.get("media_type")).startswith("image/") and isinstance(block.get("data"), str):
            yield cast("str", block["data"])


def _is_deeper(value: object, limit: int) -> bool:
    level: list[object] = [value]
    for _ in range(limit + 1):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(cast("dict[str, object]", value).values())
    return cast("list[object]", value) if isinstance(value, list) else []


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is there twice")
    return members


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
