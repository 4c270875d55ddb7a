"""Intent-based access: resources have one spelling, capabilities cover what they name and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policy.samples import SESSION_ID, engine

from turnkeeper.acs import Disposition
from turnkeeper.policy.facts import Facts, SessionFacts
from turnkeeper.policy.intent import UNCLEAR, Capability, IntentFacts, match_intent, normalize_resource

READ_NOTES = Capability("files.read", "filesystem.read", "posix:///workspace/notes/*")


def payload(tool: str = "files.read", capability: str = "filesystem.read", **arguments: object) -> dict[str, object]:
    return {
        "tool": {"name": tool},
        "capability": capability,
        "arguments": {name: {"value": value} for name, value in arguments.items()},
    }


def intent(mode: str, *capabilities: Capability) -> IntentFacts:
    return IntentFacts("read the notes", capabilities or (READ_NOTES,), mode)


@pytest.mark.parametrize(
    ("written", "uri"),
    [
        ("C:\\x", "file:///C:/x"),
        ("c:/a\\b", "file:///C:/a/b"),
        ("file:///c:/a", "file:///C:/a"),
        ("/etc/passwd", "posix:///etc/passwd"),
        ("file:///etc/./passwd", "posix:///etc/passwd"),
        ("posix:///etc//passwd", "posix:///etc/passwd"),
        ("/a/b/", "posix:///a/b/"),
        ("HTTPS://Example.ORG/A?q=1#f", "https://example.org/A?q=1"),
        ("https://example.org", "https://example.org/"),
        ("s3://bucket/key", "s3://bucket/key"),
    ],
)
def test_a_resource_has_one_spelling(written: str, uri: str) -> None:
    assert normalize_resource(written) == uri
    assert normalize_resource(uri) == uri


@pytest.mark.parametrize(
    "written",
    [
        "notes.txt",
        "./x",
        "../x",
        "/a/../b",
        "https://h/a/..",
        "/a/%2e%2e/b",
        "/a%2Fb",
        "//host/share",
        "file://host/x",
        "https://good.org@evil.org/",
        "https://good.org\\@evil.org/",
        "/a\nb",
        "https://[::1",
        "/" + "a" * 5_000,
        "",
    ],
)
def test_what_names_no_single_place_is_unclear(written: str) -> None:
    assert normalize_resource(written) == UNCLEAR


@given(st.text("aA./\\:%2eC?#@ ", max_size=14))
def test_normalizing_twice_changes_nothing_and_never_leaves_a_step_up(text: str) -> None:
    once = normalize_resource(text)
    assert once == UNCLEAR or normalize_resource(once) == once
    assert "/../" not in once


@pytest.mark.parametrize(
    ("step", "mode", "covered"),
    [
        (payload(path="/workspace/notes/a"), "strict", True),
        (payload(path="/workspace/notes/a"), "", True),
        (payload(path="/workspace/notes-2/a"), "strict", False),
        (payload(path="/workspace/notes/../keys"), "strict", False),
        (payload(path="notes/a"), "strict", False),
        (payload(path=["/workspace/notes/a", "/etc/passwd"]), "strict", False),
        (payload(path="/workspace/notes/a", other="https://evil.org/x"), "strict", False),
        (payload(), "strict", False),
        (payload(tool="files.write", path="/workspace/notes/a"), "strict", False),
        (payload(capability="filesystem.delete", path="/workspace/notes/a"), "strict", False),
        (payload(path="/etc/passwd"), "moderate", True),
        (payload(tool="files.write", path="/workspace/notes/a"), "moderate", False),
        (payload(tool="files.write", path="/x"), "permissive", True),
        (payload(tool="files.write", path="/x"), "anything else", False),
    ],
)
def test_each_scope_mode_asks_for_its_own_measure(step: dict[str, object], mode: str, covered: bool) -> None:
    assert match_intent(intent(mode), step).covered is covered


def test_one_capability_has_to_cover_the_whole_step() -> None:
    other = Capability("files.write", "", "posix:///tmp/*")
    step = payload(tool="files.write", path="/workspace/notes/a")
    assert not match_intent(intent("strict", READ_NOTES, other), step).covered


def test_a_member_left_out_permits_any_and_a_star_any_rest() -> None:
    wide = Capability(operation="filesystem.*")
    assert match_intent(intent("strict", wide), payload(capability="filesystem.delete", path="/x")).covered
    assert match_intent(intent("strict", wide), payload(capability="filesystem.delete", path="x")).covered
    assert not match_intent(intent("strict", wide), payload(capability="network.egress")).covered


def test_an_intent_without_capabilities_covers_nothing_unless_it_is_permissive() -> None:
    nothing = IntentFacts("talk", (), "strict")
    assert nothing.declared
    assert not match_intent(nothing, payload()).covered


def test_rules_can_ask_how_a_step_stands_to_the_intent() -> None:
    rules = engine("  - {id: a, when: intent.declared && !intent.covered, decision: deny, reasoning: No.}")
    assert rules.is_native("a")
    for path, denied in (("/workspace/notes/a", False), ("/etc/passwd", True)):
        step = Facts(
            method="steps/toolCallRequest",
            step_id="s",
            payload=payload(path=path),
            agent_id="a",
            session=SessionFacts(SESSION_ID),
            intent=intent("strict"),
        )
        assert (rules.evaluate(step).disposition is Disposition.DENY) is denied
        assert step.to_variables()["intent"] is not None
