"""What went, whatever was recorded and however much of it: heads stay, and what is left still verifies."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.guardian.kit import KEYRING, MESSAGE, Agent, House, findings, greeted, house, running

from turnkeeper.clock import epoch_ms
from turnkeeper.guardian.auditing import Severity
from turnkeeper.guardian.export import export_lines
from turnkeeper.guardian.retention import Retention, RetentionRules
from turnkeeper.guardian.verify import VerifyReport, verify_export, verify_stored
from turnkeeper.store.archives import FolderArchives
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.store.retention import SqliteRetention

STEPS = st.lists(st.sampled_from(["message", "tool", "refusal", "turn"]), max_size=12)


async def act(agent: Agent, kind: str, number: int) -> None:
    """One thing that an agent does."""
    if kind == "message":
        await agent.step("userMessage", MESSAGE)
    elif kind == "tool":
        await agent.tool()
    elif kind == "refusal":
        await agent.refused("userMessage", {"content": []})
    else:
        await agent.turn_start(f"t{number}")
        await agent.turn_end(f"t{number}", step_count=0, tool_call_count=0)


def erase(here: House, *, after_ms: int = 0, limit: int = 10_000) -> int:
    """Erases what is older than this; how much it was."""
    here.clock.advance(1)
    rules = RetentionRules(erase_content_after_ms=after_ms, max_steps_per_run=limit)
    archives = FolderArchives(here.path.parent)
    return (
        Retention(SqliteRetention(here.path), archives, lambda: KEYRING, rules)
        .erase(epoch_ms(here.clock.now()))
        .erased_steps
    )


def verified(here: House, session_id: str) -> tuple[str | None, VerifyReport]:
    """The head in the store, and the audit of the session."""
    with SqliteChainReader(here.path) as reader:
        summary = reader.session(session_id)
        assert summary is not None
        return summary.progress.head, verify_stored(reader, summary, KEYRING)


def exported(here: House, session_id: str) -> VerifyReport:
    """The audit of the session's export."""
    with SqliteChainReader(here.path) as reader:
        return verify_export(list(export_lines(reader, session_id)), KEYRING)


@settings(max_examples=25, deadline=None)
@given(STEPS, st.integers(1, 20), STEPS)
def test_erasing_never_changes_a_head_nor_what_follows_it(before: list[str], limit: int, after: list[str]) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with house(Path(folder)) as here:
                agent = await greeted(here)
                for number, kind in enumerate(before):
                    await act(agent, kind, number)
                head, intact = verified(here, agent.session_id)
                assert intact.findings == ()
                erase(here, limit=limit)
                erased_head, report = verified(here, agent.session_id)
                assert (erased_head, report.intact, report.sessions[0].head) == (head, True, head)
                for number, kind in enumerate(after, start=len(before)):
                    await act(agent, kind, number)
                assert verified(here, agent.session_id)[1].intact
                assert exported(here, agent.session_id).intact

    asyncio.run(main())


def test_an_export_of_which_every_request_was_erased_still_shows_its_chain(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await act(agent, "message", 1)
        assert erase(here) == 2
        report = exported(here, agent.session_id)
        head, _ = verified(here, agent.session_id)
        assert report.intact
        assert (report.sessions[0].session_id, report.sessions[0].head, report.sessions[0].erased) == ("", head, 2)

    running(tmp_path, work)


def test_erased_rows_of_an_export_belong_to_the_session_of_the_rows_after_them(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await act(agent, "message", 1)
        erase(here)
        await act(agent, "tool", 2)
        (session,) = exported(here, agent.session_id).sessions
        assert (session.session_id, session.entries, session.erased) == (agent.session_id, 2, 2)

    running(tmp_path, work)


def test_a_row_that_was_erased_by_hand_shows_that_no_signed_decision_is_left(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await act(agent, "message", 1)
        SqliteRetention(here.path).erase(agent.session_id, [(2, None)])
        _, report = verified(here, agent.session_id)
        told = [found.message for found in report.findings if found.severity is Severity.NOTICE]
        assert told[0].endswith("its hash remains")

    running(tmp_path, work)


@pytest.mark.parametrize(
    ("key_id", "stated", "found"),
    [("default", "own", []), ("default", "f" * 64, ["subagent_chain_hash_differs"]), ("other", "f" * 64, [])],
)
def test_a_subagent_whose_session_is_archived_is_still_held_to_its_head(
    tmp_path: Path, key_id: str, stated: str, found: list[str]
) -> None:
    async def work(here: House) -> None:
        child = await greeted(here)
        end = await child.step("sessionEnd", {"reason": "completed"})
        here.clock.advance(1)
        rules = RetentionRules(archive_after_ms=0)
        store, archives = SqliteRetention(here.path), FolderArchives(tmp_path)
        Retention(store, archives, lambda: KEYRING, rules, forget=here.guardian.forget).archive(
            epoch_ms(here.clock.now())
        )
        parent = here.agent(key_id=key_id)
        await parent.hello()
        head = end.chain_hash if stated == "own" else stated
        stop = {"subagent_session_id": child.session_id, "outcome": "completed", "final_chain_hash": head}
        assert (await parent.step("subagentStop", stop)).decision == "allow"
        assert findings(here) == found

    running(tmp_path, work)
