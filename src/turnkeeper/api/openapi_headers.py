"""The headers of answers in the OpenAPI document (contract 1, 2.3, 9 and 13)."""

from typing import Any, Final

Document = dict[str, Any]

_NUMBER: Final[Document] = {"type": "integer", "minimum": 0}


def _header(description: str, schema: Document, *, required: bool = False) -> Document:
    return {"required": required, "schema": schema, "description": description}


REQUEST_ID: Final = _header(
    "Name it when you ask an operator about the request.",
    {"type": "string", "pattern": "^req_[0-9A-HJKMNP-TV-Z]{26}$"},
    required=True,
)
_LOCATION: Final = _header("Where it is.", {"type": "string", "pattern": "^/v1/"}, required=True)
_REPLAYED: Final = _header("There when the Idempotency-Key was used before.", {"const": "true"})
_EVENTS_AFTER: Final = _header("The sequence just before `turn.queued`: follow from there.", _NUMBER, required=True)
_SECONDS: Final = _header("Seconds until another try may pass.", _NUMBER, required=True)
_BY_STATUS: Final[dict[str, dict[str, Document]]] = {
    "401": {"WWW-Authenticate": _header("`Bearer`.", {"const": "Bearer"}, required=True)},
    "405": {"Allow": _header("The methods of the path.", {"type": "string"})},
    "409": {"Retry-After": {**_SECONDS, "required": False}},
    "429": {
        "Retry-After": _SECONDS,
        "RateLimit-Limit": _header("The limit that was reached.", _NUMBER),
        "RateLimit-Remaining": _header("What is left of it: nothing.", {"const": "0"}),
        "RateLimit-Reset": _header("Seconds until there is some again.", _NUMBER),
    },
    "503": {"Retry-After": _SECONDS},
}
"""What a refusal carries, by its status."""


def describe_headers(document: Document) -> None:
    """Adds the headers of every answer to the document."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                headers = response.setdefault("headers", {})
                headers["Request-Id"] = REQUEST_ID
                headers.update(_of_refusal(status, response) or _of_making(operation, status))


def _of_refusal(status: str, response: Document) -> dict[str, Document]:
    refuses = "application/problem+json" in response.get("content", {})
    return _BY_STATUS.get(status, {}) if refuses else {}


def _of_making(operation: Document, status: str) -> dict[str, Document]:
    """What is told of something that was made: only such operations take an Idempotency-Key."""
    makes = any(one["name"] == "Idempotency-Key" for one in operation.get("parameters", ()))
    if not makes or status not in {"200", "201", "202"}:
        return {}
    headers = {"Location": _LOCATION} | ({"Idempotent-Replayed": _REPLAYED} if status == "200" else {})
    return headers | ({"Events-After": _EVENTS_AFTER} if "202" in operation["responses"] else {})
