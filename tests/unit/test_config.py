"""Settings: where they come from, and what is refused before anything starts."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from turnkeeper.config import ConfigInvalid, Configuration, load_configuration
from turnkeeper.settings import PATH_SETTINGS, unsafe_choices
from turnkeeper.settings_tree import known_settings, leaves, render_value

HOME = {"HOME": "/home/somebody"}


@pytest.fixture
def write(tmp_path: Path) -> "Writer":
    """A writer of settings files."""
    return Writer(tmp_path)


class Writer:
    """Writes `turnkeeper.toml` and loads it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "turnkeeper.toml"

    def load(self, text: str, environ: dict[str, str] | None = None, **flags: object) -> Configuration:
        """The configuration of this text."""
        self.file.write_text(text)
        return load_configuration(HOME | (environ or {}), file=self.file, flags=flags)


def refusal(environ: dict[str, str]) -> str:
    """What the refusal of an environment says."""
    with pytest.raises(ConfigInvalid) as caught:
        load_configuration(HOME | environ)
    return caught.value.message


def test_defaults_need_no_file_and_give_no_protection_away() -> None:
    """The safe choice is the one nobody typed."""
    configuration = load_configuration(HOME)
    assert configuration.settings.data_dir == Path("/home/somebody/.local/share/turnkeeper/serve")
    assert unsafe_choices(configuration.settings) == ()
    assert configuration.origin("server.port") == "default"


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(write: "Writer") -> None:
    """Each value knows where it came from."""
    text = '[server]\nport = 1\nhost = "::1"\nmax_streams = 7\n'
    environ = {"TURNKEEPER_SERVER__PORT": "2", "TURNKEEPER_SERVER__HOST": "localhost"}
    configuration = write.load(text, environ, **{"server.port": 3, "server.host": None})
    server = configuration.settings.server
    assert (server.port, server.host, server.max_streams) == (3, "localhost", 7)
    assert configuration.origin("server.port") == "flag --port"
    assert configuration.origin("server.host") == "env TURNKEEPER_SERVER__HOST"
    assert configuration.origin("server.max_streams") == f"file {write.file}"


def test_an_unknown_key_in_the_file_is_refused_with_its_path_and_the_nearest_name(write: "Writer") -> None:
    """A typing error must not leave the default in force."""
    with pytest.raises(ConfigInvalid) as caught:
        write.load("[guardian]\non_decision_failur = 'deny'\n")
    assert "guardian.on_decision_failur" in caught.value.message
    assert "did you mean guardian.on_decision_failure?" in caught.value.message
    assert str(write.file) in caught.value.message


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("TURNKEEPER_SERVER__PROT", "server.port"),
        ("TURNKEEPER_SERVR__PORT", "server"),
        ("TURNKEEPER_PORT", "server.port"),
        ("TURNKEEPER_PROVIDERS__LOCAL__KIN", "providers.local.kind"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(variable: str, nearest: str) -> None:
    """The environment is held to the same names as the file."""
    message = refusal({variable: "1", "TURNKEEPER_PROVIDERS__LOCAL__KIND": "local"})
    assert f"did you mean {nearest}?" in message
    assert variable in message


def test_every_wrong_value_is_named_at_once() -> None:
    """Nobody wants to learn of them one by one."""
    message = refusal({"TURNKEEPER_SERVER__PORT": "99999", "TURNKEEPER_WORKER__SLOTS": "none"})
    assert "server.port" in message
    assert "worker.slots" in message


def test_a_switch_is_not_a_number(write: "Writer") -> None:
    """`port = true` would otherwise be port 1."""
    with pytest.raises(ConfigInvalid, match=r"server\.port: is a switch"):
        write.load("[server]\nport = true\n")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"TURNKEEPER_GUARDIAN__URL": "https://g.example/acs"}, "guardian.secret_file"),
        ({"TURNKEEPER_PROVIDERS__STUB__KIND": "openai"}, "base_url"),
        ({"TURNKEEPER_PROVIDERS__L__KIND": "local", "TURNKEEPER_PROVIDERS__L__API_KEY_ENV": "K"}, "neither base_url"),
        ({"TURNKEEPER_SERVER": "x", "TURNKEEPER_SERVER__PORT": "1"}, "a value of its own"),
        (
            {
                "TURNKEEPER_GUARDIAN__URL": "https://g.example/acs",
                "TURNKEEPER_GUARDIAN__SECRET_FILE": "k",
                "TURNKEEPER_GUARDIAN__POLICY": "p",
            },
            "rules of its own",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(environ: dict[str, str], words: str) -> None:
    """What would have no effect, or could not work, is said before anything starts."""
    assert words in refusal(environ)


def test_a_path_in_a_file_is_meant_from_that_file(write: "Writer") -> None:
    """Starting the command elsewhere does not move the data."""
    configuration = write.load('data_dir = "data"\n[guardian]\npolicy = "rules.yaml"\n')
    assert configuration.settings.data_dir == write.file.parent / "data"
    assert configuration.settings.guardian.policy == write.file.parent / "rules.yaml"


def test_every_path_in_the_tree_is_anchored() -> None:
    """A new path setting must be put in the list."""

    paths = {
        setting.name for setting in known_settings() if setting.field is not None and _is_path(setting.field.annotation)
    }

    assert paths == PATH_SETTINGS


def _is_path(annotation: object) -> bool:
    return annotation in (Path, Path | None)


def test_a_provider_key_is_read_from_the_variable_it_names_and_never_printed(write: "Writer") -> None:
    """The tree holds the name, the secret travels beside it as stars."""
    text = '[providers.stub]\nkind = "openai"\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "STUB_KEY"\n'
    configuration = write.load(text, {"STUB_KEY": "hunter2"})
    assert configuration.provider_secrets["stub"].get_secret_value() == "hunter2"
    assert "hunter2" not in repr(configuration)
    assert "stub" not in write.load(text).provider_secrets


def test_a_provider_key_can_stand_in_a_file_beside_the_settings(write: "Writer") -> None:
    """The path is meant from the file it stands in; what it holds is printed nowhere."""
    (write.file.parent / "key").write_text("hunter2\n")
    text = '[providers.stub]\nkind = "anthropic"\nbase_url = "https://a.example/v1"\napi_key_file = "{}"\n'
    configuration = write.load(text.format("key"))
    assert configuration.provider_secrets["stub"].get_secret_value() == "hunter2"
    assert "hunter2" not in repr(configuration)
    with pytest.raises(ConfigInvalid, match=r"providers\.stub\.api_key_file"):
        write.load(text.format("missing"))
    with pytest.raises(ConfigInvalid, match="not in both"):
        write.load(text.format("key") + 'api_key_env = "K"\n')


def test_a_password_in_the_store_url_is_stars_wherever_it_is_printed() -> None:
    """`config show`, a log line, a traceback."""
    url = "postgresql+psycopg://tk:hunter2@db.example/turnkeeper"
    settings = load_configuration(HOME | {"TURNKEEPER_STORE__URL": url}).settings
    assert "hunter2" not in repr(settings)
    assert render_value(dict(leaves(settings))["store.url"]) == "postgresql+psycopg://tk:***@db.example/turnkeeper"


def test_unsafe_choices_are_named() -> None:
    """What the startup log says."""
    environ = {
        "TURNKEEPER_SANDBOX__KIND": "none",
        "TURNKEEPER_GUARDIAN__ON_DECISION_FAILURE": "proceed",
        "TURNKEEPER_SERVER__HOST": "0.0.0.0",
        "TURNKEEPER_GUARDIAN__URL": "http://g.example/acs",
        "TURNKEEPER_GUARDIAN__SECRET_FILE": "key",
    }
    choices = unsafe_choices(load_configuration(HOME | environ).settings)
    named = {choice.split(" is ")[0] for choice in choices}
    assert named == {"sandbox.kind", "guardian.on_decision_failure", "server.host", "guardian.url"}


OVERRIDES = """
[guardian.trust_overrides.clock]
origin = "tool_output"
source_id = "clock"
trust = "trusted"
"""


def test_a_source_that_is_trusted_more_than_its_origin_is_named_as_an_unsafe_choice(write: Writer) -> None:
    """One that is trusted less is none."""
    less = OVERRIDES.replace("clock", "form").replace('"tool_output"', '"user_input"').replace('"trusted"', '"unknown"')
    choices = unsafe_choices(write.load(OVERRIDES + less).settings)
    assert choices == ("guardian.trust_overrides.clock: tool_output from clock counts as trusted",)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (OVERRIDES + OVERRIDES.replace("overrides.clock", "overrides.watch"), "the same origin and source_id"),
        (OVERRIDES.replace("tool_output", "agent_generated"), "guardian.trust_overrides.clock.origin"),
        (OVERRIDES.replace('"trusted"', '"very"'), "guardian.trust_overrides.clock.trust"),
        ('[guardian]\nurl = "https://g"\nsecret_file = "k"\n' + OVERRIDES, "guardian.trust_overrides have no effect"),
    ],
)
def test_overrides_of_trust_that_cannot_hold_are_refused(write: Writer, text: str, named: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigInvalid, match=named):
        write.load(text)


def test_the_tree_is_frozen() -> None:
    """A component cannot change what another one reads."""
    settings = load_configuration(HOME).settings
    with pytest.raises(ValidationError):
        settings.server.port = 1


@pytest.mark.parametrize("body", [b"a = ", b"\xff\xfe", b"#" * 1_048_577])
def test_a_file_that_is_not_settings_is_named(tmp_path: Path, body: bytes) -> None:
    """Not a traceback."""
    file = tmp_path / "x.toml"
    file.write_bytes(body)
    with pytest.raises(ConfigInvalid, match=r"x\.toml"):
        load_configuration(HOME, file=file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """Whether from the flag or from the variable."""
    missing = tmp_path / "no.toml"
    for environ, file in ((HOME, missing), (HOME | {"TURNKEEPER_CONFIG": str(missing)}, None)):
        with pytest.raises(ConfigInvalid, match=r"no\.toml"):
            load_configuration(environ, file=file)
