"""Hostile bodies at the in-process door: every one gets an answer, none a fault, and memory stays bounded."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.guardian.kit import IN_PROCESS, TOOL_CALL, Agent, House, engine, greeted, house, running

from turnkeeper.acs import AcsErrorCode, sign_request
from turnkeeper.clock import SystemClock
from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.testing.fake_clock import FakeClock

REGISTRY = {int(code) for code in AcsErrorCode}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)


def assert_answered(raw: bytes) -> None:
    """A batch has an answer for each of its requests, anything else has one."""
    answer = orjson.loads(raw)
    for each in cast("list[dict[str, Any]]", answer if isinstance(answer, list) else [answer]):
        assert_one_answer(each)


def assert_one_answer(answer: dict[str, Any]) -> None:
    assert answer["jsonrpc"] == "2.0"
    assert ("result" in answer) != ("error" in answer)
    if "error" in answer:
        assert answer["error"]["code"] in REGISTRY
        assert answer["error"]["code"] != AcsErrorCode.INTERNAL_ERROR
        assert isinstance(answer["error"]["data"]["reason"], str)
    else:
        assert "guardian_failed" not in answer["result"].get("reason_codes", [])


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def agent(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent with a session at a Guardian that lives as long as this module."""
    guardian = Guardian(
        store=SqliteGuardianStore(tmp_path_factory.mktemp("hostile") / "guardian.db"),
        engine=engine(),
        clock=FakeClock(),
    )

    async def start() -> Agent:
        await guardian.start()
        return await greeted(House(guardian, FakeClock(), Path()))

    yield runner.run(start())
    runner.run(guardian.stop())


@given(body=st.binary(max_size=200))
def test_any_bytes_get_an_answer(body: bytes, agent: Agent, runner: asyncio.Runner) -> None:
    assert_answered(runner.run(agent.guardian.answer(body, IN_PROCESS)))


@given(document=JSON)
def test_any_json_gets_an_answer(document: object, agent: Agent, runner: asyncio.Runner) -> None:
    body = orjson.dumps(document, option=orjson.OPT_PASSTHROUGH_DATETIME, default=str) if fits(document) else b"{}"
    assert_answered(runner.run(agent.guardian.answer(body, IN_PROCESS)))


def fits(document: object) -> bool:
    try:
        orjson.dumps(document)
    except TypeError:
        return False
    return True


MEMBERS = ("acs_version", "request_id", "timestamp", "nonce", "metadata", "payload", "signature", "tenant_id")


@settings(max_examples=300)
@given(member=st.sampled_from(MEMBERS), value=JSON, keep_signature=st.booleans())
def test_any_member_of_any_type_in_a_signed_request_gets_an_answer(
    member: str, value: object, keep_signature: bool, agent: Agent, runner: asyncio.Runner
) -> None:
    document = orjson.loads(agent.body("steps/toolCallRequest", TOOL_CALL))
    document["params"][member] = value
    if not fits(document):
        return
    if not keep_signature and member != "signature":
        document = signed(document, agent)
    assert_answered(runner.run(agent.guardian.answer(orjson.dumps(document), IN_PROCESS)))


def signed(document: dict[str, object], agent: Agent) -> dict[str, object]:
    try:
        return sign_request(document, agent.session.key)
    except TurnkeeperError:
        # What cannot be signed is sent as it is.
        return document


@settings(max_examples=300)
@given(
    hook=st.sampled_from(["turnStart", "turnEnd", "toolCallRequest", "userMessage", "subagentStart", "agentTrigger"]),
    payload=st.dictionaries(
        st.sampled_from(["turn_id", "outcome", "step_count", "tool", "arguments", "content", "triggered_by"]), JSON
    ),
    turn_id=st.none() | st.text(max_size=2_000),
)
def test_any_payload_under_a_good_signature_gets_an_answer(
    hook: str, payload: dict[str, object], turn_id: str | None, agent: Agent, runner: asyncio.Runner
) -> None:
    document = orjson.loads(agent.body(f"steps/{hook}", {}))
    document["params"]["payload"] = payload
    document["params"]["metadata"]["turn_id"] = turn_id
    if fits(document):
        body = orjson.dumps(signed(document, agent))
        assert_answered(runner.run(agent.guardian.answer(body, IN_PROCESS)))


@pytest.mark.parametrize(
    "rpc_id", ["", "x" * 100_000, 0, -1, 1.5, 1e300, 2**53, 2**70, -(2**63), 10**300, "\x00", "\u2028"]
)
def test_any_id_is_echoed(rpc_id: object, agent: Agent, runner: asyncio.Runner) -> None:
    text = f'{{"jsonrpc":"2.0","method":"system/ping","params":{{}},"id":{json_of(rpc_id)}}}'
    answer = orjson.loads(runner.run(agent.guardian.answer(text.encode(), IN_PROCESS)))
    assert answer["id"] == (float(rpc_id) if isinstance(rpc_id, int) and abs(rpc_id) >= 2**64 else rpc_id)


def json_of(value: object) -> str:
    return str(value) if isinstance(value, int) else orjson.dumps(value).decode()


@pytest.mark.parametrize(
    "value", ["", "A", "A" * 43, "=" * 44, "A" * 1_000_000, "é" * 44, "AAAA\n", "A" * 43 + "=", "A" * 42 + "B="]
)
def test_any_signature_value_is_refused_in_time(value: str, agent: Agent, runner: asyncio.Runner) -> None:
    document = orjson.loads(agent.body("steps/toolCallRequest", TOOL_CALL))
    document["params"]["signature"]["value"] = value
    raw = runner.run(agent.guardian.answer(orjson.dumps(document), IN_PROCESS))
    assert orjson.loads(raw)["error"]["code"] in (-32004, -32600)


def test_a_session_id_of_any_length_gets_an_answer(agent: Agent, runner: asyncio.Runner) -> None:
    for session_id in ("", "x", "x" * 500_000, agent.session_id.upper(), agent.session_id + "\n"):
        stranger = Agent(agent.guardian, agent.clock, session_id=session_id)
        assert_answered(runner.run(agent.guardian.answer(stranger.body("steps/turnStart", {}), IN_PROCESS)))


def test_deep_nesting_gets_an_answer(agent: Agent, runner: asyncio.Runner) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        for depth in (60, 70, 1_000, 100_000):
            body = (opening * depth + "1" + closing * depth).encode()
            assert_answered(runner.run(agent.guardian.answer(body, IN_PROCESS)))


def test_strangers_leave_nothing_in_memory_or_on_disk(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        for number in range(200):
            stranger = here.agent(agent_id=f"stranger-{number}")
            body = stranger.body("steps/toolCallRequest", TOOL_CALL)
            await here.guardian.answer(body[:-3] + b"AAA", IN_PROCESS)
            assert (await stranger.refused("toolCallRequest", TOOL_CALL)).reason == "session_unknown"
        assert here.guardian.cached_sessions == 0
        assert here.guardian.in_flight == 0

    running(tmp_path, work)


def test_an_agent_id_longer_than_the_limit_is_refused(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        answer = orjson.loads(
            await here.guardian.answer(here.agent(agent_id="a" * 1_025).body("handshake/hello", {}), IN_PROCESS)
        )
        assert cast("dict[str, dict[str, object]]", answer["error"])["data"]["reason"] == "identifier_too_long"

    running(tmp_path, work)


def test_the_real_clock_works_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, clock=cast("FakeClock", SystemClock())) as here:
            assert (await (await greeted(here)).tool()).decision == "allow"

    asyncio.run(main())
