"""Where settings come from, and the only reader of the environment.

In rising order: a setting's default, `turnkeeper.toml`, a variable `TURNKEEPER_...` (`__` between the parts of a name),
a command-line flag. All of it is read once and checked before anything starts: a name nobody knows is refused together
with the nearest one that exists, never skipped. Providers' keys travel beside the tree, in a type that prints as stars.
"""

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from pydantic import SecretStr, ValidationError

from turnkeeper.errors import TurnkeeperError
from turnkeeper.settings import NAMED_BRANCHES, PATH_SETTINGS, PROVIDER_PLACEHOLDER, Settings
from turnkeeper.settings_tree import known_settings

ENV_PREFIX: Final = "TURNKEEPER_"
CONFIG_VARIABLE: Final = "TURNKEEPER_CONFIG"
URL_VARIABLE: Final = "TURNKEEPER_URL"
KEY_VARIABLE: Final = "TURNKEEPER_KEY"
_NO_SETTINGS: Final = frozenset({CONFIG_VARIABLE, URL_VARIABLE, KEY_VARIABLE})
DEFAULT_FILE: Final = Path("turnkeeper.toml")
MAX_FILE_BYTES: Final = 1_048_576


class ConfigInvalid(TurnkeeperError):
    """The settings cannot be used; the message names each wrong one and where it came from."""

    code = "config_invalid"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings, where each value came from (dotted name to origin), and what the environment adds beside them."""

    settings: Settings
    origins: Mapping[str, str]
    provider_secrets: Mapping[str, SecretStr] = field(default_factory=dict[str, SecretStr])
    file: Path | None = None

    def origin(self, name: str) -> str:
        """Where the value of a dotted name came from: `default`, a file, a variable or a flag."""
        return self.origins.get(name, "default")


def load_configuration(
    environ: Mapping[str, str] = os.environ,
    *,
    file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    data_dir_name: str = "serve",
) -> Configuration:
    """Reads file and environment once. `flags` are dotted names to values; a value of `None` was not given.

    `data_dir_name` is the folder below the user's data folder when no data dir is named. Raises `ConfigInvalid`.
    """
    path = _find_file(environ, file)
    tree: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, name, value in _given(environ, path, flags or {}):
        _place(tree, name, value)
        _claim(origins, name, origin)
    if "data_dir" not in tree:
        tree["data_dir"] = user_data_dir(environ) / data_dir_name
    settings = _validated(tree, origins)
    return Configuration(
        settings=settings,
        origins=origins,
        provider_secrets=_provider_secrets(settings, environ),
        file=path,
    )


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """The server that commands over the API talk to, as far as the environment names it."""

    url: str | None
    key: str | None = field(repr=False)


def load_remote(environ: Mapping[str, str] = os.environ) -> RemoteServer:
    """`TURNKEEPER_URL` and `TURNKEEPER_KEY`; they are no settings of a server."""
    return RemoteServer(environ.get(URL_VARIABLE) or None, environ.get(KEY_VARIABLE) or None)


def user_data_dir(environ: Mapping[str, str]) -> Path:
    """Where this user's data belongs, by the XDG rules."""
    base = environ.get("XDG_DATA_HOME", "")
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME") or "~").expanduser() / ".local" / "share"
    return root / "turnkeeper"


def _find_file(environ: Mapping[str, str], file: Path | None) -> Path | None:
    if file is not None:
        return file
    if environ.get(CONFIG_VARIABLE):
        return Path(environ[CONFIG_VARIABLE])
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _given(
    environ: Mapping[str, str], file: Path | None, flags: Mapping[str, object]
) -> Iterator[tuple[str, tuple[str, ...], object]]:
    if file is not None:
        for name, value in _flatten(_load_toml(file), ()):
            yield f"file {file}", name, _anchored(name, value, file.parent)
    for variable in sorted(environ):
        if variable.startswith(ENV_PREFIX) and variable not in _NO_SETTINGS:
            name = tuple(variable.removeprefix(ENV_PREFIX).lower().split("__"))
            yield f"env {variable}", name, _anchored(name, environ[variable], Path())
    for flag, value in flags.items():
        if value is not None:
            option = "--" + flag.rsplit(".", 1)[-1].replace("_", "-")
            name = tuple(flag.split("."))
            yield f"flag {option}", name, _anchored(name, value, Path())


def _load_toml(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            body = stream.read(MAX_FILE_BYTES + 1)
        if len(body) > MAX_FILE_BYTES:
            raise ConfigInvalid(f"{file} is over {MAX_FILE_BYTES} bytes")
        return tomllib.loads(body.decode())
    except OSError as error:
        raise ConfigInvalid(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{file} is not TOML: {error}") from error


def _flatten(tree: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _flatten(cast("dict[str, Any]", value), (*above, name))
        else:
            yield (*above, name), value


def _anchored(name: tuple[str, ...], value: object, folder: Path) -> object:
    # A path in a file is meant from that file, so that it does not change with where a command is started.
    if _known_as(name) in PATH_SETTINGS and isinstance(value, str | Path):
        return (folder / Path(value).expanduser()).absolute()
    return value


def _place(tree: dict[str, Any], name: tuple[str, ...], value: object) -> None:
    for depth, part in enumerate(name[:-1], start=1):
        below: object = tree.setdefault(part, {})
        if not isinstance(below, dict):
            raise ConfigInvalid(f"{'.'.join(name)}: {'.'.join(name[:depth])} was given a value of its own")
        tree = cast("dict[str, Any]", below)
    tree[name[-1]] = value


def _claim(origins: dict[str, str], name: tuple[str, ...], origin: str) -> None:
    origins[".".join(name)] = origin


def _validated(tree: dict[str, Any], origins: Mapping[str, str]) -> Settings:
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        problems = [_explain(dict(problem), origins) for problem in error.errors(include_url=False)]
        raise ConfigInvalid("; ".join(problems), detail={"problems": problems}) from error


def _explain(problem: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    location = tuple(str(part) for part in problem["loc"] if part != "[key]")
    name = ".".join(location)
    origin = origins.get(name) or next((text for key, text in origins.items() if key.startswith(name + ".")), None)
    where = f" ({origin})" if origin else ""
    if problem["type"] == "extra_forbidden":
        return f"{name}: there is no such setting{where}{_nearest(location)}"
    text = str(problem["msg"]).removeprefix("Value error, ")
    return f"{name}: {text[:1].lower()}{text[1:]}{where}" if name else text


def _nearest(location: tuple[str, ...]) -> str:
    known = list(known_settings())
    sibling = {setting.name[-1] for setting in known if setting.name[:-1] == _pattern(location[:-1])}
    close = difflib.get_close_matches(location[-1], sibling, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {'.'.join((*location[:-1], close[0]))}?"
    elsewhere = difflib.get_close_matches(location[-1], [setting.name[-1] for setting in known], n=1, cutoff=0.8)
    full = next((setting.name for setting in known if elsewhere and setting.name[-1] == elsewhere[0]), None)
    return f"; did you mean {'.'.join(full)}?" if full else ""


def _pattern(location: tuple[str, ...]) -> tuple[str, ...]:
    return (*location[:-1], PROVIDER_PLACEHOLDER) if location[:-1] in NAMED_BRANCHES else location


def _known_as(name: tuple[str, ...]) -> tuple[str, ...]:
    return (*name[:-2], PROVIDER_PLACEHOLDER, name[-1]) if name[:-2] in NAMED_BRANCHES else name


def _provider_secrets(settings: Settings, environ: Mapping[str, str]) -> dict[str, SecretStr]:
    return _secrets_of_variables(settings, environ) | _secrets_of_files(settings)


def _secrets_of_files(settings: Settings) -> dict[str, SecretStr]:
    secrets: dict[str, SecretStr] = {}
    for name, provider in settings.providers.items():
        if provider.api_key_file is None:
            continue
        try:
            secrets[name] = SecretStr(provider.api_key_file.read_text(encoding="ascii").strip())
        except (OSError, ValueError) as error:
            raise ConfigInvalid(f"providers.{name}.api_key_file cannot be read: {provider.api_key_file}") from error
    return secrets


def _secrets_of_variables(settings: Settings, environ: Mapping[str, str]) -> dict[str, SecretStr]:
    return {
        name: SecretStr(environ[provider.api_key_env])
        for name, provider in settings.providers.items()
        if provider.api_key_env and environ.get(provider.api_key_env)
    }
