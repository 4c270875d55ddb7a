"""One answer for two records: the turn's approval, and the question that our own Guardian keeps (contract 2.5).

Answers for a person's one decision settling both, whichever door it came through. The Guardian's record is settled
first: its grant is what lets the step through when it is sent again, so an approval that says yes never stands without
it. A Guardian that is not ours keeps no question we could answer; there the step is simply sent again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias

import structlog

from turnkeeper.clock import Clock
from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns import approvals as rules
from turnkeeper.turns.approvals import Approval, ApprovalAnswer, ApprovalDecided, ApprovalWord, DecidedBy, Remember
from turnkeeper.turns.containment import all_of
from turnkeeper.turns.ports import ApprovalStore, PageRequest

ADOPTED_IN_ONE_ROUND: Final = 50
"""Pending approvals whose question is looked up in one round; the next round goes on behind them."""

QuestionStatus: TypeAlias = Literal["pending", "approved", "denied", "expired"]

_log = structlog.get_logger(__name__)


class QuestionRefused(TurnkeeperError):
    """The Guardian does not take this answer to its question."""

    code = "approver_not_asked"


class QuestionsUnreachable(TurnkeeperError):
    """The Guardian's questions cannot be read or answered now."""

    code = "guardian_unreachable"


@dataclass(frozen=True, slots=True)
class Question:
    """What our Guardian keeps of a question."""

    status: QuestionStatus
    decided_by: str | None = None
    note: str | None = None
    remember: Remember = "once"


class GuardianQuestions(Protocol):
    """The questions of a Guardian of ours, by the step that raised them."""

    async def question(self, session_id: str, request_id: str) -> Question | None:
        """The question as it stands; None where that step raised none. Raises `QuestionsUnreachable`."""
        ...

    async def answer(self, session_id: str, request_id: str, answer: ApprovalAnswer) -> None:
        """Records the answer. Raises `QuestionRefused`, `QuestionsUnreachable`."""
        ...

    async def withdraw(self, session_id: str, request_id: str) -> None:
        """Takes the question back, if there is one. Raises `QuestionRefused`, `QuestionsUnreachable`."""
        ...


class ApprovalDesk:
    """Where approvals are decided."""

    def __init__(self, store: ApprovalStore, clock: Clock, questions: GuardianQuestions | None) -> None:
        self._store = store
        self._clock = clock
        self._questions = questions
        self._after: str | None = None

    async def decide(self, approval_id: str, answer: ApprovalAnswer) -> Approval:
        """The approval once its answer stands, with the Guardian too.

        Raises `NotFound`, `ApprovalDecided`, `ApprovalInputChanged`, `QuestionRefused`, `QuestionsUnreachable`.
        """
        approval = await self._store.approval(approval_id)
        if rules.decide(approval, answer, self._clock.now()) is approval:
            return approval
        await self._settle_question(approval, answer)
        return await self._store.decide_approval(approval_id, answer)

    async def adopt(self) -> None:
        """Takes over answers that were given to the Guardian itself; one round."""
        if self._questions is None:
            return
        page = await self._store.approvals(
            PageRequest(ADOPTED_IN_ONE_ROUND, self._after, "asc"), status="pending", session_id=None
        )
        self._after = page.items[-1].id if page.has_more else None
        await self._adopt(self._questions, page.items)

    async def _settle_question(self, approval: Approval, answer: ApprovalAnswer) -> None:
        request_id = approval.call.request_id
        if self._questions is None or approval.origin != "guardian" or request_id is None:
            return
        if answer.modified_input_json is not None:
            # What was asked about will not be done; the other input is a step of its own, to be asked about anew.
            answer = replace(answer, word="deny", remember="once", note="another input was approved")
        known = await self._questions.question(approval.session_id, request_id)
        if known is None or known.status == "expired":
            # Nothing to settle any more; what the Guardian says to the step when it is sent again, holds.
            return
        if known.status == "pending":
            await self._questions.answer(approval.session_id, request_id, answer)
        elif known.status != _status(answer.word):
            raise ApprovalDecided(f"{approval.id} is {known.status} with the Guardian", detail={"status": known.status})

    async def _adopt(self, questions: GuardianQuestions, pending: Sequence[Approval]) -> None:
        await all_of(self._adopt_one(questions, approval) for approval in pending)

    async def _adopt_one(self, questions: GuardianQuestions, approval: Approval) -> None:
        if approval.origin != "guardian" or approval.call.request_id is None:
            return
        found = await questions.question(approval.session_id, approval.call.request_id)
        if found is None or found.status not in {"approved", "denied"}:
            return
        word: ApprovalWord = "approve" if found.status == "approved" else "deny"
        by = DecidedBy("guardian", found.decided_by)
        try:
            await self._store.decide_approval(
                approval.id, ApprovalAnswer(word, by, remember=found.remember, note=found.note)
            )
        except ApprovalDecided:
            _log.info("approval_decided_meanwhile", approval_id=approval.id)


def _status(word: ApprovalWord) -> QuestionStatus:
    return "approved" if word == "approve" else "denied"
