"""Anthropic's Messages: what a client may ask, and how a whole or streamed answer is read. Pure."""

import re
from collections.abc import Mapping
from typing import ClassVar, Final

from turnkeeper.sandbox.metering import CallUsage, counted, token_count
from turnkeeper.sandbox.protocols.failures import failure_of
from turnkeeper.sandbox.protocols.wire import (
    AnswerFailed,
    AnswerUnusable,
    CallRefused,
    ModelRequest,
    Reading,
    Refusal,
    check_content,
    chosen_model,
    dropped_members,
    estimate_tokens,
    keep_tools,
    mapping,
    objects,
    only,
    parse_object,
    parse_piece,
    refuse_members,
    render_fast,
    render_json,
    text_bytes,
    wanted_output,
    wants_stream,
)
from turnkeeper.sandbox.providers import OUTPUT_CAP_MEMBERS, ModelSpec, Provider
from turnkeeper.sandbox.sse import SseEvent, render_event

API_VERSION: Final = "2023-06-01"
DEFAULT_MAX_OUTPUT_TOKENS: Final = 4096
"""The output cap of a call that names none; Anthropic itself wants one named."""
SMALLEST_THINKING_TOKENS: Final = 1024
"""Anthropic's floor for `thinking.budget_tokens`."""

_TOOL_MEMBERS: Final = frozenset({"tools", "tool_choice"})
_PASSED: Final = _TOOL_MEMBERS | {
    "cache_control",
    "context_management",
    "messages",
    "output_config",
    "output_format",
    "stop_sequences",
    "system",
    "temperature",
    "thinking",
    "top_k",
    "top_p",
}
_DECIDED_HERE: Final = frozenset({"model", "stream", "max_tokens"})
_REFUSED: Final = {
    "container": "it names an object of the provider's account",
    "mcp_servers": "the provider would call them, past the Guardian",
}
_LOCAL_TOOL_PREFIXES: Final = ("bash_", "text_editor_", "computer_", "memory_")
_CONVERSATION: Final = ("messages", "system")
_BESIDE: Final = ("tools", "output_format", "output_config")
_CAPS: Final = ("max_tokens", *OUTPUT_CAP_MEMBERS)
_AGENTS_OWN: Final = frozenset({"temperature", "top_p"})
_INLINE_SOURCES: Final = frozenset({"base64", "text", "content"})
# What a beta switches on is bounded by the listed parameters; these change the price or reach the account.
_BETA: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\Z")
_REFUSED_BETAS: Final = ("context-1m", "files-api", "mcp-client", "code-execution", "oauth", "web-", "skills", "fast-")
_MAX_BETAS: Final = 32
_MESSAGE_MEMBERS: Final = frozenset({"id", "type", "role", "content", "stop_reason", "stop_sequence", "usage"})
_PASSED_EVENTS: Final = frozenset(
    {"ping", "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"}
)
_COUNTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class Anthropic:
    """`ModelProtocol` of Anthropic's Messages, which Claude Code speaks."""

    name: ClassVar[str] = "messages"
    path: ClassVar[str] = "/v1/messages"
    endpoint: ClassVar[str] = "/messages"

    def headers(self, provider: Provider, asked: Mapping[str, str]) -> dict[str, str]:
        """The key, the version this module knows, and those betas of the client's that reach no further."""
        headers = {"anthropic-version": API_VERSION}
        if provider.api_key is not None:
            headers["x-api-key"] = provider.api_key.get_secret_value()
        betas = [name.strip() for name in asked.get("anthropic-beta", "").split(",")][:_MAX_BETAS]
        kept = [name for name in betas if _BETA.match(name) and not name.startswith(_REFUSED_BETAS)]
        return headers | ({"anthropic-beta": ",".join(kept)} if kept else {})

    def parse_request(self, body: bytes, model: ModelSpec) -> ModelRequest:
        """What a client wants to ask its model. Raises `CallRefused` naming what is wrong."""
        document = parse_object(body)
        name = chosen_model(document, model)
        stream = wants_stream(document)
        refuse_members(document, _REFUSED)
        if not objects(document, "messages"):
            raise CallRefused("messages must be a list of at least one object")
        check_content([document["messages"], document.get("system")], _complaint)
        members = only(document, _PASSED)
        dropped = dropped_members(document, _PASSED | _DECIDED_HERE)
        if not _TOOL_MEMBERS.isdisjoint(members):
            dropped += keep_tools(document, members, _runs_in_the_box, with_them=_TOOL_MEMBERS)
        members |= _parameters(document, model.params)
        return ModelRequest(
            members=members,
            max_output_tokens=wanted_output((document, model.params), _CAPS, DEFAULT_MAX_OUTPUT_TOKENS),
            input_tokens=estimate_tokens(members, conversation=_CONVERSATION, beside=_BESIDE),
            asked_model=name,
            stream=stream,
            dropped=dropped,
        )

    def render_request(self, request: ModelRequest, model: ModelSpec, max_output_tokens: int) -> bytes:
        """The body for the provider: the granted cap, and thinking that fits below it."""
        decided = {"model": model.model_id, "stream": request.stream, "max_tokens": max_output_tokens}
        thinking = _fitting(request.members.get("thinking"), max_output_tokens)
        return render_json({**request.members, **({} if thinking is None else {"thinking": thinking}), **decided})

    def reading(self, request: ModelRequest, model: ModelSpec) -> "MessageReading":
        """A reader of one answer."""
        return MessageReading(request, model)

    def status_for(self, refusal: Refusal) -> int:
        """The plain status: Anthropic's clients repeat 408, 409, 429 and 5xx, and nothing else."""
        return refusal.status

    def render_error(self, refusal: Refusal) -> bytes:
        """Anthropic's error object; its clients show the message, so the code stands in it."""
        # Claude Code shortens its context when it reads these words.
        words = "prompt is too long: " if refusal.code == "context_length_exceeded" else ""
        fallback = "api_error" if refusal.status >= 500 else "invalid_request_error"
        error: dict[str, object] = {
            "type": _ERROR_TYPES.get(refusal.status, fallback),
            "message": f"{words}{refusal.message} ({refusal.code})",
            "code": refusal.code,
            "retryable": refusal.retryable,
        }
        return render_json({"type": "error", "error": error})

    def render_stream_error(self, refusal: Refusal) -> bytes:
        """The event `error`."""
        return render_event("error", self.render_error(refusal))


class MessageReading(Reading):
    """An answer of Messages: known members only, the model by the client's name."""

    def whole(self, answer: Mapping[str, object]) -> bytes:
        """See `Reading`."""
        self.usage = message_usage(answer.get("usage"))
        content = answer.get("content")
        self.output_bytes = text_bytes(content)
        if answer.get("type") == "error":
            raise AnswerFailed(failure_of(answer.get("error")))
        if not isinstance(content, list):
            raise AnswerUnusable("the provider's answer has no content")
        self.note_reason(answer.get("stop_reason"))
        body = self.kept_in(render_json(self._shown_message(answer)))
        self.complete = True
        return body

    def piece(self, event: SseEvent) -> bytes | None:
        """See `Reading`."""
        document = parse_piece(event.data)
        kind = document.get("type")
        if kind == "error":
            raise AnswerFailed(failure_of(document.get("error")))
        if kind == "message_stop":
            self.complete = True
            return None
        if kind not in _PASSED_EVENTS:
            return None
        if kind == "message_start":
            message = mapping(document.get("message"))
            self.counted_so_far = message_usage(message.get("usage"))
            document["message"] = self._shown_message(message)
        elif kind == "message_delta":
            self._count(document.get("usage"))
            self.note_reason(mapping(document.get("delta")).get("stop_reason"))
        else:
            self.output_bytes += text_bytes(document.get("delta")) + text_bytes(document.get("content_block"))
        return self.shown(str(kind), document)

    def ending(self) -> bytes:
        """The event that Anthropic's clients wait for."""
        return render_event("message_stop", render_fast({"type": "message_stop"}))

    def _count(self, value: object) -> None:
        # The counts of an event are cumulative; one that is missing is as it was at the start.
        if token_count(mapping(value).get("output_tokens")) is None:
            return
        before = {} if self.counted_so_far is None else _as_reported(self.counted_so_far)
        self.usage = message_usage({**before, **_readable(value)}) or self.usage

    def _shown_message(self, message: Mapping[str, object]) -> dict[str, object]:
        return {**only(message, _MESSAGE_MEMBERS), "model": self.request.asked_model}


def message_usage(value: object) -> CallUsage | None:
    """A provider's count in the terms of contract 4; `None` where it is missing or cannot be one.

    Anthropic's `input_tokens` leave out what was read from a cache or written to one; ours is the sum of the three.
    """
    usage = mapping(value)
    fresh, generated = token_count(usage.get("input_tokens")), token_count(usage.get("output_tokens"))
    if fresh is None or generated is None:
        return None
    read = token_count(usage.get("cache_read_input_tokens")) or 0
    written = token_count(usage.get("cache_creation_input_tokens")) or 0
    thinking = token_count(mapping(usage.get("output_tokens_details")).get("thinking_tokens")) or 0
    return counted(fresh + read + written, generated, cached=read, cache_write=written, reasoning=thinking)


def count_tokens(body: bytes, model: ModelSpec) -> int:
    """The answer of `count_tokens`, estimated here: the count costs the account nothing. Raises `CallRefused`."""
    document = parse_object(body)
    chosen_model(document, model)
    objects(document, "messages")
    return estimate_tokens(document, conversation=_CONVERSATION, beside=_BESIDE)


def _as_reported(usage: CallUsage) -> dict[str, object]:
    fresh = usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens
    figures = (fresh, usage.cached_input_tokens, usage.cache_write_tokens, usage.output_tokens)
    return dict(zip(_COUNTS, figures, strict=True))


def _readable(value: object) -> dict[str, object]:
    usage = mapping(value)
    counts: dict[str, object] = {name: usage[name] for name in _COUNTS if token_count(usage.get(name)) is not None}
    details = usage.get("output_tokens_details")
    return counts | ({} if details is None else {"output_tokens_details": details})


def _parameters(document: Mapping[str, object], params: Mapping[str, object]) -> dict[str, object]:
    chosen: dict[str, object] = {name: params[name] for name in _AGENTS_OWN if name in params}
    stop = params.get("stop")
    if stop is not None:
        chosen["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if "reasoning_effort" in params:
        chosen["output_config"] = {**mapping(document.get("output_config")), "effort": params["reasoning_effort"]}
    return chosen


def _fitting(value: object, max_output_tokens: int) -> dict[str, object] | None:
    thinking = mapping(value)
    budget = token_count(thinking.get("budget_tokens"))
    if budget is None or budget < max_output_tokens:
        return None
    if max_output_tokens <= SMALLEST_THINKING_TOKENS:
        return {"type": "disabled"}
    return {**thinking, "budget_tokens": max_output_tokens - 1}


def _runs_in_the_box(tool: Mapping[str, object]) -> bool:
    kind = tool.get("type", "custom")
    return kind == "custom" or (isinstance(kind, str) and kind.startswith(_LOCAL_TOOL_PREFIXES))


def _complaint(block: Mapping[str, object]) -> str | None:
    kind = block.get("type")
    if kind in {"image", "document"} and mapping(block.get("source")).get("type") not in _INLINE_SOURCES:
        return "an image or a document must be in the request itself, not named or fetched"
    if kind == "container_upload":
        return "a container belongs to the provider's account"
    return None


ANTHROPIC: Final = Anthropic()
