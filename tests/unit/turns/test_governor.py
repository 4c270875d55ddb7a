"""Steps on a bad wire: asked once, decided once, delivered once in effect, never doubted into an ALLOW."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.turns.rig import KEYRING, Rig, rig

from turnkeeper.acs import AcsErrorCode, Marks
from turnkeeper.ids import RandomIds
from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.testing.scripted_guardian import ALLOW, Fault, ScriptedGuardian, SignedError, Unwritten, deny
from turnkeeper.turns import endings, payloads
from turnkeeper.turns.exchange import Exchange, Party
from turnkeeper.turns.governor import Governor, GovernorSettings
from turnkeeper.turns.model import Claim, Draft, NewStep, Step
from turnkeeper.turns.rulings import Ruling

SETTINGS = GovernorSettings(decision_timeout_ms=1_000, first_backoff_ms=50, max_backoff_ms=200)
ANSWERED = [Fault.LOSE_ANSWER, Fault.DOUBLE]
UNANSWERED = [Fault.LOSE_REQUEST, Fault.GARBAGE, Fault.UNSIGNED, Fault.OTHER_ANSWER]


@dataclass(slots=True)
class Table:
    """One claimed turn and the governor that asks for it; time passes only where the governor waits."""

    made: Rig
    claim: Claim
    clock: FakeClock
    party: Party

    @property
    def guardian(self) -> ScriptedGuardian:
        return self.made.guardian

    @property
    def governor(self) -> Governor:
        return self.made.bench.governor

    async def ask(self, method: str = payloads.USER_MESSAGE) -> Ruling:
        in_window = method not in {payloads.TURN_START, payloads.AGENT_TRIGGER}

        def write(marks: Marks) -> str:
            if method == payloads.TURN_START:
                return payloads.turn_start(self.claim.turn.id)
            return payloads.user_message(marks, "hi")

        step = Draft(self.made.bench.ids.uuid(), method, write, in_window, self.claim.turn.id)
        return await self.governor.ask(self.party, step, self.claim.fence)

    async def open(self) -> None:
        await self.governor.greet(self.party)
        assert (await self.ask(payloads.TURN_START)).allowed

    async def end(self) -> None:
        await self.made.store.end(self.claim.fence, endings.unpaid(self.claim.turn))

    async def deliver(self) -> bool:
        return await self.governor.deliver(self.party.session_id)

    async def steps(self) -> list[Step]:
        return list(await self.made.store.steps(self.party.session_id))


@asynccontextmanager
async def table(tmp_path: Path, *, shows_recorded: bool = True) -> AsyncGenerator[Table]:
    clock = FakeClock(autojump=True)
    async with rig(tmp_path, clock=clock, waiter=clock, start=False, governor=SETTINGS) as made:
        if not shows_recorded:
            made.guardian = ScriptedGuardian(KEYRING, shows_recorded=False)
            ids = RandomIds(clock)
            exchange = Exchange(made.guardian, KEYRING, "platform", clock=clock, ids=ids, waiter=clock)
            foreign = Governor(made.store, exchange, clock=clock, waiter=clock, settings=SETTINGS)
            object.__setattr__(made.bench, "governor", foreign)
        await made.post(await made.session())
        claim = await made.store.claim("wrk", slot=True)
        assert claim is not None
        yield Table(made, claim, clock, Party(claim.session.id, claim.agent.id))


@pytest.mark.parametrize("fault", [*ANSWERED, *UNANSWERED])
def test_one_fault_on_the_wire_costs_time_and_nothing_else(tmp_path: Path, fault: Fault) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            at.guardian.fail(payloads.USER_MESSAGE, fault)
            assert (await at.ask()).kind == "allowed"
            assert at.guardian.written().count(payloads.USER_MESSAGE) == 1

    asyncio.run(main())


@pytest.mark.parametrize("method", [payloads.TURN_START, payloads.USER_MESSAGE])
def test_a_denial_for_want_of_a_place_to_write_it_is_an_outage_and_asked_again(tmp_path: Path, method: str) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.governor.greet(at.party)
            at.guardian.next(method, Unwritten(), Unwritten("overloaded"))
            assert (await at.ask(method)).kind == "allowed"
            assert len({send.request_id for send in at.guardian.received if send.method == method}) == 1
            assert at.guardian.written().count(method) == 1

    asyncio.run(main())


def test_a_guardian_that_cannot_write_for_too_long_has_not_decided_and_its_pairs_balance_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.governor.greet(at.party)
            at.guardian.always(payloads.TURN_START, Unwritten())
            ruling = await at.ask(payloads.TURN_START)
            assert (ruling.kind, ruling.allowed, ruling.delivered) == ("undecided", False, True)
            await at.made.store.end(at.claim.fence, endings.no_decision_at_front(at.claim.turn, "t", turn_started=True))
            at.guardian.always(payloads.TURN_START, ALLOW)
            assert await at.deliver()
            assert at.guardian.written(at.claim.turn.id) == [payloads.TURN_START, payloads.TURN_END]

    asyncio.run(main())


def test_every_send_of_a_step_has_its_own_nonce_time_and_the_same_id(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            at.guardian.fail(payloads.USER_MESSAGE, Fault.GARBAGE, Fault.LOSE_ANSWER)
            await at.ask()
            sends = [envelope for envelope in at.guardian.received if envelope.method == payloads.USER_MESSAGE]
            assert len(sends) == 3
            assert len({send.request_id for send in sends}) == 1
            assert len({send.nonce for send in sends}) == len({send.timestamp for send in sends}) == 3

    asyncio.run(main())


def test_a_denial_whose_answer_was_lost_stays_a_denial(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            at.guardian.next(payloads.USER_MESSAGE, deny("no"))
            at.guardian.fail(payloads.USER_MESSAGE, Fault.LOSE_ANSWER)
            assert (await at.ask()).kind == "denied"

    asyncio.run(main())


def test_a_lost_allow_that_cannot_be_shown_allows_nothing_and_is_counted(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path, shows_recorded=False) as at:
            await at.open()
            at.guardian.fail(payloads.USER_MESSAGE, Fault.LOSE_ANSWER)
            ruling = await at.ask()
            assert (ruling.allowed, ruling.kind, ruling.delivered) == (False, "undecided", True)
            counts = await at.made.store.step_counts(at.party.session_id, at.claim.turn.id)
            assert counts.step_count == 1

    asyncio.run(main())


@pytest.mark.parametrize("fault", UNANSWERED)
def test_an_answer_that_never_holds_is_no_decision_at_the_deadline(tmp_path: Path, fault: Fault) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            at.guardian.fail(payloads.USER_MESSAGE, *[fault] * 100)
            begun_ms = at.clock.monotonic_ms()
            assert (await at.ask()).kind == "undecided"
            assert at.clock.monotonic_ms() - begun_ms >= SETTINGS.decision_timeout_ms

    asyncio.run(main())


@pytest.mark.parametrize(
    "code",
    [
        AcsErrorCode.INVALID_REQUEST,
        AcsErrorCode.METHOD_NOT_FOUND,
        AcsErrorCode.INVALID_PARAMS,
        AcsErrorCode.CAPABILITY_NOT_NEGOTIATED,
    ],
)
def test_a_permanent_refusal_is_taken_at_once_and_allows_nothing(tmp_path: Path, code: AcsErrorCode) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            at.guardian.always(payloads.USER_MESSAGE, SignedError(code))
            ruling = await at.ask()
            assert (ruling.allowed, ruling.kind) == (False, "refused")
            sends = [envelope.method for envelope in at.guardian.received]
            assert sends.count(payloads.USER_MESSAGE) == 1

    asyncio.run(main())


def test_a_fault_of_the_guardian_is_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            errors = (SignedError(AcsErrorCode.INTERNAL_ERROR), SignedError(AcsErrorCode.TIMESTAMP_OUT_OF_WINDOW))
            at.guardian.next(payloads.USER_MESSAGE, errors[0])
            assert (await at.ask()).allowed

    asyncio.run(main())


def test_an_unknown_fate_is_resolved_before_the_next_step_is_sent(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            at.guardian.fail(payloads.USER_MESSAGE, *[Fault.LOSE_ANSWER] * 100)
            assert (await at.ask()).kind == "undecided"
            at.guardian.heal()
            assert (await at.ask(payloads.AGENT_RESPONSE)).allowed
            sends = [envelope.method for envelope in at.guardian.received]
            assert sends[-2:] == [payloads.USER_MESSAGE, payloads.AGENT_RESPONSE]
            assert await at.made.store.pending_steps(at.party.session_id) == ()

    asyncio.run(main())


def test_a_step_that_could_not_be_sent_in_its_time_is_never_sent(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            at.guardian.down = True
            await at.ask()
            ruling = await at.ask(payloads.AGENT_RESPONSE)
            assert (ruling.kind, ruling.delivered) == ("undecided", False)
            at.guardian.heal()
            await at.end()
            assert await at.deliver()
            assert payloads.AGENT_RESPONSE not in at.guardian.written()

    asyncio.run(main())


def test_a_turn_end_waits_out_a_guardian_that_is_down_and_keeps_its_payload(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            await at.end()
            at.guardian.down = True
            assert not await at.deliver()
            frozen = (await at.steps())[-1].payload_json
            at.clock.advance(360_000)
            at.guardian.heal()
            at.guardian.fail(payloads.TURN_END, Fault.LOSE_ANSWER)
            assert not await at.deliver()
            assert await at.deliver()
            assert at.guardian.written().count(payloads.TURN_END) == 1
            assert (await at.steps())[-1].payload_json == frozen

    asyncio.run(main())


def test_a_turn_end_that_is_refused_for_good_is_a_dead_letter_and_frees_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            await at.end()
            at.guardian.always(payloads.TURN_END, SignedError(AcsErrorCode.INVALID_PARAMS))
            assert await at.deliver()
            (dead,) = await at.made.store.dead_letters(10)
            assert (dead.method, dead.error_code) == (payloads.TURN_END, AcsErrorCode.INVALID_PARAMS)
            events = await at.made.store.events(at.party.session_id, after=0, limit=100)
            assert events[-1].type == "guardian.dead_letter"
            assert await at.made.store.pending_steps(at.party.session_id) == ()

    asyncio.run(main())


def test_a_repeat_that_cannot_be_shown_is_a_dead_letter_and_no_delivery(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path, shows_recorded=False) as at:
            await at.open()
            await at.end()
            at.guardian.fail(payloads.TURN_END, Fault.LOSE_ANSWER)
            await at.deliver()
            assert await at.deliver()
            assert [step.method for step in await at.made.store.dead_letters(10)] == [payloads.TURN_END]

    asyncio.run(main())


def test_a_foreign_no_to_a_turn_end_is_recorded_and_ignored(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            await at.end()
            at.guardian.always(payloads.TURN_END, deny("I object"))
            assert await at.deliver()
            last = (await at.steps())[-1]
            assert (last.state, last.decision) == ("answered", "deny")

    asyncio.run(main())


def test_the_outbox_leaves_a_live_turns_step_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            step = NewStep("7d4d1e1c-0000-4000-8000-000000000000", payloads.USER_MESSAGE, "{}", True, at.claim.turn.id)
            await at.made.store.ask_step(at.party.session_id, step, at.claim.fence, ())
            assert await at.deliver()
            assert [left.request_id for left in await at.made.store.pending_steps(at.party.session_id)] == [
                step.request_id
            ]

    asyncio.run(main())


def test_a_step_too_large_to_be_shown_is_refused_without_being_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            text = "x" * SETTINGS.max_payload_bytes
            step = Draft(
                at.made.bench.ids.uuid(),
                payloads.USER_MESSAGE,
                lambda marks: payloads.user_message(marks, text),
                in_window=True,
                turn_id=at.claim.turn.id,
            )
            ruling = await at.governor.ask(at.party, step, at.claim.fence)
            assert (ruling.allowed, ruling.reason_codes) == (False, ("step_too_large",))
            assert payloads.USER_MESSAGE not in [one.method for one in await at.steps()]

    asyncio.run(main())


def test_the_last_answer_is_the_sessions_witnessed_head(tmp_path: Path) -> None:
    async def main() -> None:
        async with table(tmp_path) as at:
            await at.open()
            await at.ask()
            session = await at.made.store.session(at.party.session_id)
            assert session.witnessed_head == (await at.steps())[-1].chain_hash

    asyncio.run(main())


FAULTS = st.lists(st.sampled_from([*ANSWERED, *UNANSWERED]), max_size=4)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(start=FAULTS, message=FAULTS, response=FAULTS, end=FAULTS)
def test_whatever_the_wire_does_each_step_is_written_once_and_in_order(
    start: list[Fault], message: list[Fault], response: list[Fault], end: list[Fault]
) -> None:
    async def main(tmp_path: Path) -> None:
        async with table(tmp_path) as at:
            await at.governor.greet(at.party)
            order = [payloads.TURN_START, payloads.USER_MESSAGE, payloads.AGENT_RESPONSE, payloads.TURN_END]
            for method, faults in zip(order, (start, message, response, end), strict=True):
                at.guardian.fail(method, *faults)
            for method in order[:3]:
                assert (await at.ask(method)).allowed
            await at.end()
            while not await at.deliver():
                pass
            assert at.guardian.written() == order
            assert at.guardian.entries[-1].payload["step_count"] == 2

    with TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
