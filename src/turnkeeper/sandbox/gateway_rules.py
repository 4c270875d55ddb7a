"""What a harness may send to a model and what it gets back: pure checks over bytes and dicts.

Default is refusal: a parameter that is not listed here stops the call, so that a turn can use the agent's own model
with ordinary parameters and nothing else of the provider's account.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.providers import (
    OUTPUT_CAP_MEMBERS,
    TUNABLE_PARAMETERS,
    ModelSpec,
    count_input_tokens,
    is_positive_integer,
)

MAX_JSON_DEPTH: Final = 64
DEFAULT_MAX_OUTPUT_TOKENS: Final = 4096
"""The output cap of a call that names none."""
LARGEST_MAX_OUTPUT_TOKENS: Final = 65_536
SHORTEST_SOUGHT_KEY: Final = 16
"""Shorter keys are not looked for in answers: they would be found by chance, and are no provider's real ones."""

_TOOL_MEMBERS: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls"})
_REQUEST_MEMBERS: Final = (
    frozenset({"model", "messages", "response_format", "n", "stream"}) | _TOOL_MEMBERS | TUNABLE_PARAMETERS
)
_REWRITTEN_MEMBERS: Final = frozenset({"model", "n", "stream", "parallel_tool_calls", *OUTPUT_CAP_MEMBERS})
_ANSWER_MEMBERS: Final = ("id", "object", "created", "usage")


class CallRefused(TurnkeeperError):
    """The gateway does not pass this request on. The code says which rule it broke."""

    code = "invalid_request"


class AnswerUnusable(TurnkeeperError):
    """The provider's answer is not a chat completion that may go into a box."""

    code = "provider_bad_answer"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A checked request: the members to pass on, the wanted output cap, the estimate of its input."""

    members: Mapping[str, object]
    max_output_tokens: int
    input_tokens: int


def parse_request(body: bytes, model: ModelSpec) -> ModelRequest:
    """What a harness wants to ask its model. Raises `CallRefused` naming what is wrong."""
    document = _parse_object(body)
    unknown = sorted(set(document) - _REQUEST_MEMBERS)
    if unknown:
        raise CallRefused(f"the parameter {unknown[0][:64]!r} is not passed on", code="parameter_not_allowed")
    if document.get("model") != model.model_id:
        raise CallRefused("the model of this turn is another one", code="model_not_allowed")
    if document.get("stream", False) is not False:
        raise CallRefused("streamed completions are not supported yet", code="not_supported_yet")
    _check_lists(document, model)
    members = {name: value for name, value in document.items() if name not in _REWRITTEN_MEMBERS}
    members.update({name: value for name, value in model.params.items() if name not in OUTPUT_CAP_MEMBERS})
    return ModelRequest(members, _wanted_output(document, model.params), count_input_tokens(members))


def render_request(request: ModelRequest, model: ModelSpec, max_output_tokens: int) -> bytes:
    """The body for the provider, with what the gateway alone decides written in."""
    document = {
        **request.members,
        "model": model.model_id,
        "n": 1,
        "stream": False,
        model.provider.output_cap_member: max_output_tokens,
    }
    if "tools" in request.members:
        document["parallel_tool_calls"] = False
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def parse_answer(body: bytes) -> dict[str, object]:
    """A provider's answer as an object. Raises `AnswerUnusable`."""
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AnswerUnusable("the provider's answer is not JSON") from error
    if not isinstance(document, dict):
        raise AnswerUnusable("the provider's answer is not a JSON object")
    return cast("dict[str, object]", document)


def first_choice(answer: Mapping[str, object]) -> Mapping[str, object]:
    """The one choice that was asked for. Raises `AnswerUnusable` when there is none with a message."""
    choices = answer.get("choices")
    choice = cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise AnswerUnusable("the provider's answer has no choice")
    members = cast("dict[str, object]", choice)
    if not isinstance(members.get("message"), dict):
        raise AnswerUnusable("the provider's answer has no message")
    return members


def finish_reason_of(answer: Mapping[str, object]) -> str | None:
    """Why the model stopped, as the provider put it; `None` where it said nothing readable."""
    try:
        reason = first_choice(answer).get("finish_reason")
    except AnswerUnusable:
        return None
    return reason[:64] if isinstance(reason, str) else None


def render_answer(answer: Mapping[str, object], model: ModelSpec) -> bytes:
    """What goes into the box: one choice and the usage, the model under the name it was asked for.

    A llama.cpp server names the weights' path as its model, and half a surrogate pair is what some providers make of
    a cut emoji. Raises `AnswerUnusable` when there is no usable choice or the provider's key is in the text.
    """
    document: dict[str, object] = {name: answer[name] for name in _ANSWER_MEMBERS if name in answer}
    document |= {"model": model.model_id, "choices": [dict(first_choice(answer))]}
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    if _contains_key(body, model):
        raise AnswerUnusable("the provider's answer contains the provider's key")
    return body


def _contains_key(body: bytes, model: ModelSpec) -> bool:
    secret = model.provider.api_key
    key = "" if secret is None else secret.get_secret_value()
    return len(key) >= SHORTEST_SOUGHT_KEY and key.encode() in body


def _check_lists(document: Mapping[str, object], model: ModelSpec) -> None:
    if not _is_list_of_objects(document.get("messages"), empty=False):
        raise CallRefused("messages must be a list of at least one object")
    if _TOOL_MEMBERS.isdisjoint(document):
        return
    if not model.provider.tool_calls:
        raise CallRefused(f"the provider {model.provider.name!r} calls no tools", code="tools_not_supported")
    if not _is_list_of_objects(document.get("tools", []), empty=True):
        raise CallRefused("tools must be a list of objects")


def _is_list_of_objects(value: object, *, empty: bool) -> bool:
    if not isinstance(value, list):
        return False
    items = cast("list[object]", value)
    return (empty or bool(items)) and all(isinstance(item, dict) for item in items)


def _wanted_output(document: Mapping[str, object], params: Mapping[str, object]) -> int:
    wanted = [LARGEST_MAX_OUTPUT_TOKENS]
    for source in (document, params):
        for name in OUTPUT_CAP_MEMBERS:
            value = source.get(name)
            if value is None:
                continue
            if not is_positive_integer(value):
                raise CallRefused(f"{name} must be a positive integer")
            wanted.append(cast("int", value))
    return min(wanted) if len(wanted) > 1 else DEFAULT_MAX_OUTPUT_TOKENS


def _parse_object(body: bytes) -> dict[str, object]:
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
