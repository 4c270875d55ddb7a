"""What is asked all the time is answered from an index, however many turns have ended."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, create_engine, event
from tests.contract.pause_samples import DAY_MS, a_pause
from tests.contract.store_rig import ANSWER, BY_APP, CALL, Rig, a_note, a_step, open_store

from turnkeeper.events.webhooks.endpoints import Attempt, NewEndpoint
from turnkeeper.events.webhooks.ports import Listed
from turnkeeper.events.webhooks.schedule import Outcome, Verdict
from turnkeeper.turns.model import PROJECT_ID, Budget, Reach, StepAnswer
from turnkeeper.turns.ports import PageRequest, SessionFilter, TurnFilter

GROWING = (
    *("turns", "events", "steps", "model_calls", "sessions", "idempotency_keys", "submissions"),
    *("pauses", "approvals", "budgets", "webhook_deliveries", "webhook_attempts", "project_events"),
    *("metadata_terms", "terms_0", "terms_1"),
)
METADATA_REACH = Reach(PROJECT_ID)
Statement = tuple[str, Any]
Work = Callable[[Rig], Coroutine[Any, Any, None]]


@contextmanager
def statements() -> Generator[list[Statement]]:
    """What is sent to any database meanwhile."""
    seen: list[Statement] = []

    def note(_c: Connection, _cursor: object, statement: str, parameters: Any, _x: object, many: bool) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            seen.append((statement, parameters[0] if many else parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def a_turns_life(rig: Rig) -> None:
    store = rig.store
    fence = await rig.running(
        session_budget=Budget(max_total_tokens=9_999), budget=Budget(max_model_calls=9), idempotency_key="k"
    )
    step = await store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id), fence, [a_note(fence.turn_id)])
    await store.attempt_step(fence.session_id, step.request_id, payload_json=None)
    await store.answer_step(fence.session_id, step.request_id, StepAnswer("answered", "allow", "h"), fence, [])
    await store.reserve(fence, input_tokens=1, max_output_tokens=500)
    await store.settle(fence, CALL)
    await store.renew(fence)
    await store.cancel_turn(fence.turn_id, mode="graceful", by=BY_APP)
    await store.end(fence, ANSWER)


async def what_a_worker_polls(rig: Rig) -> None:
    for slot in (True, False):
        await rig.store.claim("worker", slot=slot)
    await rig.store.take_over("worker", await rig.store.held_by_others("worker"))
    await rig.store.sessions_to_end(10)
    await rig.store.sessions_with_pending_steps(10)
    await rig.store.dead_letters(10)


async def what_a_pause_asks(rig: Rig) -> None:
    store, fence = rig.store, await rig.running()
    pause = a_pause(rig.clock, rig.ids, fence)
    await store.pause(fence, pause, [])
    await store.park(fence, [])
    await store.approvals(PageRequest(), status="pending")
    await store.approvals(PageRequest(), session_id=fence.session_id)
    await store.open_pause(fence.turn_id)
    rig.clock.advance(DAY_MS)
    assert await store.expire_pauses(10) == 1


async def what_chores_ask(rig: Rig) -> None:
    webhooks = rig.store.webhooks()
    endpoint = await webhooks.create_endpoint(NewEndpoint("https://example.com/hook"), secret="s")
    turn = await rig.post((await rig.session()).id)
    for claimed in await webhooks.claim_deliveries("one", limit=10, lease_ms=1_000):
        attempt = Attempt(1, rig.clock.now(), 5, 200, None, "")
        await webhooks.record_attempt(claimed, attempt, Outcome(Verdict.DELIVERED))
    await webhooks.deliveries(endpoint.id, Listed(), None)
    await rig.store.expire_starts(10)
    await rig.store.operations().queue_state()
    await rig.delete_expired(10)
    await rig.store.retention().delete_session(turn.session_id, by=BY_APP)


async def what_an_erasure_asks(rig: Rig) -> None:
    turn = await rig.post((await rig.session()).id)
    await rig.store.retention().delete_session(turn.session_id, by=BY_APP)
    await rig.store.close_ended(turn.session_id, "completed", None)
    assert await rig.store.retention().erase(10) == 1


async def what_an_app_reads(rig: Rig) -> None:
    turn = await rig.post((await rig.session()).id)
    store, session_id = rig.store, turn.session_id
    await store.session(session_id)
    for after in (None, turn.id):
        await store.turns(PageRequest(after=after))
        await store.turns(PageRequest(after=after), session_id=session_id)
        await store.sessions(PageRequest(after=after))
        await store.turns(
            PageRequest(after=after), wanted=TurnFilter(METADATA_REACH, metadata=(("k", "v"), ("l", "w")))
        )
        await store.sessions(PageRequest(after=after), wanted=SessionFilter(METADATA_REACH, metadata=(("k", "v"),)))
    await store.events(session_id, after=0, limit=10)
    await store.events(session_id, after=0, limit=10, types=["turn.queued"], turn_id=turn.id)
    await store.history(session_id, without="trn_0", limit=10)
    await store.steps(session_id, turn_id=turn.id)
    await store.pending_steps(session_id)
    await store.step_counts(session_id, turn.id)
    await store.submissions(turn.id)
    await store.snapshot(session_id)
    await store.close_session(session_id, mode="cancel", by=BY_APP)
    await store.close_ended(session_id, "completed", None)


def plans_on_sqlite(url: str, seen: list[Statement]) -> Iterator[tuple[str, str]]:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            for statement, parameters in seen:
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters):
                    yield statement, row.detail
    finally:
        engine.dispose()


def plans_on_postgres(url: str, seen: list[Statement], *, seqscan: str = "off") -> Iterator[tuple[str, str]]:
    address = url.replace("postgresql+psycopg", "postgresql")
    with psycopg.connect(address, cursor_factory=psycopg.ClientCursor) as connection:
        # Tables this small would be read whole; without that choice a plan shows whether there is an index at all.
        connection.execute(f"SET enable_seqscan = {seqscan}".encode())
        for statement, parameters in seen:
            for (line,) in connection.execute(f"EXPLAIN {statement}".encode(), parameters):
                yield statement, line


# Indexes over what is open now, whose size does not grow with what has ended.
SMALL = (
    *("ix_turns_claimable", "ix_turns_owned", "ix_sessions_closing", "ix_steps_pending", "ix_steps_dead"),
    *("ix_approvals_pending", "ix_turns_waiting", "uq_turns_one_front", "ix_sessions_doomed"),
)
# By these a session's ended turns, settled steps or other turns' events are walked through.
ALL_OF_A_SESSION = ("uq_turns_seq (session_id=?)", "sqlite_autoindex_steps_1 (session_id=?)")

# The first page of a list is read from the end of its ids, as far as its limit.
FIRST_PAGES = (
    "SCAN turns USING INDEX sqlite_autoindex_turns_1",
    "SCAN sessions USING INDEX sqlite_autoindex_sessions_1",
)


def reads_too_much(line: str) -> bool:
    scans = any(line.startswith(f"SCAN {table} ") or line == f"SCAN {table}" for table in (*GROWING, "ahead"))
    if scans and not any(index in line for index in SMALL):
        return True
    return line.endswith(ALL_OF_A_SESSION) or any(f"Seq Scan on {table}" in line for table in GROWING)


ALLOWED: dict[str, tuple[str, ...]] = {
    what_an_app_reads.__name__: FIRST_PAGES,
    what_an_erasure_asks.__name__: ALL_OF_A_SESSION,
}
WORKS = (
    *(a_turns_life, what_a_worker_polls, what_a_pause_asks, what_chores_ask, what_an_erasure_asks),
    what_an_app_reads,
)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_no_statement_reads_a_growing_table_whole(store_url: str, work: Work) -> None:
    async def scenario() -> list[Statement]:
        rig = await open_store(store_url)
        with statements() as seen:
            await work(rig)
        await rig.store.close()
        return seen

    seen = asyncio.run(scenario())
    plans = plans_on_sqlite if store_url.startswith("sqlite") else plans_on_postgres
    whole = {
        statement: line
        for statement, line in plans(store_url, seen)
        if reads_too_much(line) and not line.endswith(ALLOWED.get(work.__name__, ()))
    }

    assert seen
    assert not whole, "\n".join(f"{line.strip()}: {statement}" for statement, line in whole.items())
