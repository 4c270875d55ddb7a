"""Batches (ACS 3, CORE-WIRE-08): several requests in one array, each signed, each answered by itself.

Answers for the requests of an array as they were received, and for the array of their answers in the same order. Must
never treat a batch as one request: there is no atomicity, and a request that fails says nothing about the next. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from turnkeeper.acs import AcsError, AcsErrorCode, JsonLimits, JsonRejected
from turnkeeper.acs.strictjson import item_slices

_SPACE: Final = b" \t\n\r"


def is_batch(body: bytes) -> bool:
    """Whether a body can only be a batch, or nothing."""
    return body[:1] == b"[" or (body[:1] in (b" ", b"\t", b"\n", b"\r") and body.lstrip(_SPACE)[:1] == b"[")


def batch_bodies(body: bytes, limits: JsonLimits, max_requests: int) -> list[bytes]:
    """The requests of a batch. Raises `AcsError` where the array itself cannot be taken."""
    try:
        # The array around it is no part of how deep a request nests.
        bodies = item_slices(body, replace(limits, max_depth=limits.max_depth + 1))
    except JsonRejected as rejected:
        large = rejected.error_code == "too_large"
        code = AcsErrorCode.INVALID_REQUEST if large else AcsErrorCode.PARSE_ERROR
        raise AcsError(code, rejected.error_code, rejected.message, rejected.detail) from rejected
    if not bodies:
        raise AcsError(AcsErrorCode.INVALID_REQUEST, "batch_empty", "the batch holds no request")
    if len(bodies) > max_requests:
        raise AcsError(
            AcsErrorCode.INVALID_REQUEST,
            "batch_too_large",
            f"the batch holds {len(bodies)} requests, more than {max_requests}",
            {"max_batch_requests": max_requests},
        )
    return bodies


def render_batch(answers: Sequence[bytes]) -> bytes:
    """The answers as one array."""
    return b"[" + b",".join(answers) + b"]"
