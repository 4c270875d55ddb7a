"""The hooks' settings file: read back as written, refused by name."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.hooks.settings import HookSettings, HookSettingsInvalid, load_settings, render_settings

GOOD = 'guardian_url = "http://g/acs"\nsecret_file = "/k"\nstate_dir = "/s"\nagent_id = "a"\n'

PATHS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0")).map(
    lambda text: Path("/") / text
)


@given(st.text(st.characters(blacklist_categories=("Cs",)), min_size=1), PATHS, st.integers(1, 86_400))
def test_what_was_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, agent: str, path: Path, wait: int
) -> None:
    file = tmp_path_factory.mktemp("hook") / "hook.toml"
    settings = HookSettings("https://g/acs", path, path / "s", agent, ask_wait_s=wait)
    file.write_text(render_settings(settings), newline="")
    assert load_settings(file) == settings


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "guardian_url"),
        (GOOD + "colour = 1\n", "colour"),
        (GOOD + "ask_wait_s = 0\n", "ask_wait_s"),
        (GOOD + "ask_wait_s = true\n", "ask_wait_s"),
        (GOOD + 'decision_timeout_s = "5"\n', "decision_timeout_s"),
        (GOOD.replace('"/k"', '"k"'), "secret_file"),
        (GOOD.replace("http://g/acs", "ftp://g"), "guardian_url"),
        (GOOD + "=", "hook.toml"),
    ],
)
def test_what_cannot_work_is_named(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "hook.toml"
    file.write_text(text)
    with pytest.raises(HookSettingsInvalid, match=named):
        load_settings(file)


def test_the_client_waits_longer_than_the_hook_and_the_hook_longer_than_a_person_is_asked() -> None:
    settings = HookSettings("http://g", Path("/k"), Path("/s"), "a")
    assert settings.ask_wait_s + settings.decision_timeout_s < settings.deadline_s < settings.client_timeout_s
