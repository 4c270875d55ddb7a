"""A policy as a folder: one thing, one version, nothing in it ignored."""

import pytest

from turnkeeper.acs import Disposition
from turnkeeper.policy.bundle import bundle_digest, parse_bundle, single_file
from turnkeeper.policy.cases import failing, parse_cases
from turnkeeper.policy.document import PolicyRejected
from turnkeeper.policy.engines.cel import CelEngine

RULES = b"""
version: 1
name: house
default: allow
rules:
  - {id: three, hooks: [toolCallRequest], scope: turn, when: scope.tool_calls > 3, decision: deny, reasoning: Three.}
"""
CASES = b"""
tests:
  - name: the fourth call is denied
    facts: {hook: toolCallRequest, tool: shell, args: {command: ls}, turn: {tool_calls: 4}}
    expect: {decision: deny, rules: [three], reason_codes: [policy_denied]}
  - name: the third is not
    facts: {hook: toolCallRequest, tool: shell, turn: {tool_calls: 3}}
    expect: {decision: allow}
"""
CEDAR = b"permit(principal, action, resource);"
WITH_CEDAR = RULES + b"engines: {cedar: {hooks: [toolCallRequest], deadline_ms: 500}}\n"
FILES = {"policy.yaml": RULES, "tests/basic.yaml": CASES, "README.md": b"why"}


def rejected(files: dict[str, bytes]) -> object:
    with pytest.raises(PolicyRejected) as caught:
        parse_bundle(files)
    return caught.value.detail["path"]


def test_a_folder_is_read_with_its_rules_and_its_tests() -> None:
    bundle = parse_bundle(FILES)
    assert bundle.name == "house"
    assert [case.name for case in bundle.cases] == ["the fourth call is denied", "the third is not"]
    assert bundle.version == bundle_digest(FILES)
    reference = CelEngine(bundle.rules).evaluate(bundle.cases[0].facts).policy_references[0]
    assert reference.policy_version == bundle.version


def test_the_version_changes_with_every_byte_and_every_name() -> None:
    versions = {
        bundle_digest(FILES),
        bundle_digest({**FILES, "README.md": b"why?"}),
        bundle_digest({**FILES, "tests/basic.yaml": CASES + b"\n"}),
        bundle_digest({**FILES, "more.cedar": b""}),
        bundle_digest({"policy.yaml": RULES, "tests/other.yaml": CASES, "README.md": b"why"}),
    }
    assert len(versions) == 5


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({"tests/basic.yaml": CASES}, "policy.yaml"),
        ({**FILES, "policy.yml": RULES}, "policy.yml"),
        ({**FILES, "tests/more/basic.yaml": CASES}, "tests/more/basic.yaml"),
        ({**FILES, "rules/a.cedar": CEDAR}, "rules/a.cedar"),
        ({**FILES, "a.cedar": CEDAR}, "engines.cedar"),
        ({**FILES, "policy.yaml": WITH_CEDAR}, "engines.cedar"),
        ({**FILES, "policy.yaml": WITH_CEDAR, "a.cedar": b"\xff"}, "a.cedar"),
        ({**FILES, "README.md": b"x" * 300_000}, "README.md"),
        ({**FILES, **{f"{index}.cedar": b"" for index in range(201)}}, ""),
        (
            {**FILES, "policy.yaml": WITH_CEDAR.replace(b"[toolCallRequest], d", b"[nothing], d")},
            "engines.cedar.hooks[0]",
        ),
        ({**FILES, "policy.yaml": WITH_CEDAR.replace(b"500", b"0")}, "engines.cedar.deadline_ms"),
        ({**FILES, "policy.yaml": WITH_CEDAR.replace(b"cedar:", b"rego:")}, "engines.rego"),
    ],
)
def test_a_folder_of_which_something_would_be_ignored_is_refused(files: dict[str, bytes], path: str) -> None:
    assert rejected(files) == path


def test_cedar_files_are_one_text_in_the_order_of_their_names() -> None:
    files = {**FILES, "policy.yaml": WITH_CEDAR, "b.cedar": b"// b", "a.cedar": b"// a"}
    bundle = parse_bundle(files)
    assert bundle.cedar == "// a\n// b"
    assert bundle.cedar_settings is not None
    assert bundle.cedar_settings.deadline_ms == 500


def test_an_engine_can_be_asked_about_wrapped_calls_too() -> None:
    text = WITH_CEDAR.replace(b"[toolCallRequest]", b"[toolCallRequest, 'protocols/MCP/*', protocols/MCP/initialize]")
    settings = parse_bundle({**FILES, "policy.yaml": text, "a.cedar": b"//"}).cedar_settings
    assert settings is not None
    assert settings.hooks == {"toolCallRequest", "protocols/MCP/*", "protocols/MCP/initialize"}


def test_a_single_file_cannot_name_an_engine_whose_policies_it_does_not_hold() -> None:
    assert single_file(RULES).cases == ()
    with pytest.raises(PolicyRejected):
        single_file(WITH_CEDAR)


def test_a_policy_that_changed_its_mind_fails_its_tests_with_what_it_said() -> None:
    bundle = parse_bundle({**FILES, "policy.yaml": RULES.replace(b"> 3", b"> 2")})
    engine = CelEngine(bundle.rules)
    ((case, problem),) = failing(bundle.cases, [engine.evaluate(case.facts) for case in bundle.cases])
    assert case.name == "the third is not"
    assert problem == "expected allow, got deny by three ['policy_denied']"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"decision: deny, rules", b"decision: no way, rules"),
        (b"rules: [three]", b"rules: [four]"),
        (b"hook: toolCallRequest, tool: shell, args", b"hook: toolCall, tool: shell, args"),
        (b"turn: {tool_calls: 4}", b"turn: {calls: 4}"),
        (b"turn: {tool_calls: 4}", b"turn: {tool_calls: four}"),
        (b"turn: {tool_calls: 4}", b"turn: {tool_calls: true}"),
        (b"turn: {tool_calls: 4}", b"payload: {}"),
        (b"tool: shell, args", b"tool: 4, args"),
        (b"expect: {decision: allow}", b"expect: {}"),
        (b"facts: {hook: toolCallRequest, tool: shell, turn", b"facts: {tool: shell, turn"),
    ],
)
def test_a_test_that_could_not_fail_for_the_right_reason_is_refused(old: bytes, new: bytes) -> None:
    assert old in CASES
    with pytest.raises(PolicyRejected):
        parse_bundle({**FILES, "tests/basic.yaml": CASES.replace(old, new)})


def test_a_case_can_set_every_kind_of_fact() -> None:
    text = b"""
tests:
  - name: everything
    facts:
      hook: toolCallRequest
      tool: files.read
      provider: mcp
      operation: read
      capability: filesystem.read
      args: {path: /a}
      turn: {id: t, open: true, tainted: true}
      session: {turns_since_taint: 0}
      provenance: {origins: [tool_output], trust: untrusted}
      intent: {raw: x, capabilities: [{tool: files.*}], scope_mode: strict}
      approval: {granted: true, by: alice}
      agent: bob
      environment: production
    expect: {decision: allow}
  - name: a whole payload
    facts: {hook: userMessage, payload: {content: []}}
    expect: {decision: allow}
  - name: a wrapped method
    facts: {hook: protocols/MCP/tools/call, payload: {params: {}}}
    expect: {decision: allow}
"""
    first, second, third = parse_cases(text, "tests/a.yaml")
    assert first.facts.tool_name == "files.read"
    assert first.facts.provenance.origins == ("tool_output",)
    assert first.facts.intent_match.covered
    assert first.facts.environment == "production"
    assert second.facts.payload == {"content": []}
    assert third.facts.method == "protocols/MCP/tools/call"
    assert first.decision is Disposition.ALLOW
