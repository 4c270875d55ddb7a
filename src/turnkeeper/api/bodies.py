"""Request bodies: read bounded, parsed strictly, kept token for token (contract 1).

Answers for a body that has one reading and a bounded size, with the raw text of each member beside its value. Must
never hold more of a body than the limit, or wait for one for ever.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from turnkeeper.acs.strictjson import JsonLimits, JsonObject, JsonRejected, member_slices, parse_object
from turnkeeper.api.problems import RequestRefused

READ_TIMEOUT_MS: Final = 30_000
MAX_DISCARDED_BYTES: Final = 8 * 1_048_576
MAX_DEPTH: Final = 64

_EXTENT = json.JSONDecoder(parse_int=str, parse_float=str)


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A body that is an object: its members as values, and as the text that was received without white space."""

    members: JsonObject
    slices: Mapping[str, str]


EMPTY_BODY: Final = JsonBody({}, {})


async def read_json(request: Request, *, max_bytes: int, optional: bool = False) -> JsonBody:
    """The request's JSON object; the empty one for no body at all, where that is allowed. Raises `RequestRefused`."""
    raw = await read_bytes(request, max_bytes=max_bytes)
    if not raw and optional:
        return EMPTY_BODY
    _check_media_type(request)
    limits = JsonLimits(max_bytes=max_bytes, max_depth=MAX_DEPTH)
    try:
        return JsonBody(parse_object(raw, limits), member_slices(raw, limits))
    except JsonRejected as rejected:
        rejected.hint = "Send one JSON object in UTF-8, each member once." if raw else "Send a JSON object as the body."
        raise


async def read_bytes(request: Request, *, max_bytes: int) -> bytes:
    """The body. Raises `RequestRefused` for one that is longer than `max_bytes` or does not arrive in time."""
    too_large = RequestRefused(
        "body_too_large",
        f"The body is longer than the limit of {max_bytes} bytes.",
        hint=f"Send at most {max_bytes} bytes.",
    )
    if "Expect" in request.headers and _announced_bytes(request) > max_bytes:
        raise too_large
    try:
        async with asyncio.timeout(READ_TIMEOUT_MS / 1000):
            return await _gather(request.stream(), max_bytes, too_large)
    except TimeoutError as error:
        raise RequestRefused("request_timeout", "The body did not arrive in time.") from error
    except ClientDisconnect as error:
        raise RequestRefused("request_timeout", "The connection was closed before the body was complete.") from error


def element_slices(array_json: str) -> list[str]:
    """The raw text of each element of a JSON array without white space."""
    slices: list[str] = []
    at = 1
    while array_json[at] != "]":
        _, end = _EXTENT.raw_decode(array_json, at)
        slices.append(array_json[at:end])
        at = end + 1 if array_json[end] == "," else end
    return slices


async def _gather(chunks: AsyncIterator[bytes], max_bytes: int, too_large: RequestRefused) -> bytes:
    kept = bytearray()
    discarded = 0
    async for chunk in chunks:
        if len(kept) + len(chunk) > max_bytes:
            discarded += len(chunk)
            # A client that is still sending reads no answer: what is left of a somewhat too long body is let in.
            if discarded > MAX_DISCARDED_BYTES:
                break
        elif not discarded:
            kept += chunk
    if discarded:
        raise too_large
    return bytes(kept)


def _announced_bytes(request: Request) -> int:
    text = request.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def _check_media_type(request: Request) -> None:
    media_type, _, parameters = request.headers.get("Content-Type", "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if media_type.strip().lower() != "application/json" or charset not in {"", "charset=utf-8"}:
        raise RequestRefused("media_type_unsupported", "The body is not application/json.", param="Content-Type")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise RequestRefused("media_type_unsupported", "The body is compressed.", param="Content-Encoding")
