"""The scripted Guardian keeps the promises of the real one that the platform leans on."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from turnkeeper.acs import AcsErrorCode, AnswerRejected, Keyring, ObservedSession, Refusal, ServerHello, Verdict
from turnkeeper.acs.handshake import build_client_hello
from turnkeeper.clock import SystemClock, render_time
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.ids import RandomIds
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import parse_rules
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.testing.scripted_guardian import Fault, ScriptedGuardian
from turnkeeper.turns import payloads
from turnkeeper.turns.ports import GuardianLink, GuardianUnreachable
from turnkeeper.wiring.doors import InProcessLink

KEYRING = Keyring({"platform": bytes(range(32))})
CLOCK = SystemClock()
IDS = RandomIds(CLOCK)
HELLO = build_client_hello(methods=payloads.METHODS_IMPLEMENTED, transports=("http",))


class Caller:
    """One session of an agent that talks to whatever Guardian there is."""

    def __init__(self, link: GuardianLink) -> None:
        self._link = link
        self._observed = ObservedSession.open(
            agent_id="agt_1", session_id=IDS.uuid(), keyring=KEYRING, key_id="platform"
        )

    async def send(self, method: str, payload: dict[str, object], **ids: str) -> Verdict | Refusal | ServerHello:
        request_id = ids.get("request_id") or IDS.uuid()
        body = self._observed.request(
            method,
            payload,
            request_id=request_id,
            timestamp=render_time(CLOCK.now()),
            nonce=ids.get("nonce") or IDS.uuid(),
        )
        return self._observed.answer(await self._link.exchange(body, timeout_ms=5_000), request_id=request_id)


@asynccontextmanager
async def guardian(kind: str, folder: Path) -> AsyncGenerator[GuardianLink]:
    if kind == "scripted":
        yield ScriptedGuardian(KEYRING)
        return
    rules = parse_rules(b"version: 1\nname: all\ndefault: allow\nrules: []\n")
    real = Guardian(store=SqliteGuardianStore(folder / "guardian.db"), engine=CelEngine(rules), clock=CLOCK)
    await real.start()
    try:
        yield InProcessLink(real, Door("in_process", KEYRING))
    finally:
        await real.stop()


@pytest.fixture(params=["scripted", "real"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_step_before_the_handshake_is_refused(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with guardian(kind, tmp_path) as link:
            answer = await Caller(link).send(payloads.SESSION_START, {})
            assert isinstance(answer, Refusal)
            assert answer.code == AcsErrorCode.CAPABILITY_NOT_NEGOTIATED

    asyncio.run(main())


def test_a_second_identical_hello_brings_back_the_terms(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with guardian(kind, tmp_path) as link:
            caller = Caller(link)
            hellos = [await caller.send("handshake/hello", HELLO) for _ in range(2)]
            terms = [hello.methods_evaluated for hello in hellos if isinstance(hello, ServerHello)]
            assert terms[0] == terms[1]
            assert set(payloads.OWN_METHODS) <= set(terms[0])

    asyncio.run(main())


def test_a_decision_has_the_head_of_a_chain_that_grows(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with guardian(kind, tmp_path) as link:
            caller = Caller(link)
            await caller.send("handshake/hello", HELLO)
            heads = [await caller.send(method, {}) for method in (payloads.SESSION_START,)]
            heads.append(await caller.send(payloads.AGENT_TRIGGER, {"trigger_type": "user_message"}))
            seen = {verdict.chain_hash for verdict in heads if isinstance(verdict, Verdict)}
            assert len(seen) == 2
            assert None not in seen

    asyncio.run(main())


def test_a_repeat_with_a_new_nonce_is_shown_what_was_recorded(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with guardian(kind, tmp_path) as link:
            caller, request_id = Caller(link), IDS.uuid()
            await caller.send("handshake/hello", HELLO)
            first = await caller.send(payloads.SESSION_START, {}, request_id=request_id)
            again = await caller.send(payloads.SESSION_START, {}, request_id=request_id)
            assert isinstance(first, Verdict)
            assert isinstance(again, Refusal)
            assert again.code == AcsErrorCode.REPLAY_DETECTED
            assert again.recorded is not None
            assert (again.recorded.decision, again.recorded.chain_hash) == (first.decision, first.chain_hash)

    asyncio.run(main())


def test_a_captured_copy_learns_nothing(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with guardian(kind, tmp_path) as link:
            caller, ids = Caller(link), {"request_id": IDS.uuid(), "nonce": IDS.uuid()}
            await caller.send("handshake/hello", HELLO)
            await caller.send(payloads.SESSION_START, {}, **ids)
            again = await caller.send(payloads.SESSION_START, {}, **ids)
            assert isinstance(again, Refusal)
            assert (again.code, again.recorded) == (AcsErrorCode.REPLAY_DETECTED, None)

    asyncio.run(main())


@pytest.mark.parametrize("fault", [Fault.GARBAGE, Fault.UNSIGNED, Fault.OTHER_ANSWER])
def test_a_broken_answer_of_the_script_is_one_that_the_agent_rejects(fault: Fault) -> None:
    async def main() -> None:
        scripted = ScriptedGuardian(KEYRING)
        scripted.fail("handshake/hello", fault)
        with pytest.raises(AnswerRejected):
            await Caller(scripted).send("handshake/hello", HELLO)

    asyncio.run(main())


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER])
def test_a_lost_exchange_of_the_script_is_an_unreachable_guardian(fault: Fault) -> None:
    async def main() -> None:
        scripted = ScriptedGuardian(KEYRING)
        scripted.fail("handshake/hello", fault)
        with pytest.raises(GuardianUnreachable):
            await Caller(scripted).send("handshake/hello", HELLO)

    asyncio.run(main())
