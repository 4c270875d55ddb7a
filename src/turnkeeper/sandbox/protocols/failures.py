"""A provider's own errors as failures of ours: by status, by its error code, never in its words. Pure.

A provider's error text may quote the key or name the account; a box gets our sentence and, at most, a plain code.
"""

import re
from typing import Final

import orjson

from turnkeeper.sandbox.metering import ModelFailure
from turnkeeper.sandbox.protocols.wire import mapping

# Only words: a key has digits or capitals, so an echo of one does not fit.
_IDENTIFIER: Final = re.compile(r"[a-z_]{1,48}\Z")
_CONTEXT_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_QUOTA_CODES: Final = frozenset({"insufficient_quota", "billing_error"})
# Anthropic has no code for either.
_CONTEXT_WORDS: Final = ("prompt is too long", "exceed context limit")
_QUOTA_WORDS: Final = ("credit balance is too low",)
_PASSING_STATUS: Final = frozenset({408, 409, 425, 429})
_STATUS_CODES: Final = {
    400: ("provider_rejected", "the provider refused the request"),
    401: ("provider_denied", "the provider did not accept the key"),
    402: ("provider_denied", "the provider account cannot pay"),
    403: ("provider_denied", "the provider does not allow this call"),
    404: ("provider_model_unknown", "the provider does not know this model or path"),
    413: ("provider_rejected", "the provider finds the request too large"),
    422: ("provider_rejected", "the provider refused the request"),
    429: ("provider_rate_limited", "the provider asks to slow down"),
}
_REASON_CODES: Final = {
    "rate_limit_error": ("provider_rate_limited", "the provider asks to slow down", True),
    "rate_limit_exceeded": ("provider_rate_limited", "the provider asks to slow down", True),
    "invalid_request_error": ("provider_rejected", "the provider refused the request", False),
    "invalid_prompt": ("provider_rejected", "the provider refused the request", False),
    "authentication_error": ("provider_denied", "the provider did not accept the key", False),
    "permission_error": ("provider_denied", "the provider does not allow this call", False),
    "not_found_error": ("provider_model_unknown", "the provider does not know this model or path", False),
    "request_too_large": ("provider_rejected", "the provider finds the request too large", False),
}


def failure_of_status(status: int, body: bytes) -> ModelFailure:
    """What a refusal of the provider comes to; `retryable` when the same request may succeed later."""
    error = _error_member(body)
    reason = _reason(error)
    special = _special(reason, _message(error), status)
    if special is not None:
        return special
    code, message = _STATUS_CODES.get(status, ("provider_rejected", "the provider refused the request"))
    if status >= 500:
        code, message = "provider_unavailable", "the provider failed"
    elif 300 <= status < 400:
        code, message = "provider_redirected", "the provider answered with a redirect, which is not followed"
    passing = status in _PASSING_STATUS or status >= 500
    return ModelFailure(code, _detailed(message, status, reason), retryable=passing, status=status)


def failure_of(error: object, *, status: int = 200) -> ModelFailure:
    """What an error inside an answer comes to, which has no status of its own."""
    reason = _reason(error)
    special = _special(reason, _message(error), status)
    if special is not None:
        return special
    unknown = ("provider_unavailable", "the provider failed inside its answer", True)
    code, message, retryable = _REASON_CODES.get(reason or "", unknown)
    return ModelFailure(code, _detailed(message, status, reason), retryable=retryable, status=status)


def _special(reason: str | None, message: str, status: int) -> ModelFailure | None:
    if reason in _CONTEXT_CODES or any(words in message for words in _CONTEXT_WORDS):
        text = _detailed("the context is longer than the model's", status, reason)
        return ModelFailure("context_length_exceeded", text, retryable=False, status=status)
    if reason in _QUOTA_CODES or any(words in message for words in _QUOTA_WORDS):
        text = _detailed("the provider account has no quota left", status, reason)
        return ModelFailure("provider_denied", text, retryable=False, status=status)
    return None


def _detailed(message: str, status: int, reason: str | None) -> str:
    return f"{message} (status {status}{f', {reason}' if reason else ''})"


def _error_member(body: bytes) -> object:
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return mapping(document).get("error")


def _reason(error: object) -> str | None:
    for name in ("code", "type"):
        value = mapping(error).get(name)
        if isinstance(value, str) and _IDENTIFIER.match(value):
            return value
    return None


def _message(error: object) -> str:
    value = mapping(error).get("message")
    return value if isinstance(value, str) else ""
