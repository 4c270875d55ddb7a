"""Provenance made by framework code: on every value, with a lineage that leads to everything the model saw."""

from collections.abc import Mapping
from typing import Any, cast

import pytest
from tests.unit.client.rig import Rig

from turnkeeper.client import ClientSettings, GuardianClient, Retrieved, StepDenied
from turnkeeper.testing.scripted_guardian import deny

DETERMINISTIC = ClientSettings(provenance="deterministic")


def labels(value: object) -> list[Mapping[str, Any]]:
    """Every provenance object in a payload, in order."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        own = [members["provenance"]] if "provenance" in members else []
        return own + [label for name, member in members.items() if name != "provenance" for label in labels(member)]
    if isinstance(value, list):
        return [label for item in cast("list[object]", value) for label in labels(item)]
    return []


def list_files(**_: object) -> str:
    """A tool."""
    return "files"


async def full_turn(guardian: GuardianClient) -> None:
    """A turn through every hook that carries data."""
    async with guardian.session() as session, session.turn() as turn:
        await turn.user_message("hello")
        await turn.knowledge_retrieval("q", [Retrieved("found", "wiki")])
        await turn.memory_context_retrieval([Retrieved("known")], query="what", store="notes")
        await turn.call_tool("shell", {"command": "ls", "cwd": "/"}, list_files)
        await turn.memory_store("remember", store="notes")
        await turn.agent_response("done")


def test_an_agent_that_produces_none_sends_none() -> None:
    """PROV-02."""
    rig = Rig()
    rig.run(full_turn)
    assert [label for envelope in rig.scripted.received for label in labels(envelope.payload)] == []
    assert rig.scripted.received[0].payload["provenance_producer"] == "none"


def test_an_agent_that_produces_it_labels_every_value_with_an_id_of_its_own() -> None:
    """PROV-01 and 03; the strict schemas have checked each step before it was sent."""
    rig = Rig(DETERMINISTIC)
    rig.run(full_turn)
    ids = [label["provenance_id"] for envelope in rig.scripted.received for label in labels(envelope.payload)]
    assert len(ids) == len(set(ids)) == 11
    hello = rig.scripted.received[0].payload
    assert hello["provenance_producer"] == "deterministic"
    assert "acs-provenance" in hello["profiles_supported"]  # type: ignore[operator]


def test_origins_and_sources_are_said_by_the_hook() -> None:
    rig = Rig(DETERMINISTIC)
    rig.run(full_turn)
    told = [
        (envelope.method.removeprefix("steps/"), label["origin"], label.get("source_id"))
        for envelope in rig.scripted.received
        for label in labels(envelope.payload)
    ]
    assert told == [
        ("userMessage", "user_input", None),
        ("knowledgeRetrieval", "agent_generated", None),
        ("knowledgeRetrieval", "retrieved", "wiki"),
        ("memoryContextRetrieval", "agent_generated", None),
        ("memoryContextRetrieval", "retrieved", "notes"),
        ("toolCallRequest", "agent_generated", None),
        ("toolCallRequest", "agent_generated", None),
        ("toolCallResult", "tool_output", "shell"),
        ("memoryStore", "agent_generated", None),
        ("agentResponse", "agent_generated", None),
        ("turnEnd", "agent_generated", None),
    ]


def test_the_turns_summary_derives_from_everything_the_turn_sent() -> None:
    rig = Rig(DETERMINISTIC)
    rig.run(full_turn)
    *steps, (end,) = [found for envelope in rig.scripted.received if (found := labels(envelope.payload))]
    assert set(end["derived_from"]) == {label["provenance_id"] for found in steps for label in found}
    assert len(end["derived_from"]) == 10


def test_what_the_model_says_leads_back_to_all_it_saw() -> None:
    rig = Rig(DETERMINISTIC)
    rig.run(full_turn)
    known = {label["provenance_id"]: label for envelope in rig.scripted.received for label in labels(envelope.payload)}
    answer = labels(next(e for e in rig.scripted.received if e.method == "steps/agentResponse").payload)[0]
    seen, ahead = set[str](), [str(answer["provenance_id"])]
    while ahead:
        seen.add(last := ahead.pop())
        ahead += [name for name in known[last].get("derived_from", []) if name not in seen]
    outside = {name for name, label in known.items() if label["origin"] != "agent_generated"}
    assert outside <= seen


def test_what_was_kept_from_the_model_is_no_source_of_what_it_says() -> None:
    rig = Rig(DETERMINISTIC)
    rig.scripted.next("steps/userMessage", deny("no"))

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            with pytest.raises(StepDenied):
                await turn.user_message("evil")
            await turn.agent_response("I was told nothing")

    rig.run(work)
    answer = next(e for e in rig.scripted.received if e.method == "steps/agentResponse")
    assert "derived_from" not in labels(answer.payload)[0]
