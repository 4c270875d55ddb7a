"""Retention: content goes, hashes and heads stay, and an archive proves what has left the store."""

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.guardian.kit import KEYRING, MESSAGE, STRANGERS, Agent, House, greeted, house, running

from turnkeeper.acs import AcsErrorCode, Keyring, Refusal
from turnkeeper.clock import epoch_ms
from turnkeeper.guardian.archive_audit import is_archive, verify_archive
from turnkeeper.guardian.auditing import Severity
from turnkeeper.guardian.ports import ArchivedSession, SessionSummary
from turnkeeper.guardian.retention import Retention, RetentionReport, RetentionRules
from turnkeeper.guardian.verify import VerifyReport, verify_stored
from turnkeeper.store.archives import FolderArchives
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.store.retention import SqliteRetention

HOUR_MS = 3_600_000
OLD = RetentionRules(erase_content_after_ms=HOUR_MS, archive_after_ms=HOUR_MS)


async def a_session(here: House, *, closed: bool = True) -> Agent:
    """A session with a turn, a refusal and, unless it goes on, an end."""
    agent = await greeted(here)
    await agent.step("sessionStart", {"intent": {"raw": "tidy up", "scope_mode": "strict"}})
    await agent.turn_start("t")
    await agent.step("userMessage", MESSAGE, turn_id="t")
    await agent.tool("t")
    await agent.refused("userMessage", {"content": []}, turn_id="t")
    await agent.turn_end("t", step_count=2, tool_call_count=1)
    if closed:
        await agent.step("sessionEnd", {"reason": "completed"})
    return agent


def retention(here: House, rules: RetentionRules = OLD) -> Retention:
    archives = FolderArchives(here.path.parent / "archives")
    return Retention(SqliteRetention(here.path), archives, lambda: KEYRING, rules, forget=here.guardian.forget)


def erase(here: House, rules: RetentionRules = OLD) -> RetentionReport:
    return retention(here, rules).erase(epoch_ms(here.clock.now()))


def archive(here: House, rules: RetentionRules = OLD) -> RetentionReport:
    return retention(here, rules).archive(epoch_ms(here.clock.now()))


def summary(here: House, session_id: str) -> SessionSummary:
    with SqliteChainReader(here.path) as reader:
        found = reader.session(session_id)
    assert found is not None
    return found


def verified(here: House, session_id: str, *heads: str) -> VerifyReport:
    with SqliteChainReader(here.path) as reader:
        return verify_stored(reader, summary(here, session_id), KEYRING, witnessed_heads=frozenset(heads))


def tombstone(here: House, session_id: str) -> ArchivedSession:
    with SqliteChainReader(here.path) as reader:
        found = reader.archived_session(session_id)
    assert found is not None
    return found


def lines_of(here: House, archived: ArchivedSession) -> list[bytes]:
    found = FolderArchives(here.path.parent / "archives").lines(archived.archive_file)
    assert found is not None
    return list(found)


def codes(report: VerifyReport, severity: Severity = Severity.BREAK) -> set[str]:
    return {found.code for found in report.findings if found.severity is severity}


def test_erased_content_is_gone_and_the_head_is_as_it_was(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here)
        before = summary(here, agent.session_id)
        here.clock.advance(HOUR_MS + 1)
        assert erase(here) == RetentionReport(erased_steps=8)
        assert summary(here, agent.session_id) == before
        report = verified(here, agent.session_id, str(before.progress.head))
        assert report.intact
        assert codes(report, Severity.NOTICE) == {"request_erased", "response_erased"}
        with SqliteChainReader(here.path) as reader:
            assert all(row.request is None and row.response is None for row in reader.rows(agent.session_id))

    running(tmp_path, work)


def test_content_that_is_not_old_enough_stays(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here, closed=False)
        here.clock.advance(HOUR_MS + 1)
        await agent.step("userMessage", MESSAGE)
        assert erase(here).erased_steps == 7
        assert erase(here).erased_steps == 0
        with SqliteChainReader(here.path) as reader:
            kept = [row.recorded for row in reader.rows(agent.session_id) if row.request is not None]
        assert kept == [8]
        assert verified(here, agent.session_id).intact

    running(tmp_path, work)


def test_a_session_goes_on_after_its_content_was_erased(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here, closed=False)
        here.clock.advance(HOUR_MS + 1)
        erase(here)
        here.guardian.forget(agent.session_id)
        answer = await agent.step("userMessage", MESSAGE)
        assert summary(here, agent.session_id).progress.head == answer.chain_hash
        assert verified(here, agent.session_id).intact

    running(tmp_path, work)


def test_a_run_erases_no_more_than_its_limit_and_says_that_there_is_more(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        for _ in range(2):
            await a_session(here)
        here.clock.advance(HOUR_MS + 1)
        few = RetentionRules(erase_content_after_ms=HOUR_MS, max_steps_per_run=5)
        runs = [erase(here, few) for _ in range(4)]
        assert [run.erased_steps for run in runs] == [5, 5, 5, 1]
        assert [run.more for run in runs] == [True, True, True, False]

    running(tmp_path, work)


def test_an_erased_answer_leaves_a_signed_decision_that_nobody_can_change(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here)
        here.clock.advance(HOUR_MS + 1)
        erase(here)
        with closing(sqlite3.connect(here.path)) as connection, connection:
            text = "SELECT decision_log FROM steps WHERE recorded = 4"
            record = orjson.loads(connection.execute(text).fetchone()[0])
            assert record["decision"] == "allow"
            connection.execute(
                "UPDATE steps SET decision_log = ? WHERE recorded = 4", (orjson.dumps(record | {"decision": "deny"}),)
            )
        assert codes(verified(here, agent.session_id)) == {"decision_signature_invalid"}

    running(tmp_path, work)


def test_a_signed_decision_of_another_row_does_not_pass(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here)
        here.clock.advance(HOUR_MS + 1)
        erase(here)
        with closing(sqlite3.connect(here.path)) as connection, connection:
            other = "(SELECT decision_log FROM steps WHERE recorded = 5)"
            connection.execute(f"UPDATE steps SET decision_log = {other} WHERE recorded = 4")
        assert codes(verified(here, agent.session_id)) == {"decision_differs"}

    running(tmp_path, work)


def test_an_archived_session_leaves_a_file_that_verifies_and_nothing_else(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here)
        head = summary(here, agent.session_id).progress.head
        here.clock.advance(HOUR_MS + 1)
        assert archive(here).archived_sessions == (agent.session_id,)
        archived = tombstone(here, agent.session_id)
        assert (archived.head, archived.recorded, archived.entries) == (head, 8, 6)
        report = verify_archive(lines_of(here, archived), KEYRING, archived=archived)
        assert report.findings == ()
        assert report.sessions[0].head == head
        with closing(sqlite3.connect(here.path)) as connection, connection:
            for table in ("sessions", "steps", "nonces", "turns", "findings", "lineage", "approvals"):
                assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)

    running(tmp_path, work)


def test_a_session_is_archived_after_its_content_was_erased(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here)
        here.clock.advance(HOUR_MS + 1)
        erase(here)
        archive(here)
        archived = tombstone(here, agent.session_id)
        report = verify_archive(lines_of(here, archived), KEYRING, archived=archived)
        assert report.intact
        assert report.sessions[0].head == archived.head

    running(tmp_path, work)


def test_open_and_recent_sessions_are_not_archived(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        await a_session(here, closed=False)
        here.clock.advance(HOUR_MS + 1)
        await a_session(here)
        assert archive(here) == RetentionReport()

    running(tmp_path, work)


@pytest.mark.parametrize("remembered", [True, False])
def test_an_archived_session_can_never_be_continued(tmp_path: Path, remembered: bool) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here)
        here.clock.advance(HOUR_MS + 1)
        archives = FolderArchives(tmp_path / "archives")
        store = SqliteRetention(here.path)
        service = Retention(store, archives, lambda: KEYRING, OLD)
        service.archive(epoch_ms(here.clock.now()))
        if not remembered:
            here.guardian.forget(agent.session_id)
        refused = await agent.step("userMessage", MESSAGE)
        assert refused.decision == "deny"
        assert refused.chain_hash is None
        if not remembered:
            assert refused.reason_codes == ("session_archived",)
        hello = await agent.hello()
        assert isinstance(hello, Refusal)
        assert (hello.code, hello.reason) == (AcsErrorCode.SESSION_REFUSED, "session_archived")
        with closing(sqlite3.connect(here.path)) as connection, connection:
            assert connection.execute("SELECT count(*) FROM steps").fetchone() == (0,)

    running(tmp_path, work)


def test_a_session_that_got_a_row_meanwhile_is_archived_by_the_next_run(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here)
        here.clock.advance(HOUR_MS + 1)
        store = SqliteRetention(here.path)
        (read,) = store.closed_sessions(epoch_ms(here.clock.now()), after="", limit=9)
        await agent.step("userMessage", MESSAGE)
        stale = ArchivedSession(
            agent.session_id, "a", "k", 1, 2, read.progress.head, read.progress.recorded, 0, 0, 0, "", ""
        )
        assert not store.bury(stale)
        here.clock.advance(HOUR_MS + 1)
        assert archive(here).archived_sessions == (agent.session_id,)

    running(tmp_path, work)


def test_rows_that_a_crash_left_of_an_archived_session_are_removed_by_the_next_run(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here)
        store = SqliteRetention(here.path)
        assert store.bury(ArchivedSession(agent.session_id, "a", "k", 1, 2, None, 8, 0, 0, 0, "", ""))
        assert store.buried(9) == [agent.session_id]
        archive(here)
        assert store.buried(9) == []
        assert store.steps(agent.session_id, after=0, limit=9) == []

    running(tmp_path, work)


def test_a_session_whose_key_is_not_there_stays_and_is_told(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await a_session(here)
        here.clock.advance(HOUR_MS + 1)
        no_keys = Retention(SqliteRetention(here.path), FolderArchives(tmp_path / "a"), lambda: Keyring({}), OLD)
        now = epoch_ms(here.clock.now())
        for report in (no_keys.erase(now), no_keys.archive(now)):
            assert report.problems[0].startswith(agent.session_id)
        assert verified(here, agent.session_id).findings == ()

    running(tmp_path, work)


@dataclass(frozen=True)
class Archive:
    """One archive, made once."""

    lines: tuple[bytes, ...]
    archived: ArchivedSession


@cache
def archived_once() -> Archive:
    async def main() -> Archive:
        with tempfile.TemporaryDirectory() as folder:
            async with house(Path(folder)) as here:
                agent = await a_session(here)
                here.clock.advance(HOUR_MS + 1)
                archive(here)
                archived = tombstone(here, agent.session_id)
                return Archive(tuple(lines_of(here, archived)), archived)

    return asyncio.run(main())


def test_an_archive_says_what_it_is_and_is_closed_by_a_seal() -> None:
    lines = [orjson.loads(line) for line in archived_once().lines]
    assert is_archive(archived_once().lines[0])
    assert not is_archive(archived_once().lines[1])
    assert [lines[0]["object"], lines[-1]["object"]] == ["guardian.archive", "guardian.archive.seal"]
    assert lines[0]["terms"]["provenance_producer"] == "none"
    assert lines[0]["intent"]["raw"] == "tidy up"
    assert (lines[-1]["records"], lines[-1]["turns"], lines[-1]["entries"]) == (8, 1, 6)


def test_another_key_finds_the_seal_invalid() -> None:
    assert "archive_seal_invalid" in codes(verify_archive(archived_once().lines, STRANGERS))


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_byte_of_an_archive_can_change_without_a_finding(data: st.DataObject) -> None:
    whole = bytearray(b"".join(archived_once().lines))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255).filter(lambda value: value != whole[at]))
    assert not verify_archive(bytes(whole).splitlines(keepends=True), KEYRING).intact


@given(st.data())
def test_an_archive_that_is_cut_anywhere_is_not_intact(data: st.DataObject) -> None:
    whole = b"".join(archived_once().lines)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert not verify_archive(cut.splitlines(keepends=True), KEYRING).intact


def test_lines_cannot_be_taken_out_added_or_exchanged() -> None:
    lines = list(archived_once().lines)
    assert not verify_archive(lines[:2] + lines[3:], KEYRING).intact
    assert not verify_archive([*lines, lines[1]], KEYRING).intact
    assert not verify_archive([lines[0], lines[2], lines[1], *lines[3:]], KEYRING).intact


def test_an_archive_that_is_not_the_one_the_store_names_is_found() -> None:
    archived = archived_once().archived
    other = replace(archived, archive_sha256="0" * 64)
    report = verify_archive(archived_once().lines, KEYRING, archived=other)
    assert codes(report) == {"archive_not_as_recorded"}


def test_a_head_that_somebody_saw_and_the_archive_has_not_is_found() -> None:
    report = verify_archive(archived_once().lines, KEYRING, witnessed_heads=frozenset({"f" * 64}))
    assert codes(report) == {"witnessed_head_missing"}
