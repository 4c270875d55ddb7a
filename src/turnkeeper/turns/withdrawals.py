"""Questions taken back from the Guardian (contract 2.5; ACS 9): those of turns that ended or went another way.

Answers for an operator's list of open questions that shows none that nobody waits for. What is to be taken back stands
in the store since the wait stopped; a Guardian that cannot be reached is told later, one that keeps no questions of
ours is told nothing.
"""

from typing import Final

import structlog

from turnkeeper.turns.approval_desk import GuardianQuestions, QuestionRefused, QuestionsUnreachable
from turnkeeper.turns.approvals import AskedStep
from turnkeeper.turns.ports import PauseStore

WITHDRAWN_IN_ONE_ROUND: Final = 50

_log = structlog.get_logger(__name__)


class Withdrawals:
    """What one worker takes back, for all of them."""

    def __init__(self, store: PauseStore, questions: GuardianQuestions | None) -> None:
        self._store = store
        self._questions = questions

    async def settle(self) -> None:
        """One round. Ends early where the Guardian cannot be reached."""
        for asked in await self._store.withdrawals(WITHDRAWN_IN_ONE_ROUND):
            try:
                await self._withdraw(asked)
            except QuestionsUnreachable as error:
                _log.info("question_not_withdrawn", request_id=asked.request_id, error=error.message)
                return
            await self._store.forget_withdrawal(asked)

    async def _withdraw(self, asked: AskedStep) -> None:
        if self._questions is None:
            return
        try:
            await self._questions.withdraw(asked.session_id, asked.request_id)
        except QuestionRefused as error:
            # It was answered meanwhile, or our key may not speak for whoever was asked.
            _log.info("question_stays", request_id=asked.request_id, reason=error.message)
