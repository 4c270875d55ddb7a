"""What a client of the gateway is told when it gets no answer: codes, statuses, whether to ask again. Pure data.

The protocols put it into their own words; see `protocols.wire.Refusal`.
"""

from typing import Final

from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.metering import BudgetExhausted, ModelFailure
from turnkeeper.sandbox.protocols.wire import Refusal

RETRY_AFTER_S: Final = 60

_REFUSED: Final = {
    "invalid_request": 400,
    "invalid_json": 400,
    "parameter_not_allowed": 400,
    "remote_content_refused": 400,
    "tools_not_supported": 400,
    BudgetExhausted.code: 402,
    "model_not_allowed": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "misdirected_request": 421,
}
_BUSY: Final = frozenset({"rate_limited", "provider_busy"})
_FINAL_FAILURES: Final = {
    "context_length_exceeded": 400,
    "provider_rejected": 400,
    "provider_denied": 403,
    "provider_model_unknown": 404,
}
_PASSING_FAILURES: Final = {"provider_rate_limited": 429, "gateway_fault": 500}

GATEWAY_FAULT: Final = ModelFailure("gateway_fault", "the gateway failed", retryable=True)


def refusal_of(error: TurnkeeperError) -> Refusal:
    """For a call that the gateway itself did not make."""
    if error.error_code in _BUSY:
        wait_s = RETRY_AFTER_S if error.error_code == "rate_limited" else 1
        return Refusal(429, error.error_code, error.message, retryable=True, retry_after_s=wait_s)
    return Refusal(_REFUSED[error.error_code], error.error_code, error.message)


def refusal_for(failure: ModelFailure) -> Refusal:
    """For a call that failed at the provider."""
    known, other = (_PASSING_FAILURES, 503) if failure.retryable else (_FINAL_FAILURES, 502)
    status = known.get(failure.code, other)
    return Refusal(status, failure.code, failure.message, retryable=failure.retryable)
