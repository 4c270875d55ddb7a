"""Lineage of our own agent: a turn's end derives from exactly what it showed, and a restart forgets nothing."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.turns.rig import answer, rig, script
from tests.unit.turns.test_governor import Table, table

from turnkeeper.acs import AcsErrorCode, Decision, Disposition, Marks, RequestEnvelope, provenance_objects
from turnkeeper.sandbox.protocol import ToolRequest
from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.testing.scripted_guardian import ALLOW, Fault, Reply, SignedError, deny
from turnkeeper.turns import lineage, payloads
from turnkeeper.turns.lineage import SessionLineages
from turnkeeper.turns.model import Draft
from turnkeeper.turns.rulings import Ruling

Label = Mapping[str, Any]

REPLIES: Final[dict[str, Reply]] = {
    "allow": ALLOW,
    "deny": deny("no"),
    "modify": Decision(Disposition.MODIFY, "changed", modifications={"modified_content": "x"}),
    "refuse": SignedError(AcsErrorCode.INVALID_PARAMS),
}
WRITERS: Final[Mapping[str, Callable[[Marks], str]]] = {
    payloads.USER_MESSAGE: lambda marks: payloads.user_message(marks, "hi"),
    payloads.TOOL_CALL_REQUEST: lambda marks: payloads.tool_call_request(marks, "shell", {"command": "ls", "cwd": "/"}),
    payloads.TOOL_CALL_RESULT: lambda marks: payloads.tool_call_result(
        marks,
        "shell",
        exit_status="success",
        output="x",
        request_id_ref="7d4d1e1c-0000-4000-8000-000000000000",
        duration_ms=1,
    ),
    payloads.AGENT_RESPONSE: lambda marks: payloads.agent_response(marks, "text", "1"),
}


def labels_of(entries: Sequence[RequestEnvelope]) -> list[Label]:
    return [label for entry in entries for label in provenance_objects(entry.method, entry.payload)]


def reach_of(labels: Sequence[Label]) -> dict[str, set[str]]:
    """What each id leads back to. Fails for an id that was not shown before it was derived from."""
    reach: dict[str, set[str]] = {}
    for label in labels:
        name = label["provenance_id"]
        assert name not in reach
        reach[name] = {name}.union(*(reach[source] for source in label.get("derived_from", ())))
    return reach


async def ask(at: Table, method: str) -> Ruling:
    step = Draft(at.made.bench.ids.uuid(), method, WRITERS[method], in_window=True, turn_id=at.claim.turn.id)
    return await at.governor.ask(at.party, step, at.claim.fence)


async def sources(at: Table) -> tuple[str, ...]:
    """What a worker that has just taken the turn over would derive the agent's next word from."""
    fresh = SessionLineages(at.made.store, at.made.bench.ids, "deny")
    return (await fresh.marks(at.party.session_id, at.claim.fence)).lineage.sources


ASKED = st.lists(
    st.tuples(
        st.sampled_from(sorted(WRITERS)),
        st.sampled_from(sorted(REPLIES)),
        st.sampled_from([None, None, Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.DOUBLE]),
    ),
    max_size=5,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ASKED)
def test_whatever_is_asked_and_answered_the_end_derives_from_all_that_was_shown(
    asked: list[tuple[str, str, Fault | None]],
) -> None:
    async def main(tmp_path: Path) -> None:
        async with table(tmp_path) as at:
            await at.open()
            told: set[str] = set()
            for method, reply, fault in asked:
                at.guardian.next(method, REPLIES[reply])
                at.guardian.fail(method, *([] if fault is None else [fault]))
                ruling = await ask(at, method)
                shown = labels_of([e for e in at.guardian.entries if e.request_id == ruling.request_id])
                if ruling.allowed:
                    told |= {label["provenance_id"] for label in shown if label["origin"] != "agent_generated"}
            await at.end()
            while not await at.deliver():
                pass
            *steps, end = at.guardian.entries
            ids = [label["provenance_id"] for label in labels_of(steps)]
            summary = [label["derived_from"] for label in labels_of([end])]
            assert summary == ([ids] if ids else [])
            reach = reach_of(labels_of(at.guardian.entries))
            if any(label["origin"] == "agent_generated" for label in labels_of(steps[-1:])):
                assert all(told <= reach[label["provenance_id"]] for label in labels_of(steps[-1:]))

    with TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ASKED)
def test_who_takes_a_turn_over_derives_as_who_had_it(asked: list[tuple[str, str, Fault | None]]) -> None:
    async def main(tmp_path: Path) -> None:
        async with table(tmp_path) as at:
            await at.open()
            for method, reply, fault in asked:
                at.guardian.next(method, REPLIES[reply])
                at.guardian.fail(method, *([] if fault is None else [fault]))
                await ask(at, method)
            expected = await sources(at)
            seen: list[tuple[str, ...]] = []

            def write(marks: Marks) -> str:
                seen.append(marks.lineage.sources)
                return payloads.user_message(marks, "last")

            step = Draft(at.made.bench.ids.uuid(), payloads.USER_MESSAGE, write, True, at.claim.turn.id)
            await at.governor.ask(at.party, step, at.claim.fence)
            assert seen == [expected]

    with TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))


def test_an_argument_derives_from_the_message_and_from_what_the_last_tool_gave(tmp_path: Path) -> None:
    async def main() -> None:
        async def calls(harness: ScriptedHarness) -> None:
            for number in range(2):
                await harness.ask(ToolRequest(f"c{number}", "shell", '{"command":"ls"}'))
            await harness.report("done")

        async with rig(tmp_path, script(calls)) as made:
            await made.run_turn()
            message, first, output, second, _, text = labels_of(made.guardian.entries)[:6]
            assert (message["origin"], output["origin"], output["source_id"]) == ("user_input", "tool_output", "shell")
            assert first["derived_from"] == [message["provenance_id"]]
            assert second["derived_from"] == [first["provenance_id"], output["provenance_id"]]
            assert text["origin"] == "agent_generated"

    asyncio.run(main())


def test_what_an_agent_was_told_in_an_earlier_turn_is_a_source_of_what_it_says_in_a_later_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, answer) as made:
            session = await made.session()
            await made.run_turn(session)
            await made.stop()
            made.again()
            made.work()
            await made.run_turn(session)
            await made.settled(session.id)
            first, said, _, second, answered, _ = labels_of(made.guardian.entries)
            assert answered["derived_from"] == [said["provenance_id"], second["provenance_id"]]
            assert first["provenance_id"] in said["derived_from"]

    asyncio.run(main())


def test_a_message_that_was_denied_is_no_source_of_anything_but_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, answer) as made:
            made.guardian.next(payloads.USER_MESSAGE, deny("no"))
            session = await made.session()
            await made.run_turn(session)
            await made.run_turn(session)
            await made.settled(session.id)
            denied, ended, second, said, _ = labels_of(made.guardian.entries)
            assert ended["derived_from"] == [denied["provenance_id"]]
            assert said["derived_from"] == [second["provenance_id"]]

    asyncio.run(main())


def test_a_turn_of_more_ids_than_are_kept_has_no_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "MAX_PAGES", 1)
    monkeypatch.setattr(lineage, "PAGE_STEPS", 2)

    async def main() -> None:
        async with rig(tmp_path, answer) as made:
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            end = made.guardian.entries[-1]
            assert (end.method, end.payload["step_count"]) == (payloads.TURN_END, 2)
            assert "summary" not in end.payload

    asyncio.run(main())


def test_the_handshake_declares_provenance_and_claims_its_profile(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, answer) as made:
            await made.run_turn()
            hello = made.guardian.received[0].payload
            assert hello["provenance_producer"] == "deterministic"
            assert hello["profiles_supported"] == ["acs-core", "acs-provenance"]

    asyncio.run(main())


def test_a_turn_that_showed_nothing_has_no_summary(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, answer) as made:
            made.guardian.next(payloads.TURN_START, deny("not now"))
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            assert made.guardian.entries[-1].method == payloads.TURN_END
            assert "summary" not in made.guardian.entries[-1].payload

    asyncio.run(main())
