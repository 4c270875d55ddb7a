"""A policy is read completely or refused with the path of what is wrong."""

import hashlib

import pytest
from tests.unit.policy.samples import HEAD

from turnkeeper.acs import Disposition
from turnkeeper.policy.rules import MAX_POLICY_BYTES, PolicyRejected, parse_rules

RULE = """
  - id: no-more-than-three-tool-calls
    hooks: [toolCallRequest]
    tools: ["shell", "fs.*"]
    when: turn.tool_calls > 3
    decision: deny
    reasoning: At most three tool calls in a turn.
    reason_codes: [tool_call_limit]
"""


def rejected(text: str) -> PolicyRejected:
    with pytest.raises(PolicyRejected) as caught:
        parse_rules(text.encode())
    return caught.value


def test_a_rule_is_read_with_all_its_members() -> None:
    rules = parse_rules((HEAD + RULE).encode())
    (rule,) = rules.rules
    assert rules.name == "house"
    assert rules.default is Disposition.ALLOW
    assert rule.hooks == {"toolCallRequest"}
    assert rule.tools == ("shell", "fs.*")
    assert rule.when == "turn.tool_calls > 3"
    assert rule.decision is Disposition.DENY
    assert rule.reason_codes == ("tool_call_limit",)


def test_the_digest_names_the_exact_bytes() -> None:
    text = (HEAD + RULE).encode()
    assert parse_rules(text).digest == "sha256:" + hashlib.sha256(text).hexdigest()
    assert parse_rules(text + b"\n").digest != parse_rules(text).digest


def test_a_denial_without_a_code_of_its_own_has_the_common_one() -> None:
    rules = parse_rules((HEAD + "  - {id: a, decision: deny, reasoning: No.}").encode())
    assert rules.rules[0].reason_codes == ("policy_denied",)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (HEAD.replace("default: allow\n", "") + "  []", "default"),
        (HEAD.replace("version: 1", "version: 2") + "  []", "version"),
        (HEAD.replace("version: 1", "version: true") + "  []", "version"),
        (HEAD.replace("name: house", "name: 'my house'") + "  []", "name"),
        (HEAD + "  []\nextra: 1", "extra"),
        (HEAD + "  - {id: a, decision: allow, then: 1}", "rules[0].then"),
        (HEAD + "  - {decision: allow}", "rules[0].id"),
        (HEAD + "  - {id: a}", "rules[0].decision"),
        (HEAD + "  - {id: no, decision: allow}", "rules[0].id"),
        (HEAD + "  - {id: a, decision: deny}", "rules[0].reasoning"),
        (HEAD + "  - {id: a, decision: Deny, reasoning: No.}", "rules[0].decision"),
        (HEAD + "  - {id: a, decision: allow, hooks: [toolCall]}", "rules[0].hooks[0]"),
        (HEAD + "  - {id: a, decision: allow, hooks: [steps/turnStart]}", "rules[0].hooks[0]"),
        (HEAD + "  - {id: a, decision: allow, hooks: []}", "rules[0].hooks"),
        (HEAD + "  - {id: a, decision: allow, tools: shell}", "rules[0].tools"),
        (HEAD + "  - {id: a, decision: allow, tools: [1]}", "rules[0].tools[0]"),
        (HEAD + "  - {id: a, decision: allow, when: ''}", "rules[0].when"),
        (HEAD + "  - {id: a, decision: allow, when: true}", "rules[0].when"),
        (HEAD + "  - {id: a, decision: allow, reason_codes: [Not This]}", "rules[0].reason_codes[0]"),
        (HEAD + "  - {id: a, decision: allow}\n  - {id: a, decision: allow}", "rules[1].id"),
        (HEAD + "  {}", "rules"),
        ("[]", ""),
    ],
)
def test_what_is_wrong_is_named_by_its_path(text: str, path: str) -> None:
    assert rejected(text).detail["path"] == path


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "  - {id: a, decision: allow, id: b}",
        HEAD + "  - &one {id: a, decision: allow}\n  - *one",
        HEAD + "  - !!python/object/apply:os.getcwd []",
        "version: [",
        "\x00",
    ],
)
def test_yaml_that_has_two_readings_or_does_things_is_refused(text: str) -> None:
    assert rejected(text).error_code == "policy_rejected"


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(PolicyRejected):
        parse_rules(b"\xff\xfe\x00")


def test_a_policy_of_unreasonable_size_is_refused_unread() -> None:
    assert "limit" in rejected("#" * (MAX_POLICY_BYTES + 1)).message
