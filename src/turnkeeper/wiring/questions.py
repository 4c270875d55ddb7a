"""The questions that our own Guardian keeps, for the platform: in the same process, or over the Guardian's HTTP API."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

import httpx

from turnkeeper.clock import Clock, epoch_ms
from turnkeeper.guardian.approvals import (
    ANY_APPROVER,
    HUMAN,
    WITHDRAW,
    ApprovalRefused,
    ApprovalScope,
    ApprovalStatus,
    ApprovalStore,
    Approver,
    approval_id_of,
)
from turnkeeper.guardian.approvals import ApprovalAnswer as GuardianAnswer
from turnkeeper.guardian.ports import StoreFailed
from turnkeeper.ids import uuid_of
from turnkeeper.turns.approval_desk import Question, QuestionRefused, QuestionStatus, QuestionsUnreachable
from turnkeeper.turns.approvals import ApprovalAnswer

TIMEOUT_S: Final = 10.0
OUR_KEY: Final = "platform"
NOBODY_WAITS: Final = "withdrawn by the platform: the turn that asked does not wait for it any more"

_OK: Final = 200
_NOT_FOUND: Final = 404
_REFUSALS: Final = frozenset({403, 409, 422})


class DeskQuestions:
    """Questions in the Guardian's own store. A person who may answer here has shown a key of the turn API."""

    def __init__(self, desk: ApprovalStore, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock

    async def question(self, session_id: str, request_id: str) -> Question | None:
        """The question as it stands. Raises `QuestionsUnreachable`."""
        try:
            found = await asyncio.to_thread(self._desk.approval, _id(session_id, request_id))
        except StoreFailed as error:
            raise QuestionsUnreachable(error.message) from error
        if found is None:
            return None
        status = found.status_at(epoch_ms(self._clock.now()))
        by = found.decided_by
        return Question(
            _STATUSES[status], by, found.note, "session" if found.scope is ApprovalScope.SESSION else "once"
        )

    async def answer(self, session_id: str, request_id: str, answer: ApprovalAnswer) -> None:
        """Records the answer. Raises `QuestionRefused`, `QuestionsUnreachable`."""
        name = f"{answer.by.type}:{answer.by.id}" if answer.by.id else answer.by.type
        approver = Approver(answer.by.id or OUR_KEY, name, HUMAN, frozenset({ANY_APPROVER}))
        now_ms = epoch_ms(self._clock.now())
        try:
            await asyncio.to_thread(self._desk.decide, _id(session_id, request_id), _said(answer), approver, now_ms)
        except ApprovalRefused as error:
            raise QuestionRefused(error.message, detail={"reason": error.error_code}) from error
        except StoreFailed as error:
            raise QuestionsUnreachable(error.message) from error

    async def withdraw(self, session_id: str, request_id: str) -> None:
        """Ends the question. Raises `QuestionRefused`, `QuestionsUnreachable`."""
        try:
            await asyncio.to_thread(self._withdraw, _id(session_id, request_id))
        except ApprovalRefused as error:
            raise QuestionRefused(error.message, detail={"reason": error.error_code}) from error
        except StoreFailed as error:
            raise QuestionsUnreachable(error.message) from error

    def _withdraw(self, approval_id: str) -> None:
        found = self._desk.approval(approval_id)
        if found is not None:
            # Whoever was asked: it is the asker that waits no more.
            asker = Approver(OUR_KEY, OUR_KEY, found.approver_type, frozenset({ANY_APPROVER}))
            self._desk.withdraw(approval_id, asker, NOBODY_WAITS, epoch_ms(self._clock.now()))


class HttpQuestions:
    """Questions of a Guardian in another process, through its HTTP API with a key that may decide."""

    def __init__(self, base_url: str, secret: str, client: httpx.AsyncClient) -> None:
        self._base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {secret}"}
        self._client = client

    async def question(self, session_id: str, request_id: str) -> Question | None:
        """The question as it stands. Raises `QuestionsUnreachable`."""
        answer = await self._call("GET", _id(session_id, request_id), None)
        if answer.status_code == _NOT_FOUND:
            return None
        document = _document(answer)
        status = cast("QuestionStatus", document["status"])
        remember = "session" if document.get("scope") == ApprovalScope.SESSION.value else "once"
        return Question(status, document.get("decided_by"), document.get("note"), remember)

    async def answer(self, session_id: str, request_id: str, answer: ApprovalAnswer) -> None:
        """Records the answer. Raises `QuestionRefused`, `QuestionsUnreachable`."""
        said = _said(answer)
        body = {"decision": said.decision, "scope": said.scope} | ({} if said.note is None else {"note": said.note})
        _taken(await self._say(session_id, request_id, body))

    async def withdraw(self, session_id: str, request_id: str) -> None:
        """Ends the question. Raises `QuestionRefused`, `QuestionsUnreachable`."""
        heard = await self._say(session_id, request_id, {"decision": WITHDRAW, "note": NOBODY_WAITS})
        if heard.status_code != _NOT_FOUND:
            _taken(heard)

    async def _say(self, session_id: str, request_id: str, body: Mapping[str, str]) -> httpx.Response:
        return await self._call("POST", f"{_id(session_id, request_id)}/decision", body)

    async def _call(self, method: str, path: str, body: Mapping[str, str] | None) -> httpx.Response:
        url = f"{self._base_url}/approvals/{path}"
        try:
            return await self._client.request(method, url, json=body, headers=self._headers, timeout=TIMEOUT_S)
        except httpx.HTTPError as error:
            raise QuestionsUnreachable(f"the Guardian's approvals cannot be reached: {error}") from error


_STATUSES: Final[Mapping[ApprovalStatus, QuestionStatus]] = {
    ApprovalStatus.PENDING: "pending",
    ApprovalStatus.APPROVED: "approved",
    ApprovalStatus.DENIED: "denied",
    ApprovalStatus.EXPIRED: "expired",
}


def _id(session_id: str, request_id: str) -> str:
    return approval_id_of(uuid_of(session_id), request_id)


def _said(answer: ApprovalAnswer) -> GuardianAnswer:
    approves = answer.word == "approve"
    scope = ApprovalScope.SESSION if approves and answer.remember == "session" else ApprovalScope.THIS_REQUEST
    return GuardianAnswer(answer.word, scope.value, answer.note)


def _taken(heard: httpx.Response) -> None:
    if heard.status_code in _REFUSALS:
        problem = cast("dict[str, Any]", heard.json())
        raise QuestionRefused(str(problem.get("detail")), detail={"reason": problem.get("code")})
    _document(heard)


def _document(answer: httpx.Response) -> dict[str, Any]:
    if answer.status_code != _OK:
        raise QuestionsUnreachable(f"the Guardian's approvals answered {answer.status_code}")
    return cast("dict[str, Any]", answer.json())
