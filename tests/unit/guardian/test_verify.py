"""Export and verify: what was recorded can be checked by anyone with the key, and no byte of it changed unseen."""

import asyncio
import sqlite3
import tempfile
from functools import cache
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.guardian.kit import KEYRING, MESSAGE, STRANGERS, Agent, House, greeted, house, running

from turnkeeper.acs import Keyring, sign_response
from turnkeeper.guardian.auditing import Severity
from turnkeeper.guardian.export import ExportMalformed, export_lines, parse_line
from turnkeeper.guardian.ports import PlatformCounts
from turnkeeper.guardian.verify import MAX_FINDINGS, VerifyReport, verify_export, verify_rows, verify_stored
from turnkeeper.store.chain_reader import SqliteChainReader


async def a_session(here: House) -> Agent:
    """A session with a turn, a refusal and an end."""
    agent = await greeted(here)
    await agent.step("sessionStart", {})
    await agent.turn_start("t")
    await agent.step("userMessage", MESSAGE, turn_id="t")
    await agent.tool("t")
    await agent.refused("userMessage", {"content": []}, turn_id="t")
    await agent.turn_end("t", step_count=2, tool_call_count=1)
    await agent.step("sessionEnd", {"reason": "completed"})
    return agent


def lines_of(path: Path, session_id: str) -> list[bytes]:
    with SqliteChainReader(path) as reader:
        return list(export_lines(reader, session_id))


@cache
def exported() -> tuple[bytes, ...]:
    """The lines of one whole session, recorded once."""

    async def main() -> tuple[bytes, ...]:
        with tempfile.TemporaryDirectory() as folder:
            async with house(Path(folder)) as here:
                agent = await a_session(here)
                return tuple(lines_of(here.path, agent.session_id))

    return asyncio.run(main())


def verified(lines: list[bytes] | tuple[bytes, ...], keyring: Keyring = KEYRING) -> VerifyReport:
    return verify_export(lines, keyring)


def codes(report: VerifyReport, severity: Severity = Severity.BREAK) -> set[str]:
    return {found.code for found in report.findings if found.severity is severity}


def changed(number: int, member: str, change: dict[str, object]) -> list[bytes]:
    """The export with members of one line's document replaced."""
    lines = list(exported())
    line = orjson.loads(lines[number])
    line[member] |= change
    lines[number] = orjson.dumps(line) + b"\n"
    return lines


def test_an_export_has_exactly_four_members_and_verifies_offline(tmp_path: Path) -> None:
    for line in exported():
        assert list(orjson.loads(line)) == ["request", "response", "entry", "turn_id"]
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
    report = verified(exported())
    assert report.findings == ()
    (session,) = report.sessions
    assert (session.rows, session.entries, session.closed) == (8, 6, True)
    assert [(turn.turn_id, turn.outcome, turn.steps, turn.tool_calls) for turn in session.turns] == [
        ("t", "completed", 2, 1)
    ]


def test_requests_and_answers_are_exported_as_they_were_sent(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here)
        lines = lines_of(here.path, agent.session_id)
        for line, request, answer in zip(lines, agent.sent, agent.answers, strict=True):
            assert line.startswith(b'{"request":' + request + b',"response":' + answer + b',"entry":')

    running(tmp_path, work)


def test_a_request_that_was_sent_over_several_lines_becomes_one_line(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        body = orjson.dumps(orjson.loads(agent.body("steps/userMessage", MESSAGE)), option=orjson.OPT_INDENT_2)
        await agent.post(body)
        lines = lines_of(here.path, agent.session_id)
        assert len(lines) == 2
        assert verified(lines).intact

    running(tmp_path, work)


@settings(max_examples=300)
@given(st.data())
def test_no_byte_of_an_export_can_change_without_a_finding(data: st.DataObject) -> None:
    lines = list(exported())
    number = data.draw(st.integers(0, len(lines) - 1))
    at = data.draw(st.integers(0, len(lines[number]) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != lines[number][at]))
    line = bytearray(lines[number])
    line[at] = byte
    # White space between tokens says nothing.
    if orjson_equal(bytes(line), lines[number]):
        return
    lines[number] = bytes(line)
    assert not verified(lines).intact


def orjson_equal(one: bytes, other: bytes) -> bool:
    try:
        return bool(orjson.loads(one) == orjson.loads(other))
    except orjson.JSONDecodeError:
        return False


@given(st.integers(0, 6))
def test_no_row_with_an_entry_can_be_left_out(number: int) -> None:
    lines = list(exported())
    cut = lines[:number] + lines[number + 1 :]
    chained = orjson.loads(lines[number])["entry"] is not None
    assert verified(cut).intact is (not chained and number > 0)


@given(st.permutations(range(8)))
def test_rows_in_another_order_are_found(order: list[int]) -> None:
    lines = exported()
    chained = [number for number in order if orjson.loads(lines[number])["entry"] is not None]
    report = verified([lines[number] for number in order])
    assert report.intact is (chained == sorted(chained) and order[0] == 0)


def test_a_cut_tail_shows_against_a_witnessed_head_only() -> None:
    lines = exported()
    head = orjson.loads(lines[-1])["entry"]["entry_hash"]
    session_id = orjson.loads(lines[0])["request"]["params"]["metadata"]["session_id"]
    assert verified(lines[:-1]).intact
    report = verify_export(lines[:-1], KEYRING, witnessed_heads={session_id: frozenset({head})})
    assert codes(report) == {"witnessed_head_missing"}
    assert verify_export(lines, KEYRING, witnessed_heads={session_id: frozenset({head})}).intact


def test_a_lost_session_shows_against_a_witnessed_head() -> None:
    report = verify_export([], KEYRING, witnessed_heads={"lost": frozenset({"0" * 64})})
    assert codes(report) == {"session_missing"}


def test_the_wrong_secret_proves_nothing() -> None:
    assert codes(verified(exported(), STRANGERS)) == {"request_signature_invalid"}


def test_an_answer_that_lies_about_a_turn_is_found_although_it_is_signed() -> None:
    lines = list(exported())
    line = orjson.loads(lines[6])
    line["request"]["params"]["payload"]["step_count"] = 9
    assert "answer_disagrees" in codes(verified([*lines[:6], orjson.dumps(line), lines[7]]))


def test_a_signed_answer_that_publishes_another_hash_is_found() -> None:
    lines = list(exported())
    line = orjson.loads(lines[4])
    session_id = line["request"]["params"]["metadata"]["session_id"]
    line["response"]["result"]["chain_hash"] = "0" * 64
    line["response"] = sign_response(line["response"], KEYRING.session_key("default", session_id))
    lines[4] = orjson.dumps(line)
    assert codes(verified(lines)) == {"chain_hash_differs"}


@pytest.mark.parametrize(
    ("number", "member", "change", "code"),
    [
        (1, "entry", {"timestamp": "2001-01-01T00:00:00Z"}, "chain_broken"),
        (1, "entry", {"previous_hash": "0" * 64}, "chain_broken"),
        (1, "entry", {"extra": 1}, "entry_differs"),
        (3, "response", {"id": "other"}, "answer_not_bound"),
        (3, "request", {"id": 7}, "request_signature_invalid"),
    ],
)
def test_what_is_changed_is_named(number: int, member: str, change: dict[str, object], code: str) -> None:
    assert code in codes(verified(changed(number, member, change)))


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"null", b'{"request":1}', b"\xff", exported()[0][:-9]])
def test_a_line_that_is_none_is_a_finding_and_the_rest_is_still_read(line: bytes) -> None:
    with pytest.raises(ExportMalformed):
        parse_line(line)
    report = verified([*exported(), line])
    assert codes(report) == {"line_unreadable"}
    assert report.sessions[0].rows == 8


def test_what_an_agent_did_wrong_is_a_notice_and_no_break(tmp_path: Path) -> None:
    async def work(here: House) -> VerifyReport:
        agent = await greeted(here)
        await agent.turn_end("t")
        await agent.turn_start("t")
        await agent.tool("u")
        await agent.turn_end("t", step_count=7)
        await agent.turn_start("v")
        return verified(lines_of(here.path, agent.session_id))

    report = running(tmp_path, work)
    assert report.intact
    assert codes(report, Severity.NOTICE) == {
        "turn_mismatch",
        "turn_id_foreign",
        "step_count_mismatch",
        "turn_open",
    }


@pytest.mark.parametrize(
    ("stated", "intact"),
    [
        ({"t": (2, 1)}, True),
        ({"t": (None, None)}, True),
        ({"t": (3, 1)}, False),
        ({"t": (2, 0)}, False),
        ({"gone": (0, 0)}, False),
    ],
)
def test_the_platforms_own_counts_are_compared(stated: PlatformCounts, intact: bool) -> None:
    rows = [parse_line(line) for line in exported()]
    session_id = orjson.loads(exported()[0])["request"]["params"]["metadata"]["session_id"]
    report = verify_rows(rows, KEYRING, session_id=session_id, platform_counts=stated)
    assert report.intact is intact


def store_report(here: House, agent: Agent) -> VerifyReport:
    with SqliteChainReader(here.path) as reader:
        (summary,) = [found for found in reader.sessions(limit=9) if found.session_id == agent.session_id]
        return verify_stored(reader, summary, KEYRING)


def test_a_store_is_verified_beside_a_running_guardian(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here)
        assert store_report(here, agent).findings == ()

    running(tmp_path, work)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("UPDATE steps SET request = CAST(request || ' ' AS BLOB) WHERE recorded = 2", "request_digest_differs"),
        ("UPDATE steps SET response = CAST(response || ' ' AS BLOB) WHERE recorded = 2", "response_digest_differs"),
        ("DELETE FROM steps WHERE recorded = 6", "row_missing"),
        ("DELETE FROM steps WHERE recorded = 8", "witnessed_head_missing"),
        ("UPDATE steps SET turn_id = 'u' WHERE recorded = 4", "turn_id_differs"),
        ("UPDATE steps SET entry = NULL, chain_hash = NULL WHERE recorded = 8", "entry_missing"),
    ],
)
def test_damage_in_the_store_is_found(tmp_path: Path, damage: str, code: str) -> None:
    async def work(here: House) -> set[str]:
        agent = await a_session(here)
        with sqlite3.connect(here.path) as connection:
            connection.execute(damage)
        connection.close()
        return codes(store_report(here, agent))

    assert code in running(tmp_path, work)


def test_erased_content_leaves_a_chain_that_still_verifies(tmp_path: Path) -> None:
    async def work(here: House) -> VerifyReport:
        agent = await a_session(here)
        with sqlite3.connect(here.path) as connection:
            connection.execute("UPDATE steps SET request = NULL, response = NULL WHERE recorded = 4")
        connection.close()
        assert orjson.loads(lines_of(here.path, agent.session_id)[3])["request"] is None
        return store_report(here, agent)

    report = running(tmp_path, work)
    assert report.intact
    assert codes(report, Severity.NOTICE) == {"request_erased", "response_erased"}
    assert report.sessions[0].entries == 6


def test_several_sessions_may_stand_in_one_file(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agents = [await a_session(here) for _ in range(2)]
        mixed = [
            line
            for pair in zip(*(lines_of(here.path, agent.session_id) for agent in agents), strict=True)
            for line in pair
        ]
        report = verified(mixed)
        assert report.findings == ()
        assert len(report.sessions) == 2

    running(tmp_path, work)


def test_findings_are_bounded_and_notices_never_hide_a_break() -> None:
    broken = orjson.dumps({"request": None, "response": None, "entry": None, "turn_id": "t"})
    report = verified([exported()[0], *([broken] * (MAX_FINDINGS + 5)), b"not a line"])
    assert len(report.findings) <= 2 * MAX_FINDINGS
    assert report.omitted > 0
    assert "line_unreadable" in codes(report)


def test_a_finding_says_where() -> None:
    report = verified(changed(3, "response", {"id": "other"}))
    found = next(found for found in report.findings if found.code == "answer_not_bound")
    assert found.row == 4
