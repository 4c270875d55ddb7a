"""The settings as a list: every name there is, every value in force, and how a value is printed."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast, get_args

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from turnkeeper.settings import NAMED_BRANCHES, PROVIDER_PLACEHOLDER, Branch, Settings


def leaves(settings: Settings) -> Iterator[tuple[str, object]]:
    """Every setting as dotted name and value, in the order of the tree."""
    yield from _leaves(settings, "")


def _leaves(branch: BaseModel, prefix: str) -> Iterator[tuple[str, object]]:
    for name in type(branch).model_fields:
        value: object = getattr(branch, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, dict):
            for key, item in cast("dict[str, BaseModel]", value).items():
                yield from _leaves(item, f"{prefix}{name}.{key}.")
        else:
            yield f"{prefix}{name}", value


@dataclass(frozen=True, slots=True)
class KnownSetting:
    """A name in the tree. `field` is None for a branch; a name of the operator's own is written `NAME`."""

    name: tuple[str, ...]
    field: FieldInfo | None
    description: str


def known_settings() -> Iterator[KnownSetting]:
    """Every name there is, in the order of the tree, each branch before what is in it."""
    return _known(Settings, ())


def _known(model: type[BaseModel], above: tuple[str, ...]) -> Iterator[KnownSetting]:
    for name, info in model.model_fields.items():
        branch = _branch_of(info.annotation)
        here = (*above, name)
        if branch is None:
            yield KnownSetting(here, info, info.description or "")
            continue
        yield KnownSetting(here, None, info.description or (branch.__doc__ or "").strip())
        yield from _known(branch, (*here, PROVIDER_PLACEHOLDER) if here in NAMED_BRANCHES else here)


def _branch_of(annotation: object) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Branch):
            return candidate
    return None


_PASSWORD: Final = re.compile(r"(://[^/@:]*:)[^@]*@")


def render_value(value: object) -> str:
    """A value as `config show` and the reference page print it, a password in a URL as stars."""
    if value is None:
        return "unset"
    if isinstance(value, SecretStr):
        return _PASSWORD.sub(r"\1***@", value.get_secret_value())
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in cast("tuple[object, ...]", value)) or "none"
    return json.dumps(value) if isinstance(value, bool | int) else str(value)
