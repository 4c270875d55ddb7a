"""One answer of the server, and what it means (contract 1 and 13). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnkeeper.client.errors import ClientError
from turnkeeper.client.turn_api.documents import AnswerUnreadable, Json, parse_document
from turnkeeper.client.turn_api.problems import ApiProblem, problem_of
from turnkeeper.client.turn_api.retries import Call, Retries, may_repeat_answer, parse_retry_after

PROBLEM: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Answer:
    """A request that was granted: the document, `{}` where there is none, and the headers by their lower-case names.

    `content` is the answer to a request for bytes.
    """

    status: int
    members: Json
    headers: Mapping[str, str]
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that was not granted: what to raise, whether to try again, and when at the earliest."""

    error: ClientError
    may_repeat: bool
    retry_after_ms: int | None = None


def read_answer(call: Call, status: int, headers: Mapping[str, str], body: bytes, retries: Retries) -> Answer | Failure:
    """The answer, or the failure it is."""
    if 200 <= status < 300 and call.raw:
        return Answer(status, {}, headers, body)
    if 200 <= status < 300:
        try:
            return Answer(status, parse_document(body) if body else {}, headers)
        except AnswerUnreadable as error:
            return Failure(error, call.repeatable)
    problem = read_problem(status, headers, body)
    is_ours = headers.get("content-type", "").startswith(PROBLEM)
    after_ms = parse_retry_after(headers.get("retry-after"))
    code = problem.error_code if is_ours else None
    return Failure(problem, may_repeat_answer(call, status, code, after_ms, retries), after_ms)


def read_problem(status: int, headers: Mapping[str, str], body: bytes) -> ApiProblem:
    """The refusal as an error, whoever wrote it."""
    members: Json = {}
    if headers.get("content-type", "").startswith(PROBLEM):
        try:
            members = parse_document(body)
        except AnswerUnreadable:
            members = {}
    return problem_of(status, members, headers.get("request-id"))
