"""A scripted answer in the words of each protocol: as one body, or as the events of a stream."""

import json
from collections.abc import Iterator, Mapping
from typing import Final, Protocol, TypeAlias, cast

from turnkeeper.sandbox.sse import render_event
from turnkeeper.testing.scripted_answers import ScriptedAnswer, ScriptedCall, ScriptedUsage, SeenRequest, WireName

_BYTES_PER_TOKEN: Final = 4

_Object: TypeAlias = dict[str, object]


class ScriptedWire(Protocol):
    """One protocol."""

    def whole(self, answer: ScriptedAnswer, seen: SeenRequest) -> _Object:
        """The body of an answer that is not streamed."""
        ...

    def events(self, answer: ScriptedAnswer, seen: SeenRequest) -> list[bytes]:
        """A stream, event by event."""
        ...

    def error(self, code: str) -> _Object:
        """The body of a refusal."""
        ...

    def stream_error(self, code: str) -> bytes:
        """An error inside a stream."""
        ...


class ScriptedChat:
    """OpenAI's Chat Completions."""

    def whole(self, answer: ScriptedAnswer, seen: SeenRequest) -> _Object:
        """See `ScriptedWire`."""
        message: _Object = {"role": "assistant", "content": answer.text}
        if answer.reasoning is not None:
            message["reasoning_content"] = answer.reasoning
        if answer.tool_calls:
            message["tool_calls"] = [_chat_call(call, seen, position) for position, call in _numbered(answer)]
        choice = {"index": 0, "message": message, "finish_reason": _finish(answer, "stop", "tool_calls")}
        document = _chat_head(seen, "chat.completion") | {"choices": [choice]}
        return document if answer.omit_usage else document | {"usage": _chat_usage(_used(answer, seen))}

    def events(self, answer: ScriptedAnswer, seen: SeenRequest) -> list[bytes]:
        """See `ScriptedWire`."""
        deltas: list[_Object] = [{"role": "assistant", "content": ""}]
        deltas += [_Object(reasoning_content=word) for word in _words(answer.reasoning)]
        deltas += [_Object(content=word) for word in _words(answer.text)]
        for position, call in _numbered(answer):
            whole = _chat_call(call, seen, position)
            begin = {**whole, "index": position, "function": {"name": call.name, "arguments": ""}}
            deltas.append({"tool_calls": [begin]})
            for part in _halves(call.arguments):
                deltas.append({"tool_calls": [{"index": position, "function": {"arguments": part}}]})
        chunks = [self._chunk(seen, delta, None) for delta in deltas]
        chunks.append(self._chunk(seen, {}, _finish(answer, "stop", "tool_calls")))
        options = seen.body.get("stream_options")
        if isinstance(options, dict) and "include_usage" in options and not answer.omit_usage:
            usage: _Object = {"choices": [], "usage": _chat_usage(_used(answer, seen))}
            chunks.append(_event(None, _chat_head(seen, "chat.completion.chunk") | usage))
        return [*chunks, render_event(None, b"[DONE]")]

    def error(self, code: str) -> _Object:
        """See `ScriptedWire`."""
        return {"error": {"message": f"scripted model: {code}", "type": "scripted", "code": code}}

    def stream_error(self, code: str) -> bytes:
        """See `ScriptedWire`."""
        return _event(None, self.error(code))

    def _chunk(self, seen: SeenRequest, delta: Mapping[str, object], finish_reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return _event(None, _chat_head(seen, "chat.completion.chunk") | {"choices": [choice]})


class ScriptedResponses:
    """OpenAI's Responses."""

    def whole(self, answer: ScriptedAnswer, seen: SeenRequest) -> _Object:
        """See `ScriptedWire`."""
        cut = answer.finish_reason in {"length", "max_output_tokens"}
        ending = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}} if cut else {}
        usage = None if answer.omit_usage else _response_usage(_used(answer, seen))
        return self._begun(seen) | {"status": "completed", "output": self._items(answer, seen), "usage": usage} | ending

    def events(self, answer: ScriptedAnswer, seen: SeenRequest) -> list[bytes]:
        """See `ScriptedWire`."""
        documents: list[_Object] = [
            {"type": "response.created", "response": self._begun(seen)},
            {"type": "response.in_progress", "response": self._begun(seen)},
        ]
        for position, item in enumerate(self._items(answer, seen)):
            documents += _item_events(item, position)
        whole = self.whole(answer, seen)
        documents.append({"type": f"response.{whole['status']}", "response": whole})
        numbered = ({**document, "sequence_number": number} for number, document in enumerate(documents))
        return [_event(str(document["type"]), document) for document in numbered]

    def error(self, code: str) -> _Object:
        """See `ScriptedWire`."""
        return {"error": {"message": f"scripted model: {code}", "type": "scripted", "code": code}}

    def stream_error(self, code: str) -> bytes:
        """See `ScriptedWire`."""
        error = {"code": code, "message": f"scripted model: {code}"}
        response: _Object = {"object": "response", "status": "failed", "error": error, "output": []}
        return _event("response.failed", {"type": "response.failed", "response": response})

    def _begun(self, seen: SeenRequest) -> _Object:
        return {
            "id": f"resp_scripted_{seen.index}",
            "object": "response",
            "created_at": 0,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "model": seen.body.get("model", "scripted"),
            "output": [],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
        }

    def _items(self, answer: ScriptedAnswer, seen: SeenRequest) -> list[_Object]:
        items: list[_Object] = []
        if answer.reasoning is not None:
            summary = [{"type": "summary_text", "text": answer.reasoning}]
            items.append({"id": f"rs_{seen.index}", "type": "reasoning", "summary": summary})
        if answer.text is not None:
            content: list[_Object] = [{"type": "output_text", "text": answer.text, "annotations": []}]
            said: _Object = {"type": "message", "role": "assistant", "status": "completed", "content": content}
            items.append({"id": f"msg_{seen.index}", **said})
        for position, call in _numbered(answer):
            called = {"type": "function_call", "name": call.name, "arguments": call.arguments, "status": "completed"}
            items.append({"id": f"fc_{seen.index}_{position}", "call_id": _call_id(call, seen, position), **called})
        return items


class ScriptedMessages:
    """Anthropic's Messages."""

    def whole(self, answer: ScriptedAnswer, seen: SeenRequest) -> _Object:
        """See `ScriptedWire`."""
        usage = {} if answer.omit_usage else {"usage": _message_usage(_used(answer, seen))}
        stop = {"stop_reason": _finish(answer, "end_turn", "tool_use"), "stop_sequence": None}
        return self._head(seen) | {"content": _message_blocks(answer, seen)} | stop | usage

    def events(self, answer: ScriptedAnswer, seen: SeenRequest) -> list[bytes]:
        """See `ScriptedWire`."""
        usage = _message_usage(_used(answer, seen))
        begun: _Object = {} if answer.omit_usage else {"usage": usage | {"output_tokens": 1}}
        empty: _Object = {"content": [], "stop_reason": None, "stop_sequence": None}
        message = self._head(seen) | empty | begun
        documents: list[_Object] = [{"type": "message_start", "message": message}]
        documents.append({"type": "ping"})
        for position, block in enumerate(_message_blocks(answer, seen)):
            documents += _block_events(block, position)
        stop = {"stop_reason": _finish(answer, "end_turn", "tool_use"), "stop_sequence": None}
        spent: _Object = {} if answer.omit_usage else {"usage": {"output_tokens": usage["output_tokens"]}}
        documents.append({"type": "message_delta", "delta": stop, **spent})
        documents.append({"type": "message_stop"})
        return [_event(str(document["type"]), document) for document in documents]

    def error(self, code: str) -> _Object:
        """See `ScriptedWire`."""
        return {"type": "error", "error": {"type": code, "message": f"scripted model: {code}"}}

    def stream_error(self, code: str) -> bytes:
        """See `ScriptedWire`."""
        return _event("error", self.error(code))

    def _head(self, seen: SeenRequest) -> _Object:
        model = seen.body.get("model", "scripted")
        return {"id": f"msg_scripted_{seen.index}", "type": "message", "role": "assistant", "model": model}


WIRES: Final[Mapping[WireName, ScriptedWire]] = {
    "chat_completions": ScriptedChat(),
    "responses": ScriptedResponses(),
    "messages": ScriptedMessages(),
}


def _event(name: str | None, document: Mapping[str, object]) -> bytes:
    return render_event(name, json.dumps(document).encode())


def _numbered(answer: ScriptedAnswer) -> Iterator[tuple[int, ScriptedCall]]:
    return enumerate(answer.tool_calls)


def _words(text: str | None) -> list[str]:
    words = (text or "").split(" ")
    return [word if number == 0 else f" {word}" for number, word in enumerate(words) if word or number]


def _halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]


def _finish(answer: ScriptedAnswer, said: str, called: str) -> str:
    return answer.finish_reason or (called if answer.tool_calls else said)


def _call_id(call: ScriptedCall, seen: SeenRequest, position: int) -> str:
    return call.id or f"call_{seen.index}_{position}"


def _chat_call(call: ScriptedCall, seen: SeenRequest, position: int) -> _Object:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": _call_id(call, seen, position), "type": "function", "function": function}


def _chat_head(seen: SeenRequest, kind: str) -> _Object:
    model = seen.body.get("model", "scripted")
    head: _Object = {"id": f"chatcmpl-{seen.index}", "object": kind, "created": 0, "model": model}
    return head | {"system_fingerprint": "scripted"}


def _item_events(item: Mapping[str, object], position: int) -> Iterator[_Object]:
    at: _Object = {"item_id": item["id"], "output_index": position}
    yield {"type": "response.output_item.added", "output_index": position, "item": {**item, **_emptied(item)}}
    if item["type"] == "message":
        text = _said(item)
        part: _Object = {"type": "output_text", "text": "", "annotations": []}
        yield {"type": "response.content_part.added", **at, "content_index": 0, "part": part}
        for word in _words(text):
            yield {"type": "response.output_text.delta", **at, "content_index": 0, "delta": word, "logprobs": []}
        yield {"type": "response.output_text.done", **at, "content_index": 0, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **at, "content_index": 0, "part": {**part, "text": text}}
    elif item["type"] == "reasoning":
        yield from _summary_events(at, str(cast("list[_Object]", item["summary"])[0]["text"]))
    elif item["type"] == "function_call":
        arguments = str(item["arguments"])
        for half in _halves(arguments):
            yield {"type": "response.function_call_arguments.delta", **at, "delta": half}
        done = {"name": item["name"], "arguments": arguments}
        yield {"type": "response.function_call_arguments.done", **at, **done}
    yield {"type": "response.output_item.done", "output_index": position, "item": item}


def _summary_events(at: _Object, text: str) -> Iterator[_Object]:
    inside: _Object = {**at, "summary_index": 0}
    part: _Object = {"type": "summary_text", "text": ""}
    yield {"type": "response.reasoning_summary_part.added", **inside, "part": part}
    for word in _words(text):
        yield {"type": "response.reasoning_summary_text.delta", **inside, "delta": word}
    yield {"type": "response.reasoning_summary_text.done", **inside, "text": text}
    yield {"type": "response.reasoning_summary_part.done", **inside, "part": {**part, "text": text}}


def _emptied(item: Mapping[str, object]) -> _Object:
    empty: dict[object, _Object] = {
        "message": {"content": [], "status": "in_progress"},
        "function_call": {"arguments": "", "status": "in_progress"},
        "reasoning": {"summary": []},
    }
    return empty[item["type"]]


def _said(item: Mapping[str, object]) -> str:
    content = cast("list[dict[str, str]]", item["content"])
    return content[0]["text"]


def _message_blocks(answer: ScriptedAnswer, seen: SeenRequest) -> list[_Object]:
    blocks: list[_Object] = []
    if answer.reasoning is not None:
        blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": "scripted"})
    if answer.text is not None:
        blocks.append({"type": "text", "text": answer.text})
    for position, call in _numbered(answer):
        used = {"name": call.name, "input": json.loads(call.arguments)}
        blocks.append({"type": "tool_use", "id": _call_id(call, seen, position), **used})
    return blocks


def _block_events(block: Mapping[str, object], position: int) -> Iterator[_Object]:
    at: _Object = {"index": position}
    kind = str(block["type"])
    emptied: dict[str, _Object] = {
        "thinking": {"thinking": "", "signature": ""},
        "text": {"text": ""},
        "tool_use": {"input": {}},
    }
    yield {"type": "content_block_start", **at, "content_block": {**block, **emptied[kind]}}
    for delta in _block_deltas(kind, block):
        yield {"type": "content_block_delta", **at, "delta": delta}
    yield {"type": "content_block_stop", **at}


def _block_deltas(kind: str, block: Mapping[str, object]) -> Iterator[_Object]:
    if kind == "text":
        for word in _words(str(block["text"])):
            yield {"type": "text_delta", "text": word}
    elif kind == "thinking":
        for word in _words(str(block["thinking"])):
            yield {"type": "thinking_delta", "thinking": word}
        yield {"type": "signature_delta", "signature": block["signature"]}
    else:
        for half in _halves(json.dumps(block["input"])):
            yield {"type": "input_json_delta", "partial_json": half}


def _used(answer: ScriptedAnswer, seen: SeenRequest) -> ScriptedUsage:
    if answer.usage is not None:
        return answer.usage
    said = json.dumps([answer.text, answer.reasoning, [call.arguments for call in answer.tool_calls]])
    return ScriptedUsage(
        prompt_tokens=-(-len(json.dumps(seen.messages)) // _BYTES_PER_TOKEN),
        completion_tokens=-(-len(said) // _BYTES_PER_TOKEN),
    )


def _chat_usage(usage: ScriptedUsage) -> _Object:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _response_usage(usage: ScriptedUsage) -> _Object:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _message_usage(usage: ScriptedUsage) -> _Object:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": usage.completion_tokens,
    }
