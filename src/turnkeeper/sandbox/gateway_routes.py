"""What the gateway has at which path: exactly the completion routes of the turn's provider, and what is answered here.

Pure. Clients ask for the list of models and, of Anthropic, for a count of tokens; both are answered without the
provider, so that neither shows what else its account has.
"""

import re
from collections.abc import Mapping
from typing import Final

from turnkeeper.sandbox.http_door import HttpAnswer, HttpRequest
from turnkeeper.sandbox.protocols.anthropic import ANTHROPIC, count_tokens
from turnkeeper.sandbox.protocols.chat_completions import CHAT_COMPLETIONS
from turnkeeper.sandbox.protocols.responses import RESPONSES
from turnkeeper.sandbox.protocols.wire import CallRefused, ModelProtocol, render_json
from turnkeeper.sandbox.providers import ModelSpec, ProviderKind

PROTOCOLS: Final[Mapping[ProviderKind, tuple[ModelProtocol, ...]]] = {
    "openai": (CHAT_COMPLETIONS, RESPONSES),
    "local": (CHAT_COMPLETIONS,),
    "anthropic": (ANTHROPIC,),
}
MODELS_PATH: Final = "/v1/models"
COUNT_PATH: Final = "/v1/messages/count_tokens"

# The gateway's own names inside a box; whoever asks for another host believes to be elsewhere.
_HOST: Final = re.compile(r"(gateway|localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?\Z")
_QUERIES: Final = frozenset({"", "beta=true"})
_EPOCH: Final = "1970-01-01T00:00:00Z"


def first_protocol(model: ModelSpec) -> ModelProtocol:
    """In whose form a request that belongs to no route is refused."""
    return PROTOCOLS[model.provider.kind][0]


def protocol_of(request: HttpRequest, model: ModelSpec) -> ModelProtocol | None:
    """The protocol of a completion route; `None` for any other target."""
    path, _, query = request.target.partition("?")
    for protocol in PROTOCOLS[model.provider.kind]:
        if path == protocol.path and query in (_QUERIES if protocol is ANTHROPIC else {""}):
            return protocol
    return None


def check_addressed(request: HttpRequest) -> None:
    """Raises `CallRefused` for a request that is meant for another server."""
    if not request.target.startswith("/") or not _HOST.match(request.headers.get("host", "gateway").lower()):
        raise CallRefused("only the model gateway is here", code="misdirected_request")


def check_method(request: HttpRequest) -> None:
    """Raises `CallRefused` for a completion route that is not posted to."""
    if request.method != "POST":
        raise CallRefused("completions are posted", code="method_not_allowed")


def answer_here(request: HttpRequest, model: ModelSpec) -> HttpAnswer:
    """The answer to what needs no provider. Raises `CallRefused`."""
    path, _, query = request.target.partition("?")
    if path == COUNT_PATH and query in _QUERIES and model.provider.kind == "anthropic":
        check_method(request)
        return HttpAnswer(200, render_json({"input_tokens": count_tokens(request.body, model)}))
    if request.method == "GET" and path == MODELS_PATH:
        return HttpAnswer(200, render_json(_model_list(model)))
    if request.method == "GET" and path == f"{MODELS_PATH}/{model.model_id}":
        return HttpAnswer(200, render_json(_model_entry(model)))
    served = ", ".join(protocol.path for protocol in PROTOCOLS[model.provider.kind])
    raise CallRefused(f"only POST {served} is here", code="not_found")


def _model_entry(model: ModelSpec) -> dict[str, object]:
    if model.provider.kind == "anthropic":
        return {"type": "model", "id": model.model_id, "display_name": model.model_id, "created_at": _EPOCH}
    return {"id": model.model_id, "object": "model", "created": 0, "owned_by": model.provider.name}


def _model_list(model: ModelSpec) -> dict[str, object]:
    entries: dict[str, object] = {"data": [_model_entry(model)]}
    if model.provider.kind == "anthropic":
        return entries | {"has_more": False, "first_id": model.model_id, "last_id": model.model_id}
    return entries | {"object": "list"}
