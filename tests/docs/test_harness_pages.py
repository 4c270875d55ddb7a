"""What the pages about harnesses show works as it is shown, and the protocol's page names the whole protocol."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from tests.acceptance.server import run_command

from turnkeeper.acs.strictjson import parse_object
from turnkeeper.api.agent_harness import HarnessOffer, parse_harness
from turnkeeper.api.fields import Fields
from turnkeeper.sandbox.protocol import Report, Start

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGES = ("bring-your-own-loop", "coding-agents-in-boxes")
OFFER = HarnessOffer(frozenset({"/usr/bin/python3"}), frozenset({"claude-code"}))


def text_of(page: str) -> str:
    return (HOW_TO / f"{page}.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_the_settings_of_the_page_are_settings(page: str, tmp_path: Path) -> None:
    settings = tmp_path / "turnkeeper.toml"
    settings.write_text(blocks(page, "toml")[0])
    shown = run_command("config", "show", "--config", str(settings), home=tmp_path)
    assert (shown.returncode, "harness." in shown.stdout) == (0, True), shown.stderr


@pytest.mark.parametrize("page", PAGES)
def test_the_agent_of_the_page_may_be_made_where_its_harness_is_lent(page: str) -> None:
    agent = parse_object(blocks(page, "json")[0].encode())
    fields_of_agent = Fields(agent)
    choice = parse_harness(fields_of_agent, OFFER)
    fields_of_agent.finish()
    assert json.dumps(choice.kind) in blocks(page, "json")[0]


@pytest.mark.parametrize("frame", [Start, Report])
def test_the_protocols_page_names_every_member(frame: type[Start] | type[Report]) -> None:
    page = text_of("bring-your-own-loop")
    named = set(re.findall(r"[a-z_]+", page))
    assert {member.name for member in fields(frame)} <= named | {"submissions", "accepted"}
