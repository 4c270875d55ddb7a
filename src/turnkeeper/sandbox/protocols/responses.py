"""OpenAI's Responses: what a client may ask, and how a whole or streamed answer is read. Pure.

INVARIANT: nothing is kept at the provider and nothing kept there is used: `store` is false, and whatever names an
object of the account (an earlier response, a conversation, a prompt, a file) stops the call.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, cast

from turnkeeper.sandbox.metering import CallUsage, counted, token_count
from turnkeeper.sandbox.protocols.failures import failure_of
from turnkeeper.sandbox.protocols.wire import (
    AnswerFailed,
    AnswerUnusable,
    CallRefused,
    ModelRequest,
    Reading,
    Refusal,
    bearer,
    check_content,
    chosen_model,
    dropped_members,
    estimate_tokens,
    is_inline,
    keep_tools,
    mapping,
    only,
    openai_error,
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

DEFAULT_MAX_OUTPUT_TOKENS: Final = 32_768
"""The output cap of a call that names none, as Codex's do: room for reasoning beside the answer."""

_TOOL_MEMBERS: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls"})
_PASSED: Final = _TOOL_MEMBERS | {
    "input",
    "instructions",
    "prompt_cache_key",
    "reasoning",
    "temperature",
    "text",
    "top_p",
    "truncation",
}
_DECIDED_HERE: Final = frozenset({"model", "stream", "store", "include", "max_output_tokens"})
_REFUSED: Final = {
    "background": "a call ends with its turn",
    "conversation": "it names an object of the provider's account",
    "previous_response_id": "it names an object of the provider's account",
    "prompt": "it names an object of the provider's account",
}
_INCLUDED: Final = frozenset({"reasoning.encrypted_content", "message.output_text.logprobs"})
_LOCAL_TOOLS: Final = frozenset({"function", "custom", "namespace", "local_shell", "apply_patch"})
_CONVERSATION: Final = ("input",)
_BESIDE: Final = ("instructions", "tools", "text")
_CAPS: Final = ("max_output_tokens", *OUTPUT_CAP_MEMBERS)
_AGENTS_OWN: Final = frozenset({"temperature", "top_p"})
_ANSWER_MEMBERS: Final = frozenset(
    {
        "id",
        "object",
        "created_at",
        "completed_at",
        "status",
        "incomplete_details",
        "instructions",
        "max_output_tokens",
        "output",
        "parallel_tool_calls",
        "reasoning",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_p",
        "truncation",
        "usage",
    }
)
_LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete"})
_FAILED_EVENTS: Final = frozenset({"response.failed", "error"})


class Responses:
    """`ModelProtocol` of OpenAI's newer interface, which Codex speaks."""

    name: ClassVar[str] = "responses"
    path: ClassVar[str] = "/v1/responses"
    endpoint: ClassVar[str] = "/responses"

    def headers(self, provider: Provider, asked: Mapping[str, str]) -> dict[str, str]:
        """The key; nothing of the client's."""
        return bearer(provider)

    def parse_request(self, body: bytes, model: ModelSpec) -> ModelRequest:
        """What a client wants to ask its model. Raises `CallRefused` naming what is wrong."""
        document = parse_object(body)
        name = chosen_model(document, model)
        stream = wants_stream(document)
        refuse_members(document, _REFUSED)
        if not isinstance(document.get("input"), str | list) or not document["input"]:
            raise CallRefused("input must be a text or a list of at least one item")
        check_content(document["input"], _complaint)
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
        """The body for the provider: nothing stored, the granted cap."""
        decided = {
            "model": model.model_id,
            "stream": request.stream,
            "store": False,
            "max_output_tokens": max_output_tokens,
        }
        return render_json({**request.members, **decided})

    def reading(self, request: ModelRequest, model: ModelSpec) -> "ResponseReading":
        """A reader of one answer."""
        return ResponseReading(request, model)

    def status_for(self, refusal: Refusal) -> int:
        """400 for whatever is final: Codex repeats every other status, 402 and 403 too."""
        return refusal.status if refusal.retryable else 400

    def render_error(self, refusal: Refusal) -> bytes:
        """OpenAI's error object."""
        return render_json({"error": openai_error(refusal)})

    def render_stream_error(self, refusal: Refusal) -> bytes:
        """`response.failed`, which Codex reads, with the member `error`, which OpenAI's own clients raise."""
        # The one code by which Codex ends for good is that of a spent quota.
        known = refusal.retryable or refusal.code == "context_length_exceeded"
        error = {"code": refusal.code if known else "insufficient_quota", "message": refusal.message}
        response: dict[str, object] = {
            "object": "response",
            "status": "failed",
            "error": error,
            "output": [],
            "usage": None,
        }
        document: dict[str, object] = {"type": "response.failed", "response": response, "error": openai_error(refusal)}
        return render_event("response.failed", render_fast(document))


class ResponseReading(Reading):
    """An answer of Responses: known members only, the model by the client's name."""

    def whole(self, answer: Mapping[str, object]) -> bytes:
        """See `Reading`."""
        self.usage = response_usage(answer.get("usage"))
        output = answer.get("output")
        self.output_bytes = text_bytes(output)
        if answer.get("error"):
            raise AnswerFailed(failure_of(answer["error"]))
        if not isinstance(output, list):
            raise AnswerUnusable("the provider's answer has no output")
        self._note_end(answer)
        body = self.kept_in(render_json(self._shown_response(answer)))
        self.complete = True
        return body

    def piece(self, event: SseEvent) -> bytes | None:
        """See `Reading`."""
        document = parse_piece(event.data)
        kind = document.get("type")
        if kind in _FAILED_EVENTS or (kind is None and document.get("error")):
            response = mapping(document.get("response"))
            self.usage = response_usage(response.get("usage")) or self.usage
            raise AnswerFailed(failure_of(response.get("error") or document.get("error") or document))
        if not isinstance(kind, str) or not kind.startswith("response."):
            # Others speak of the account: its rate limits, its keep-alives.
            return None
        if kind.endswith(".delta"):
            self.output_bytes += text_bytes(document.get("delta"))
        if "response" in document:
            response = mapping(document["response"])
            document["response"] = self._shown_response(response)
            if kind in _LAST_EVENTS:
                self.usage = response_usage(response.get("usage"))
                self.output_bytes = max(self.output_bytes, text_bytes(response.get("output")))
                self._note_end(response)
                self.complete = True
        return self.shown(kind, document)

    def _note_end(self, response: Mapping[str, object]) -> None:
        self.note_reason(mapping(response.get("incomplete_details")).get("reason") or response.get("status"))

    def _shown_response(self, response: Mapping[str, object]) -> dict[str, object]:
        return {**only(response, _ANSWER_MEMBERS), "error": None, "model": self.request.asked_model}


def response_usage(value: object) -> CallUsage | None:
    """A provider's count in the terms of contract 4; `None` where it is missing or cannot be one."""
    usage = mapping(value)
    sent, generated = token_count(usage.get("input_tokens")), token_count(usage.get("output_tokens"))
    if sent is None or generated is None:
        return None
    details = mapping(usage.get("input_tokens_details"))
    return counted(
        sent,
        generated,
        cached=token_count(details.get("cached_tokens")) or 0,
        cache_write=token_count(details.get("cache_write_tokens")) or 0,
        reasoning=token_count(mapping(usage.get("output_tokens_details")).get("reasoning_tokens")) or 0,
    )


def _parameters(document: Mapping[str, object], params: Mapping[str, object]) -> dict[str, object]:
    chosen: dict[str, object] = {name: params[name] for name in _AGENTS_OWN if name in params}
    if "reasoning_effort" in params:
        chosen["reasoning"] = {**mapping(document.get("reasoning")), "effort": params["reasoning_effort"]}
    asked = document.get("include")
    included = [name for name in cast("list[object]", asked) if name in _INCLUDED] if isinstance(asked, list) else []
    return chosen | ({"include": included} if included else {})


def _runs_in_the_box(tool: Mapping[str, object]) -> bool:
    kind = tool.get("type")
    if kind == "shell":
        return mapping(tool.get("environment")).get("type") == "local"
    return kind in _LOCAL_TOOLS or (kind == "tool_search" and tool.get("execution") == "client")


def _complaint(block: Mapping[str, object]) -> str | None:
    kind = block.get("type")
    if kind == "item_reference":
        return "an item must be in the request itself: item_reference names one of the provider's account"
    if kind in {"input_image", "input_file"} and (block.get("file_id") or block.get("file_url")):
        return "an image or a file must be in the request itself, not named or fetched"
    if kind == "input_image" and not is_inline(block.get("image_url")):
        return "an image must be in the request itself: the provider would fetch it"
    return None


RESPONSES: Final = Responses()
