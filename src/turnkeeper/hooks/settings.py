"""The settings of the hooks: one TOML file, named on the command line that the client runs.

Answers for refusing what cannot work before a step depends on it. Nothing is read from the environment, which the
agent may have set.
"""

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, cast

from turnkeeper.errors import TurnkeeperError

MIN_SECONDS: Final = 1
MAX_SECONDS: Final = 86_400
MARGIN_S: Final = 10
"""Between the longest wait and the hook's own end, and again between that and the client's timeout."""


class HookSettingsInvalid(TurnkeeperError):
    """The settings file cannot be used."""

    code = "hook_settings_invalid"


@dataclass(frozen=True, slots=True)
class HookSettings:
    """What a hook needs to ask.

    `decision_timeout_s` bounds one question; `ask_wait_s` how long a call waits for a person's answer before it is
    blocked, to be tried again once there is one. `state_dir` keeps the sessions, for their owner only.
    """

    guardian_url: str
    secret_file: Path
    state_dir: Path
    agent_id: str
    key_id: str = "default"
    decision_timeout_s: int = 30
    ask_wait_s: int = 120

    def __post_init__(self) -> None:
        for name in ("decision_timeout_s", "ask_wait_s"):
            if not MIN_SECONDS <= getattr(self, name) <= MAX_SECONDS:
                raise HookSettingsInvalid(f"{name} is not between {MIN_SECONDS} and {MAX_SECONDS} seconds")
        if not self.guardian_url.startswith(("http://", "https://")):
            raise HookSettingsInvalid("guardian_url is no http or https URL")

    @property
    def deadline_s(self) -> int:
        """When a hook ends itself, whatever it is doing."""
        return self.decision_timeout_s + self.ask_wait_s + MARGIN_S

    @property
    def client_timeout_s(self) -> int:
        """The timeout to give the client: it must never be the one that ends a hook."""
        return self.deadline_s + MARGIN_S


def load_settings(path: Path) -> HookSettings:
    """The settings in a file. Raises `HookSettingsInvalid`, which names what is wrong."""
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise HookSettingsInvalid(f"{path} cannot be read: {error}") from error
    members: dict[str, object] = {}
    for field in fields(HookSettings):
        if field.name in document:
            members[field.name] = _typed(field.name, document.pop(field.name))
    if document:
        raise HookSettingsInvalid(f"{path} has unknown settings: {', '.join(sorted(document))}")
    try:
        return HookSettings(**members)  # pyright: ignore[reportArgumentType]  each member was checked by its name
    except TypeError as error:
        raise HookSettingsInvalid(f"{path} lacks a setting: {error}") from error


def render_settings(settings: HookSettings) -> str:
    """The file that `load_settings` reads back."""
    lines: list[str] = []
    for field in fields(HookSettings):
        value = cast("str | int | Path", getattr(settings, field.name))
        lines.append(f"{field.name} = {value if isinstance(value, int) else _quoted(str(value))}")
    return "\n".join(lines) + "\n"


def _typed(name: str, value: object) -> object:
    if name in {"decision_timeout_s", "ask_wait_s"}:
        if not isinstance(value, int) or isinstance(value, bool):
            raise HookSettingsInvalid(f"{name} is no whole number of seconds")
        return value
    if not isinstance(value, str) or not value:
        raise HookSettingsInvalid(f"{name} is no text")
    if name in {"secret_file", "state_dir"}:
        if not Path(value).is_absolute():
            raise HookSettingsInvalid(f"{name} is no absolute path: a hook runs in whatever folder the client is in")
        return Path(value)
    return value


def _quoted(text: str) -> str:
    escaped = "".join(
        f"\\u{ord(character):04X}" if ord(character) < 0x20 or ord(character) == 0x7F else character
        for character in text.replace("\\", "\\\\").replace('"', '\\"')
    )
    return f'"{escaped}"'
