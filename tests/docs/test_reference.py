"""Pages that must say what the program does: settings, commands, examples, links."""

import re
import tomllib
from pathlib import Path

import orjson
import pytest
import yaml

from turnkeeper.acs.schemas import Validator
from turnkeeper.cli import COMMANDS
from turnkeeper.cli.config import render_reference
from turnkeeper.config import load_configuration
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import parse_rules
from turnkeeper.settings_tree import known_settings

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
HOME = {"HOME": "/home/somebody"}


def fenced(page: Path, language: str) -> list[str]:
    """The code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_settings_page_is_the_settings_tree() -> None:
    """Made anew with `turnkeeper config reference > docs/reference/settings.md`."""
    assert (ROOT / "docs" / "reference" / "settings.md").read_text() == render_reference()


def test_every_setting_says_what_it_means() -> None:
    """In the tree itself, from which the page is made."""
    assert [setting.name for setting in known_settings() if not setting.description] == []


def test_the_commands_page_names_every_command_and_no_other() -> None:
    """The table's first column."""
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert set(re.findall(r"^\| `turnkeeper (\w+)", page, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_shows_exists(page: Path) -> None:
    """A renamed command must be renamed here too."""
    shown = set(re.findall(r"(?:^|[`$(] ?)turnkeeper ([a-z]+)", page.read_text(), re.MULTILINE))
    assert shown <= set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_target_of_make_that_a_page_shows_exists(page: Path) -> None:
    """README's two commands first of all."""
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make (\w+)", page.read_text(), re.MULTILINE)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    """Files by path; a heading's anchor is not looked at."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_that_a_page_shows_are_accepted(page: Path, tmp_path: Path) -> None:
    """Every TOML block is a settings file."""
    for text in fenced(page, "toml"):
        file = tmp_path / "turnkeeper.toml"
        file.write_text(text)
        load_configuration(HOME, file=file)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_rules_that_a_page_shows_can_be_loaded(page: Path) -> None:
    """Every YAML block is a rule file."""
    for text in fenced(page, "yaml"):
        CelEngine(parse_rules(text.encode()))


def test_the_examples_can_be_used() -> None:
    """Settings, rules, an agent, a schema."""
    examples = ROOT / "examples"
    settings = load_configuration(HOME, file=examples / "turnkeeper.toml").settings
    assert settings.guardian.policy == examples / "policy.yaml"
    CelEngine(parse_rules((examples / "policy.yaml").read_bytes()))
    assert tomllib.loads((examples / "agent.toml").read_text())["model"]["provider"] in settings.providers
    Validator(orjson.loads((examples / "summary.schema.json").read_bytes()), {})


def test_every_dependency_has_its_reason_on_the_page_of_dependencies() -> None:
    """And the page names none that is gone."""
    page = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {re.split(r"[\[>=;<! ]", line)[0] for line in project["dependencies"]}
    table = page.partition("| run time | for |")[2].partition("\n\n")[0]
    shown = {name.split("[")[0] for name in re.findall(r"`([a-z0-9_-]+(?:\[[\w,]+\])?)`", _first_column(table))}
    assert shown == named


def _first_column(table: str) -> str:
    return "\n".join(line.split("|")[1] for line in table.splitlines() if line.count("|") > 2)


def test_every_pinned_file_pins_by_hash() -> None:
    """And names no host."""
    for file in (ROOT / "requirements").glob("*.txt"):
        text = file.read_text()
        assert "--hash=sha256:" in text, file.name
        assert "://" not in text, file.name
        entries = [line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]
        assert all("==" in entry for entry in entries), file.name


def test_the_shipped_rules_are_yaml_that_others_can_read() -> None:
    """They are offered as a starting point."""
    shipped = ROOT / "src" / "turnkeeper" / "policy" / "bundles" / "default.yaml"
    assert yaml.safe_load(shipped.read_text())["version"] == 1
