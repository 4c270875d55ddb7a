"""One answer settles two records, whichever door it came through, and whatever breaks between them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.turns.rig import Rig, rig
from tests.unit.turns.test_pauses import ASK, COLD, NO, YES, Calls, paused

from turnkeeper.turns import payloads
from turnkeeper.turns.approval_desk import ApprovalDesk, Question, QuestionRefused, QuestionStatus
from turnkeeper.turns.approvals import Approval, ApprovalAnswer, ApprovalDecided


class Questions:
    """A Guardian's questions, all with one status; keeps what was answered."""

    def __init__(self, status: QuestionStatus | None = "pending", refuses: bool = False) -> None:
        self.status: QuestionStatus | None = status
        self.refuses = refuses
        self.answers: list[ApprovalAnswer] = []

    async def question(self, session_id: str, request_id: str) -> Question | None:
        return None if self.status is None else Question(self.status, "bob", "seen", "once")

    async def answer(self, session_id: str, request_id: str, answer: ApprovalAnswer) -> None:
        if self.refuses:
            raise QuestionRefused("somebody else is asked")
        self.answers.append(answer)

    async def withdraw(self, session_id: str, request_id: str) -> None:
        """Taken back."""


def with_question(tmp_path: Path, work: Callable[[Rig, Approval], Awaitable[None]]) -> None:
    """A turn that waits for an answer to the Guardian's question."""

    async def main() -> None:
        async with rig(tmp_path, Calls(), settings=COLD) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ASK)
            turn_id = await made.post(await made.session())
            await work(made, await paused(made, turn_id, parked=True))

    asyncio.run(main())


def test_an_answer_is_the_guardians_first(tmp_path: Path) -> None:
    async def work(made: Rig, asked: Approval) -> None:
        questions = Questions()
        answered = await ApprovalDesk(made.store, made.bench.clock, questions).decide(asked.id, YES)
        assert (answered.status, questions.answers) == ("approved", [YES])
        assert (await made.ended(asked.turn_id)).status == "completed"

    with_question(tmp_path, work)


def test_an_answer_that_the_guardian_refuses_is_none(tmp_path: Path) -> None:
    async def work(made: Rig, asked: Approval) -> None:
        with pytest.raises(QuestionRefused):
            await ApprovalDesk(made.store, made.bench.clock, Questions(refuses=True)).decide(asked.id, YES)
        assert (await made.store.approval(asked.id)).status == "pending"

    with_question(tmp_path, work)


def test_a_guardian_that_was_told_otherwise_wins(tmp_path: Path) -> None:
    async def work(made: Rig, asked: Approval) -> None:
        desk = ApprovalDesk(made.store, made.bench.clock, Questions("denied"))
        with pytest.raises(ApprovalDecided):
            await desk.decide(asked.id, YES)
        assert (await desk.decide(asked.id, NO)).status == "denied"
        assert await desk.decide(asked.id, NO) == await made.store.approval(asked.id)

    with_question(tmp_path, work)


def test_other_arguments_are_a_no_to_the_ones_that_were_asked_about(tmp_path: Path) -> None:
    async def work(made: Rig, asked: Approval) -> None:
        questions = Questions()
        changed = replace(YES, modified_input_json='{"command":"id"}')
        await ApprovalDesk(made.store, made.bench.clock, questions).decide(asked.id, changed)
        assert [answer.word for answer in questions.answers] == ["deny"]

    with_question(tmp_path, work)


@pytest.mark.parametrize(("status", "expected"), [("approved", "approved"), ("denied", "denied")])
def test_an_answer_given_to_the_guardian_is_adopted(tmp_path: Path, status: QuestionStatus, expected: str) -> None:
    async def work(made: Rig, asked: Approval) -> None:
        await ApprovalDesk(made.store, made.bench.clock, Questions(status)).adopt()
        adopted = await made.store.approval(asked.id)
        assert adopted.decided_by is not None
        assert (adopted.status, adopted.decided_by.type, adopted.decided_by.id) == (expected, "guardian", "bob")

    with_question(tmp_path, work)


@pytest.mark.parametrize("status", ["pending", "expired", None])
def test_a_question_without_an_answer_is_left_alone(tmp_path: Path, status: QuestionStatus | None) -> None:
    async def work(made: Rig, asked: Approval) -> None:
        await ApprovalDesk(made.store, made.bench.clock, Questions(status)).adopt()
        await ApprovalDesk(made.store, made.bench.clock, None).adopt()
        assert (await made.store.approval(asked.id)).status == "pending"

    with_question(tmp_path, work)
