"""An agent's harness: what an operator lends and nothing else."""

import pytest

from turnkeeper.acs.strictjson import JsonObject
from turnkeeper.api.agent_harness import HarnessOffer, harness_document, parse_harness
from turnkeeper.api.fields import Fields
from turnkeeper.api.problems import RequestRefused
from turnkeeper.turns.model import BUILTIN, HarnessChoice

OFFER = HarnessOffer(frozenset({"/opt/loop"}), frozenset({"codex"}))


def parsed(agent: JsonObject, offer: HarnessOffer = OFFER) -> HarnessChoice:
    fields = Fields(agent)
    choice = parse_harness(fields, offer)
    fields.finish()
    return choice


def test_an_agent_that_says_nothing_has_the_built_in_loop() -> None:
    assert parsed({}) == parsed({"harness": {}}) == parsed({"harness": {"kind": "builtin"}}) == BUILTIN


def test_a_command_of_the_operators_list_is_taken_with_its_words() -> None:
    asked: JsonObject = {"kind": "command", "command": ["/opt/loop", "--fast", "--fast"]}
    assert parsed({"harness": asked}) == HarnessChoice("command", ("/opt/loop", "--fast", "--fast"))


def test_what_is_shown_can_be_sent_again() -> None:
    for choice in (BUILTIN, HarnessChoice("command", ("/opt/loop",)), HarnessChoice("codex")):
        assert parsed({"harness": harness_document(choice)}) == choice


@pytest.mark.parametrize(
    ("agent", "param"),
    [
        ({"harness": {"kind": "command", "command": ["/bin/sh"]}}, "/harness/command"),
        ({"harness": {"kind": "command", "command": ["loop"]}}, "/harness/command"),
        ({"harness": {"kind": "command", "command": []}}, "/harness/command"),
        ({"harness": {"kind": "command"}}, "/harness/command"),
        ({"harness": {"kind": "command", "command": ["/opt/loop", "a\0b"]}}, "/harness/command"),
        ({"harness": {"kind": "command", "command": ["/opt/loop", *["x"] * 64]}}, "/harness/command"),
        ({"harness": {"kind": "builtin", "command": ["/opt/loop"]}}, "/harness/command"),
        ({"harness": {"kind": "aider"}}, "/harness/kind"),
        ({"harness": {"kind": "opencode"}}, "/harness/kind"),
        ({"harness": {"kind": "codex"}, "tools": ["shell"]}, "/tools"),
        ({"harness": {"image": "x"}}, "/harness/image"),
    ],
)
def test_what_is_not_lent_is_refused_by_name(agent: JsonObject, param: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        parsed(agent)
    assert [issue.pointer for issue in refused.value.issues] == [param]
