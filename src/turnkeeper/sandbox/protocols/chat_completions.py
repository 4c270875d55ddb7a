"""OpenAI's Chat Completions: what a client may ask, and how a whole or streamed answer is read. Pure."""

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
    objects,
    only,
    openai_error,
    parse_object,
    parse_piece,
    refuse_members,
    render_json,
    text_bytes,
    wanted_output,
    wants_stream,
)
from turnkeeper.sandbox.providers import OUTPUT_CAP_MEMBERS, TUNABLE_PARAMETERS, ModelSpec, Provider
from turnkeeper.sandbox.sse import SseEvent, render_event

DEFAULT_MAX_OUTPUT_TOKENS: Final = 4096
"""The output cap of a call that names none."""

_TOOL_MEMBERS: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls"})
_HINTS: Final = frozenset({"prompt_cache_key", "verbosity"})
_PASSED: Final = frozenset({"messages", "response_format"}) | _TOOL_MEMBERS | _HINTS | TUNABLE_PARAMETERS
_DECIDED_HERE: Final = frozenset({"model", "n", "stream", "stream_options", *OUTPUT_CAP_MEMBERS})
_REFUSED: Final = {
    "web_search_options": "the provider would search the web",
    "functions": "tools have taken its place",
    "audio": "only text comes back",
}
_LOCAL_TOOLS: Final = frozenset({"function", "custom"})
_CONVERSATION: Final = ("messages",)
_BESIDE: Final = ("tools", "response_format")
_ANSWER_MEMBERS: Final = ("id", "object", "created", "usage")
_DONE: Final = b"[DONE]"


class ChatCompletions:
    """`ModelProtocol` of OpenAI's older interface, which most other servers speak."""

    name: ClassVar[str] = "chat_completions"
    path: ClassVar[str] = "/v1/chat/completions"
    endpoint: ClassVar[str] = "/chat/completions"

    def headers(self, provider: Provider, asked: Mapping[str, str]) -> dict[str, str]:
        """The key; nothing of the client's."""
        return bearer(provider)

    def parse_request(self, body: bytes, model: ModelSpec) -> ModelRequest:
        """What a client wants to ask its model. Raises `CallRefused` naming what is wrong."""
        document = parse_object(body)
        name = chosen_model(document, model)
        stream = wants_stream(document)
        refuse_members(document, _REFUSED)
        if not objects(document, "messages"):
            raise CallRefused("messages must be a list of at least one object")
        check_content(document["messages"], _complaint)
        members = only(document, _PASSED - frozenset(OUTPUT_CAP_MEMBERS))
        dropped = dropped_members(document, _PASSED | _DECIDED_HERE) + _keep_local_tools(document, members, model)
        members.update({key: value for key, value in model.params.items() if key not in OUTPUT_CAP_MEMBERS})
        return ModelRequest(
            members=members,
            max_output_tokens=wanted_output((document, model.params), OUTPUT_CAP_MEMBERS, DEFAULT_MAX_OUTPUT_TOKENS),
            input_tokens=estimate_tokens(members, conversation=_CONVERSATION, beside=_BESIDE),
            asked_model=name,
            stream=stream,
            wants_usage=mapping(document.get("stream_options")).get("include_usage") is True,
            dropped=dropped,
        )

    def render_request(self, request: ModelRequest, model: ModelSpec, max_output_tokens: int) -> bytes:
        """The body for the provider: one choice, one tool call at a time, the granted cap, always a count."""
        document = {
            **request.members,
            "model": model.model_id,
            "n": 1,
            "stream": request.stream,
            model.provider.output_cap_member: max_output_tokens,
        }
        if request.stream:
            document["stream_options"] = {"include_usage": True}
        if "tools" in request.members and "parallel_tool_calls" not in request.members:
            document["parallel_tool_calls"] = False
        return render_json(document)

    def reading(self, request: ModelRequest, model: ModelSpec) -> "ChatReading":
        """A reader of one answer."""
        return ChatReading(request, model)

    def status_for(self, refusal: Refusal) -> int:
        """The plain status: OpenAI's clients repeat 408, 409, 429 and 5xx, and nothing else."""
        return refusal.status

    def render_error(self, refusal: Refusal) -> bytes:
        """OpenAI's error object."""
        return render_json({"error": openai_error(refusal)})

    def render_stream_error(self, refusal: Refusal) -> bytes:
        """A chunk that is an error: the clients raise it."""
        return render_event(None, self.render_error(refusal))


class ChatReading(Reading):
    """An answer of Chat Completions: only the first choice, only known members, the model by the client's name."""

    def whole(self, answer: Mapping[str, object]) -> bytes:
        """See `Reading`.

        A llama.cpp server names the weights' path as its model, and half a surrogate pair is what some providers
        make of a cut emoji.
        """
        self.usage = chat_usage(answer.get("usage"))
        self.output_bytes = text_bytes(answer.get("choices"))
        choice = _first_choice(answer, "message")
        self.note_reason(choice.get("finish_reason"))
        document = {name: answer[name] for name in _ANSWER_MEMBERS if name in answer}
        document |= {"model": self.request.asked_model, "choices": [dict(choice)]}
        body = self.kept_in(render_json(document))
        self.complete = True
        return body

    def piece(self, event: SseEvent) -> bytes | None:
        """See `Reading`."""
        if event.data == _DONE:
            self.complete = True
            return None
        document = parse_piece(event.data)
        if document.get("error"):
            raise AnswerFailed(failure_of(document["error"]))
        counted_now = chat_usage(document.get("usage"))
        self.usage = counted_now or self.usage
        choices = document.get("choices")
        if not isinstance(choices, list) or not choices:
            # The chunk that was only asked for by us.
            return self._shown(document, []) if counted_now is not None and self.request.wants_usage else None
        choice = _first_choice(document, "delta")
        self.output_bytes += text_bytes(choice["delta"])
        self.note_reason(choice.get("finish_reason"))
        return self._shown(document, [dict(choice)])

    def ending(self) -> bytes:
        """The mark that OpenAI's clients wait for."""
        return render_event(None, _DONE)

    def _shown(self, chunk: Mapping[str, object], choices: list[dict[str, object]]) -> bytes:
        document = {name: chunk[name] for name in _ANSWER_MEMBERS if name in chunk}
        return self.shown(None, document | {"model": self.request.asked_model, "choices": choices})


def chat_usage(value: object) -> CallUsage | None:
    """A provider's count in the terms of contract 4; `None` where it is missing or cannot be one.

    OpenAI's `completion_tokens` hold the reasoning. Some who imitate it leave it out there and in `total_tokens`
    not: what the total has beyond prompt and completion was generated too.
    """
    usage = mapping(value)
    prompt, completion = token_count(usage.get("prompt_tokens")), token_count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    total = token_count(usage.get("total_tokens")) or 0
    details = mapping(usage.get("prompt_tokens_details"))
    return counted(
        prompt,
        max(completion, total - prompt),
        cached=token_count(details.get("cached_tokens")) or 0,
        cache_write=token_count(details.get("cache_write_tokens")) or 0,
        reasoning=token_count(mapping(usage.get("completion_tokens_details")).get("reasoning_tokens")) or 0,
    )


def _first_choice(answer: Mapping[str, object], holds: str) -> Mapping[str, object]:
    choices = answer.get("choices")
    choice = mapping(cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None)
    if not isinstance(choice.get(holds), dict):
        raise AnswerUnusable(f"the provider's answer has no choice with a {holds}")
    return choice


def _keep_local_tools(document: Mapping[str, object], members: dict[str, object], model: ModelSpec) -> tuple[str, ...]:
    if _TOOL_MEMBERS.isdisjoint(members):
        return ()
    if not model.provider.tool_calls:
        raise CallRefused(f"the provider {model.provider.name!r} calls no tools", code="tools_not_supported")
    return keep_tools(document, members, _runs_in_the_box, with_them=_TOOL_MEMBERS)


def _runs_in_the_box(tool: Mapping[str, object]) -> bool:
    return tool.get("type", "function") in _LOCAL_TOOLS


def _complaint(block: Mapping[str, object]) -> str | None:
    kind = block.get("type")
    if kind == "image_url" and not is_inline(mapping(block.get("image_url")).get("url")):
        return "an image must be in the request itself: the provider would fetch it"
    if kind == "file" and mapping(block.get("file")).get("file_id"):
        return "a file must be in the request itself: file_id names one of the provider's account"
    return None


CHAT_COMPLETIONS: Final = ChatCompletions()
