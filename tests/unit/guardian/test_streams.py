"""Other streams of the same steps, held against the Guardian's record: a capture, and an agent's own audit log."""

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.guardian.kit import KEYRING, MESSAGE, STRANGERS, Agent, House, greeted, house

from turnkeeper.acs import Keyring, sign_response
from turnkeeper.client import ClientSettings, GuardianClient, Identity, InProcessTransport, StepDenied
from turnkeeper.guardian.auditing import Severity
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.client_stream import is_client_record, verify_client_stream
from turnkeeper.guardian.decision_audit import verify_decision_log
from turnkeeper.guardian.decisions import is_log_line, log_lines
from turnkeeper.guardian.export import export_lines
from turnkeeper.guardian.known_steps import KnownSteps, steps_of_archive, steps_of_export
from turnkeeper.guardian.retention import Retention, RetentionRules, steps_of
from turnkeeper.guardian.traffic import verify_traffic
from turnkeeper.guardian.verify import VerifyReport
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import parse_rules
from turnkeeper.store.archives import FolderArchives
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.store.retention import SqliteRetention

SECRET = b"d" * 32
NO_SHELL = b"""
version: 1
name: no-shell
default: allow
rules:
  - id: no-shell
    hooks: [toolCallRequest]
    when: 'true'
    decision: deny
    reasoning: No shell here.
"""


@dataclass(frozen=True)
class Recorded:
    """One session: as a wire showed it, as the agent says it was, and as the Guardian has it in each form."""

    capture: tuple[bytes, ...]
    told: tuple[bytes, ...]
    export: tuple[bytes, ...]
    archive: tuple[bytes, ...]
    log: tuple[bytes, ...]
    head: str

    @property
    def known(self) -> KnownSteps:
        """The Guardian's steps."""
        return KnownSteps(steps_of_export(self.export))


async def record(here: House) -> Recorded:
    capture: list[bytes] = []
    told: list[bytes] = []
    door = Door("in_process", KEYRING)

    async def wire(body: bytes) -> bytes:
        answer = await here.guardian.answer(body, door)
        capture.append(b'{"request":' + body + b',"response":' + answer + b"}\n")
        return answer

    client = GuardianClient(
        InProcessTransport(wire),
        Identity.from_secret("agent", SECRET),
        settings=ClientSettings(audit_decisions=True),
        audit=lambda one: told.append(orjson.dumps(dict(one.document)) + b"\n"),
        time=here.clock,
    )
    async with client as guardian, guardian.session() as session, session.turn() as turn:
        await turn.user_message("hello")
        with pytest.raises(StepDenied):
            async with turn.tool_call("shell", {"command": "ls"}):
                pass
    return kept(here, session.session_id, capture, told)


def kept(here: House, session_id: str, capture: list[bytes], told: list[bytes]) -> Recorded:
    """The Guardian's forms of a session; leaves the store without it."""
    store = SqliteRetention(here.path)
    with SqliteChainReader(here.path) as reader:
        export = tuple(export_lines(reader, session_id))
        summary = reader.session(session_id)
    assert summary is not None
    log = log_lines(steps_of(store, session_id, 99), KEYRING.session_key("default", session_id))
    log_now = tuple(log)
    archives = FolderArchives(here.path.parent)
    Retention(store, archives, lambda: KEYRING, RetentionRules(archive_after_ms=0)).archive(4 * 10**12)
    archive = archives.lines(f"{session_id}.acs.jsonl")
    assert archive is not None
    return Recorded(tuple(capture), tuple(told), export, tuple(archive), log_now, str(summary.progress.head))


@cache
def recorded() -> Recorded:
    async def main() -> Recorded:
        with tempfile.TemporaryDirectory() as folder:
            async with house(Path(folder), policy=CelEngine(parse_rules(NO_SHELL))) as here:
                return await record(here)

    return asyncio.run(main())


def codes(report: VerifyReport, severity: Severity = Severity.BREAK) -> list[str]:
    return [found.code for found in report.findings if found.severity is severity]


def changed(lines: tuple[bytes, ...], number: int, change: Mapping[str, object]) -> list[bytes]:
    """Lines with members of one of them replaced."""
    copy = list(lines)
    copy[number] = orjson.dumps(orjson.loads(copy[number]) | dict(change)) + b"\n"
    return copy


def record_of(method: str) -> int:
    """Where the agent tells of a step."""
    methods = [orjson.loads(line)["method"] for line in recorded().told]
    return methods.index(f"steps/{method}")


def test_a_capture_an_export_and_an_archive_of_one_session_tell_the_same() -> None:
    assert verify_traffic(recorded().capture, KEYRING).findings == ()
    assert verify_traffic(recorded().capture, KEYRING, recorded().known).findings == ()
    archived = KnownSteps(steps_of_archive(recorded().archive))
    assert verify_traffic(recorded().capture, KEYRING, archived).findings == ()


@settings(max_examples=300)
@given(st.data())
def test_no_byte_of_a_capture_can_change_without_a_finding(data: st.DataObject) -> None:
    lines = list(recorded().capture)
    number = data.draw(st.integers(0, len(lines) - 1))
    line = bytearray(lines[number])
    at = data.draw(st.integers(0, len(line) - 2))
    line[at] = data.draw(st.integers(0, 255).filter(lambda value: value != line[at]))
    if is_same(bytes(line), lines[number]):
        return
    lines[number] = bytes(line)
    report = verify_traffic(lines, KEYRING, recorded().known)
    assert not report.intact


def is_same(line: bytes, other: bytes) -> bool:
    """White space between tokens says nothing."""
    try:
        return orjson.loads(line) == orjson.loads(other)
    except orjson.JSONDecodeError:
        return False


def test_bodies_may_be_captured_as_texts() -> None:
    pairs = [orjson.loads(line) for line in recorded().capture]
    lines = [orjson.dumps({name: orjson.dumps(body).decode() for name, body in pair.items()}) for pair in pairs]
    assert verify_traffic(lines, KEYRING, recorded().known).intact


def test_a_capture_verified_with_another_key_is_found() -> None:
    assert "request_signature_invalid" in codes(verify_traffic(recorded().capture, STRANGERS))


def test_a_request_that_was_answered_twice_is_found() -> None:
    assert codes(verify_traffic([*recorded().capture, recorded().capture[2]], KEYRING)) == [
        "replay_answered",
        "replay_answered",
        "chain_hash_repeated",
    ]


def test_an_answer_that_the_guardian_did_not_record_is_found() -> None:
    pair = orjson.loads(recorded().capture[3])
    pair["response"]["result"]["decision"] = "deny"
    key = KEYRING.session_key("default", pair["request"]["params"]["metadata"]["session_id"])
    pair["response"] = sign_response(pair["response"], key)
    lines = changed(recorded().capture, 3, pair)
    assert verify_traffic(lines, KEYRING).intact
    assert codes(verify_traffic(lines, KEYRING, recorded().known)) == ["answer_differs"]


def test_a_step_that_the_export_has_lost_is_found() -> None:
    known = KnownSteps(steps_of_export(recorded().export[:-1]))
    assert codes(verify_traffic(recorded().capture, KEYRING, known)) == ["step_not_in_export"]


def test_a_step_that_was_not_captured_is_told() -> None:
    report = verify_traffic(recorded().capture[:-1], KEYRING, recorded().known)
    assert report.intact
    assert codes(report, Severity.NOTICE) == ["steps_not_captured"]


def test_a_request_without_an_answer_is_told() -> None:
    report = verify_traffic(changed(recorded().capture, 2, {"response": None}), KEYRING)
    assert (report.intact, codes(report, Severity.NOTICE)) == (True, ["answer_not_captured"])


@pytest.mark.parametrize("line", [b"no json\n", b'{"request":{}}\n', b'{"request":null,"response":null}\n'])
def test_a_line_that_is_no_exchange_is_found(line: bytes) -> None:
    assert codes(verify_traffic([line], KEYRING)) == ["line_unreadable"]


def test_an_agent_and_its_guardian_tell_the_same() -> None:
    assert all(is_client_record(orjson.loads(line)) for line in recorded().told)
    report = verify_client_stream(recorded().told, recorded().known)
    assert (report.findings, report.compared) == ((), 6)


def test_a_step_that_the_agent_does_not_tell_of_is_found() -> None:
    lines = list(recorded().told)
    del lines[record_of("toolCallRequest")]
    assert codes(verify_client_stream(lines, recorded().known)) == ["client_step_missing"]


def test_a_step_that_the_guardian_does_not_have_is_found() -> None:
    lines = changed(recorded().told, record_of("userMessage"), {"request_id": "invented"})
    assert codes(verify_client_stream(lines, recorded().known)) == ["guardian_step_missing", "client_step_missing"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"received": "allow"}, "decision_differs"),
        ({"chain_hash": "f" * 64}, "head_differs"),
        ({"outcome": "proceeded"}, "acted_against_decision"),
        ({"event": "head_mismatch"}, "agent_saw_head_mismatch"),
    ],
)
def test_what_the_agent_tells_otherwise_is_found(change: dict[str, object], code: str) -> None:
    lines = changed(recorded().told, record_of("toolCallRequest"), change)
    assert codes(verify_client_stream(lines, recorded().known)) == [code]


def test_an_agent_that_went_on_without_a_decision_is_found() -> None:
    undecided = {"event": "decision_failure", "outcome": "proceeded", "chain_hash": None}
    lines = changed(recorded().told, record_of("userMessage"), undecided)
    assert codes(verify_client_stream(lines, recorded().known)) == ["acted_without_decision"]


def test_an_agent_that_went_on_although_it_was_denied_late_is_found() -> None:
    undecided = {"event": "decision_failure", "outcome": "proceeded", "chain_hash": None}
    lines = changed(recorded().told, record_of("toolCallRequest"), undecided)
    assert codes(verify_client_stream(lines, recorded().known)) == ["acted_without_decision", "acted_against_decision"]


def test_an_agent_that_was_held_back_by_a_failure_is_content() -> None:
    lines = changed(recorded().told, record_of("userMessage"), {"event": "decision_failure", "outcome": "blocked"})
    assert verify_client_stream(lines, recorded().known).intact


def test_a_decision_log_has_no_content_and_verifies() -> None:
    text = b"".join(recorded().log)
    assert b"hello" not in text.replace(b"handshake/hello", b"")
    assert b"No shell here" not in text
    assert all(is_log_line(orjson.loads(line)) for line in recorded().log)
    report = verify_decision_log(recorded().log, KEYRING)
    assert report.findings == ()
    assert (report.sessions[0].head, report.sessions[0].closed) == (recorded().head, True)


@settings(max_examples=200)
@given(st.data())
def test_no_byte_of_a_decision_log_can_change_without_a_finding(data: st.DataObject) -> None:
    lines = list(recorded().log)
    number = data.draw(st.integers(0, len(lines) - 1))
    line = bytearray(lines[number])
    at = data.draw(st.integers(0, len(line) - 2))
    line[at] = data.draw(st.integers(0, 255).filter(lambda value: value != line[at]))
    if is_same(bytes(line), lines[number]):
        return
    lines[number] = bytes(line)
    assert not verify_decision_log(lines, KEYRING).intact


def test_a_line_cannot_be_taken_out_of_a_decision_log() -> None:
    for number in range(len(recorded().log) - 1):
        lines = [line for at, line in enumerate(recorded().log) if at != number]
        assert not verify_decision_log(lines, KEYRING).intact


def test_a_decision_log_under_another_key_is_found() -> None:
    assert set(codes(verify_decision_log(recorded().log, Keyring({})))) == {"decision_signature_invalid"}


def test_steps_that_were_asked_for_by_hand_are_captured_too() -> None:
    """A refusal has no entry; its capture still has to be signed."""

    async def main() -> VerifyReport:
        with tempfile.TemporaryDirectory() as folder:
            async with house(Path(folder)) as here:
                agent: Agent = await greeted(here)
                await agent.refused("userMessage", {"content": []})
                await agent.step("userMessage", MESSAGE)
                pairs = zip(agent.sent, agent.answers, strict=True)
                lines = [b'{"request":' + sent + b',"response":' + told + b"}" for sent, told in pairs]
                with SqliteChainReader(here.path) as reader:
                    known = KnownSteps(steps_of_export(export_lines(reader, agent.session_id)))
                return verify_traffic(lines, KEYRING, known)

    assert asyncio.run(main()).findings == ()
