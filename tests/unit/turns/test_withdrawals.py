"""Questions of turns that do not wait any more are taken back from the Guardian, whatever the Guardian says to it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.turns.rig import BY_USER, DEADLINE_S, Rig, rig
from tests.unit.turns.test_pauses import ASK, COLD, WARM, YES, Calls, paused

from turnkeeper.turns import payloads
from turnkeeper.turns.approval_desk import Question, QuestionRefused, QuestionsUnreachable
from turnkeeper.turns.approvals import ApprovalAnswer, AskedStep
from turnkeeper.turns.withdrawals import Withdrawals


class Questions:
    """A Guardian's questions that nobody has answered; keeps which of them were taken back."""

    def __init__(self, error: type[QuestionRefused | QuestionsUnreachable] | None = None) -> None:
        self.error = error
        self.withdrawn: list[AskedStep] = []

    async def question(self, session_id: str, request_id: str) -> Question | None:
        return Question("pending")

    async def answer(self, session_id: str, request_id: str, answer: ApprovalAnswer) -> None:
        """Taken."""

    async def withdraw(self, session_id: str, request_id: str) -> None:
        if self.error is not None:
            raise self.error("not now")
        self.withdrawn.append(AskedStep(session_id, request_id))


async def canceled_while_waiting(made: Rig) -> AskedStep:
    """The question of a turn that was canceled."""
    made.guardian.next(payloads.TOOL_CALL_REQUEST, ASK)
    turn_id = await made.post(await made.session())
    approval = await paused(made, turn_id, parked=made.bench.settings is COLD)
    await made.store.cancel_turn(turn_id, mode="graceful", by=BY_USER)
    await made.ended(turn_id)
    assert approval.call.request_id is not None
    return AskedStep(approval.session_id, approval.call.request_id)


@pytest.mark.parametrize("settings", [WARM, COLD], ids=["held", "parked"])
def test_a_worker_takes_back_what_a_canceled_turn_had_asked(tmp_path: Path, settings: object) -> None:
    async def main() -> None:
        questions = Questions()
        async with rig(tmp_path, Calls(), settings=WARM if settings is WARM else COLD, start=False) as made:
            made.bench = replace(made.bench, questions=questions)
            made.again()
            made.work()
            asked = await canceled_while_waiting(made)
            async with asyncio.timeout(DEADLINE_S):
                with made.wakeups.watch("nothing") as watch:
                    while await made.store.withdrawals(10):
                        await watch.wait(timeout_ms=50)
            assert questions.withdrawn == [asked]

    asyncio.run(main())


def test_a_guardian_that_cannot_be_reached_is_told_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Calls(), settings=COLD) as made:
            asked = await stopped(made)
            questions = Questions(QuestionsUnreachable)
            await Withdrawals(made.store, questions).settle()
            assert await made.store.withdrawals(10) == (asked,)
            questions.error = None
            await Withdrawals(made.store, questions).settle()
            assert (questions.withdrawn, await made.store.withdrawals(10)) == ([asked], ())

    asyncio.run(main())


@pytest.mark.parametrize("questions", [Questions(QuestionRefused), None], ids=["refused", "keeps none"])
def test_a_guardian_that_will_not_hear_of_it_is_told_once(tmp_path: Path, questions: Questions | None) -> None:
    async def main() -> None:
        async with rig(tmp_path, Calls(), settings=COLD) as made:
            await stopped(made)
            await Withdrawals(made.store, questions).settle()
            assert await made.store.withdrawals(10) == ()

    asyncio.run(main())


def test_the_first_ask_under_a_remembered_grant_is_taken_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Calls(), settings=COLD) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ASK)
            session = await made.session()
            first = await made.post(session)
            await made.store.decide_approval(
                (await paused(made, first, parked=True)).id, replace(YES, remember="session")
            )
            await made.ended(first)
            await made.stop()
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ASK)
            second = await made.post(session)
            taken_back = await asks(made, second)
            assert await made.store.withdrawals(10) == taken_back

    asyncio.run(main())


async def asks(made: Rig, turn_id: str) -> tuple[AskedStep, ...]:
    """The first step of the turn's call, once a worker without any chores but the turn has ended it."""
    made.bench = replace(made.bench, settings=replace(made.bench.settings, poll_ms=600_000))
    made.again()
    made.work()
    turn = await made.ended(turn_id)
    assert turn.status == "completed"
    steps = await made.store.steps(turn.session_id, turn_id=turn_id)
    asked = [step for step in steps if step.method == payloads.TOOL_CALL_REQUEST and step.decision == "ask"]
    return tuple(AskedStep(step.session_id, step.request_id) for step in asked)


async def stopped(made: Rig) -> AskedStep:
    """The question of a turn that was canceled, with nobody left to take it back."""
    made.guardian.next(payloads.TOOL_CALL_REQUEST, ASK)
    turn_id = await made.post(await made.session())
    approval = await paused(made, turn_id, parked=True)
    await made.stop()
    await made.store.cancel_turn(turn_id, mode="graceful", by=BY_USER)
    assert approval.call.request_id is not None
    return AskedStep(approval.session_id, approval.call.request_id)
