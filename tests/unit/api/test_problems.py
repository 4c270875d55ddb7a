"""Refusals look the same everywhere, and nothing about an unexpected error leaves."""

import re

import orjson
import pytest

from turnkeeper.acs.strictjson import JsonRejected, parse_object
from turnkeeper.api.auth import NewSecret, generate_secret, secret_sha256
from turnkeeper.api.problems import PROBLEMS, RequestRefused, problem_response
from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.idempotency import IdempotencyKeyReused
from turnkeeper.turns.ports import NotFound, QueueFull, SessionClosed

CONTRACT_MEMBERS = {"type", "title", "status", "detail", "code", "param", "request_id", "retry_after_ms", "errors"}


def problem(error: TurnkeeperError) -> dict[str, object]:
    return orjson.loads(problem_response(error, request_id="req_1").body)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("x"), 404),
        (SessionClosed("x"), 409),
        (QueueFull("x"), 429),
        (IdempotencyKeyReused("x"), 422),
        (RequestRefused("key_invalid", "x"), 401),
    ],
)
def test_a_code_has_one_status(error: TurnkeeperError, status: int) -> None:
    response = problem_response(error, request_id="req_1")
    assert response.status_code == status
    assert response.media_type == "application/problem+json"


@pytest.mark.parametrize("code", PROBLEMS)
def test_every_problem_has_all_members_and_says_what_to_do(code: str) -> None:
    document = problem(TurnkeeperError("It did not work.", code=code))
    assert document.keys() >= CONTRACT_MEMBERS
    assert document["hint"]


def test_a_code_outside_the_table_is_an_internal_error_without_its_text() -> None:
    document = problem(TurnkeeperError("password is hunter2", code="something_new", detail={"secret": 1}))
    assert (document["code"], document["status"]) == ("internal_error", 500)
    assert "hunter2" not in str(document)
    assert "secret" not in document


def test_detail_adds_members_and_replaces_none() -> None:
    detail: dict[str, object] = {"turn_id": "trn_1", "status": 200, "code": "ok"}
    document = problem(TurnkeeperError("x", code=IdempotencyKeyReused.code, detail=detail))
    assert (document["turn_id"], document["status"], document["code"]) == ("trn_1", 422, "idempotency_key_reused")


@pytest.mark.parametrize("body", [b'{"a":"\\ud800"}', b'{"a":NaN}', b"[" * 100 + b"]" * 100, b"{"])
def test_what_the_strict_reader_refuses_is_invalid_json(body: bytes) -> None:
    with pytest.raises(JsonRejected) as rejected:
        parse_object(body)
    assert problem(rejected.value)["code"] == "invalid_json"


def test_a_full_queue_says_when_to_come_back() -> None:
    response = problem_response(QueueFull("x"), request_id="req_1")
    assert response.headers["Retry-After"] == "1"
    assert orjson.loads(response.body)["retry_after_ms"] == 1000


def test_a_secret_is_stored_as_its_hash_and_never_shown_by_accident() -> None:
    made = generate_secret()
    assert re.fullmatch(r"tk_[A-Za-z0-9_-]{43}", made.secret)
    assert made.sha256 == secret_sha256(made.secret)
    assert made.secret not in repr(made)
    assert made != NewSecret("tk_", made.sha256)
